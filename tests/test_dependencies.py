"""Tests which packages of nq import which others, and when heavy libraries are imported."""

import ast
import json
from collections.abc import Iterator
from graphlib import TopologicalSorter

import pytest

from nq.commands.main import COMMANDS
from tests.support.child_processes import ROOT, python

ALLOWED: dict[str, set[str]] = {
    "eval": {"commands"},
    "beam": {"evaluation", "formats", "inference", "model", "postprocess", "preprocess"},
    "evaluation": {"formats", "postprocess"},
    "formats": set(),
    "inference": {"model", "postprocess", "preprocess"},
    "model": {"formats", "preprocess"},
    "postprocess": set(),
    "preprocess": {"formats"},
    "lab": {
        *("evaluation", "formats", "inference", "model"),
        *("postprocess", "preprocess", "report", "runs"),
    },
    "report": {"evaluation", "formats", "postprocess", "runs"},
    "runs": {
        *("beam", "evaluation", "formats", "inference", "model"),
        *("postprocess", "preprocess"),
    },
    "serving": {"formats", "inference", "model", "postprocess"},
    "training": {
        *("beam", "evaluation", "formats", "inference", "model", "postprocess", "preprocess"),
    },
    "commands": {
        *("beam", "evaluation", "formats", "inference", "lab", "model", "preprocess"),
        *("runs", "serving", "training"),
    },
}
"""Maps each package to the packages that it may import; all may import the modules beside them."""
HEAVY = {
    "tensorflow": ("nq",),
    "keras": ("nq",),
    "apache_beam": ("nq.beam", "experiments.clusters.worker_pool"),
    "mlflow": ("nq.tracking", "nq.mlflow_store", "nq.mlflow_format", "nq.serving"),
    "huggingface_hub": ("nq.hub",),
    "transformers": ("nq.preprocess.tokenizers",),
    "fastapi": ("nq.serving",),
    "fastapi_offline": ("nq.serving",),
    "prometheus_client": ("nq.serving",),
    "pydantic": ("nq.serving",),
    "starlette": ("nq.serving",),
    "uvicorn": ("nq.serving",),
}
"""Maps each heavy library to the packages that may import it, beside experiments."""
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for folder in ("nq", "eval", "experiments")
    for path in sorted((ROOT / folder).rglob("*.py"))
}
OURS = [name for name in MODULES if not name.startswith("experiments")]


def import_nodes(text: str) -> Iterator[tuple[str, str]]:
    """Yields module and name of each import, those inside functions too; ``import x`` has none."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from ((node.module or "", alias.name) for alias in node.names)


STUB = ast.parse((ROOT / "nq" / "__init__.pyi").read_text(encoding="utf-8"))
PUBLIC = {
    alias.name: f"nq.{node.module}"
    for node in ast.walk(STUB)
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}
"""Maps each public name of nq to its module, as the stub imports them."""


def imports(module: str) -> set[str]:
    """Returns the modules of this repository that a module imports."""
    imported = set()
    for name, member in import_nodes(MODULES[module].read_text(encoding="utf-8")):
        full = f"{name}.{member}" if member else name
        if name == "nq" and member in PUBLIC:
            imported.add(PUBLIC[member])
        elif full == "nq":
            imported.update(PUBLIC.values())
        elif full in MODULES:
            imported.add(full)
        elif name in MODULES:
            imported.add(name)
    return imported - {module}


def package_of(module: str) -> str:
    """Returns the package of a module of nq, or the module itself where it is in none."""
    name = module.removeprefix("nq.").split(".")[0]
    return name if name in ALLOWED else module


PACKAGE_IMPORTS: dict[str, set[str]] = {}
for _module in OURS:
    _others = {package_of(name) for name in imports(_module)} - {package_of(_module)}
    PACKAGE_IMPORTS.setdefault(package_of(_module), set()).update(_others)


def test_packages_import_exactly_what_they_may() -> None:
    packages = {"eval", *(path.parent.name for path in (ROOT / "nq").glob("*/__init__.py"))}
    assert {package: PACKAGE_IMPORTS[package] & packages for package in packages} == ALLOWED


def test_there_are_no_cycles() -> None:
    tuple(TopologicalSorter(PACKAGE_IMPORTS).static_order())
    tuple(TopologicalSorter({module: imports(module) for module in MODULES}).static_order())


@pytest.mark.parametrize("library", HEAVY)
def test_a_heavy_library_is_imported_by_its_package_only(library: str) -> None:
    """Experiments import all but Beam and MLflow."""
    importers = {
        module
        for module, path in MODULES.items()
        for name, _ in import_nodes(path.read_text(encoding="utf-8"))
        if name.split(".")[0] == library
    }
    assert importers, f"nothing imports {library}"
    experiments = () if library in ("apache_beam", "mlflow") else ("experiments",)
    allowed = tuple(f"{package}." for package in HEAVY[library] + experiments)
    assert all(f"{module}.".startswith(allowed) for module in importers)


def test_help_needs_no_heavy_library() -> None:
    """Imports nq, then the commands, makes every parser and loads a WordPiece in a new process."""
    steps = ["import nq", "import nq.commands.main", "import nq.reader, nq.runs.run"]
    steps += [
        f"import nq.commands.{command} as module; module.parser().format_help()"
        for command in COMMANDS
    ]
    steps.append("nq.reader.Model.open().tokenizer")
    code = (
        "import json, sys\n"
        f"for step in {steps!r}:\n"
        "    exec(step)\n"
        f"    loaded = [name for name in {[*HEAVY, 'matplotlib', 'openvino']!r} "
        "if name in sys.modules]\n"
        "    print(json.dumps([step, loaded]))\n"
    )
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert results == [[step, []] for step in steps]
