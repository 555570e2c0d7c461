"""Settings of Sphinx for the site of the documentation, which ``make docs`` writes.

The source folder is the repository, so that the links between its pages lead where they lead in a
clone. README.md is the first page; CONTENTS, which is added to it, is the navigation of the site.
"""

import dataclasses
import inspect
import re
from typing import Any

from sphinx.application import Sphinx
from sphinx.util import logging

import nq

CONTENTS = """
```{toctree}
:hidden:
:caption: Use

docs/recipes
docs/documents
docs/python
docs/notebook
docs/api
docs/serving
docs/data
docs/mlflow
docs/cluster
docs/scale
```

```{toctree}
:hidden:
:caption: Speed and quality

docs/profiles
docs/benchmarks
docs/quality
docs/studies
experiments/README
experiments/planning/README
```

```{toctree}
:hidden:
:caption: Models

docs/checkpoints
docs/compatibility
nq/bundled/README
nq/bundled/ranker/README
nq/bundled/small/README
```

```{toctree}
:hidden:
:caption: Development

docs/development
CONTRIBUTING
CHANGELOG
```
"""

project, release = "nq", nq.__version__
root_doc = "README"
include_patterns = [
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/*"),
    *("experiments/**README.md", "nq/bundled/**README.md"),
]
exclude_patterns = [".*", "build", "runs", "shared"]
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
highlight_language = "text"
smartquotes_action = "D"  # dashes alone

myst_heading_anchors = 4  # as GitHub makes them
nb_execution_mode = "off"
nb_ipywidgets_js: dict[str, dict[str, str]] = {}  # these scripts would be fetched from the network

autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "special-members": "__call__"}
autodoc_preserve_defaults = True
maximum_signature_line_length = 80

# of a session the commands are copied, without the prompt and what they print
copybutton_prompt_text, copybutton_prompt_is_regexp = r"\$ |>>> |\.\.\. ", True
copybutton_line_continuation_character = "\\"

html_theme = "furo"
html_title = f"nq {release}"
html_static_path, html_css_files = ["site.css"], ["site.css"]
html_copy_source = html_show_copyright = html_use_index = html_domain_indices = False

logger = logging.getLogger(__name__)


def add_contents(app: Sphinx, page: str, source: list[str]) -> None:
    """Adds the navigation of the site to its first page."""
    if page == root_doc:
        source[0] += CONTENTS


def require_docstring(app: Sphinx, kind: str, name: str, value: Any, *_: Any) -> None:
    """Warns of a public function, class or property without a docstring of its own."""
    is_code = callable(value) or isinstance(value, property)
    own_name = name.rpartition(".")[2]
    doc = inspect.getdoc(value) or ""
    made_by_dataclass = doc.startswith(f"{own_name}(")
    if is_code and not own_name.startswith("_") and (not doc or made_by_dataclass):
        logger.warning("%s has no docstring", name)


def prepare_docstring(
    app: Sphinx, kind: str, name: str, value: Any, options: Any, lines: list[str]
) -> None:
    """Prepares a docstring for napoleon, and adds the help texts that fields of settings have."""
    if kind == "property":  # behind an empty comment, or it takes the words before ":" for a type
        lines[:0] = ["..", ""]
    if kind == "module":  # what is indented is code
        text = re.sub(r"(?m)^(\S.*\n)\n(?=    )", r"\1\n::\n\n", "\n".join(lines))
        lines[:] = text.split("\n")
    if kind == "class" and dataclasses.is_dataclass(value):
        helps = {field.name: field.metadata.get("help") for field in dataclasses.fields(value)}
        texts = [f"    {field}: {text}." for field, text in helps.items() if text]
        lines += ["", "Args:", *texts] if texts else []


def setup(app: Sphinx) -> None:
    """Connects the functions above; napoleon reads a docstring at priority 500."""
    app.connect("source-read", add_contents)
    app.connect("autodoc-skip-member", require_docstring)
    app.connect("autodoc-process-docstring", require_docstring)
    app.connect("autodoc-process-docstring", prepare_docstring, priority=400)
