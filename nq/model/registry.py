"""Models by name: the bundled one, those that installed distributions bring, and the hub's.

A distribution registers a model by an entry point of the group ``nq.models``: the name of the
model, and the package that is its folder. The metadata of the installed distributions are read only
for a name that is neither a folder nor the bundled model, and a package is found without running
its code.
"""

import contextlib
import logging
import os
import shlex
from collections.abc import Mapping
from functools import partial
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from nq import hub
from nq.bundle import bundled_model
from nq.errors import Error
from nq.preprocess.tokenizers import FILES
from nq.text import did_you_mean, format_bytes, truncate

log = logging.getLogger(__name__)

CONFIG, TF_CONFIG = "config.json", "bert_config.json"
BUNDLED = "small"
DISTRIBUTIONS = {"ranker": "./models/ranker"}
"""Models of this repository that are installed on their own: where each one is in a clone."""
PACKAGE = "nq_model_"
MAX_NAMES_SHOWN = 20
WEIGHTS = ("model.safetensors",), ("model.safetensors.index.json", "model-*.safetensors")
"""The names of weights in a repository of the hub: one file, or several with an index."""
HUB_FILES = (CONFIG, "nq.json", "1_Pooling/config.json", *FILES)
"""The other files that are fetched from the hub; each is read into memory."""
MAX_HUB_BYTES = 64 << 20
CONVERT_PICKLE = (
    "convert it where you trust it and have transformers: python -c 'import sys; from "
    "transformers import AutoModelForQuestionAnswering as M; "
    "M.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[2])' {} NEW_FOLDER"
)


def model_folder(model: str | Path | None = None) -> Path:
    """Returns the folder of a model.

    Args:
        model: a folder, or the name of a model; by default the bundled model. A ``Path`` is always
            a folder, and so is a name that a folder has. ``org/name`` and ``org/name@revision``
            are models of the Hugging Face hub. No file in a folder may be a link to a place
            outside it.

    Raises:
        FileNotFoundError: there is neither a folder nor a model of this name.
        Error: the model is not installed, or not as it should be.
    """
    if model is None:
        return bundled_model()
    folder = Path(model)
    if isinstance(model, str) and hub.is_model(model) and not os.path.exists(folder):  # noqa: PTH110
        folder = hub.fetch_model(model, partial(_hub_files, model))
        if b'"auto_map"' in (folder / CONFIG).read_bytes():
            log.info("%s has code of its own (auto_map in its %s), which is not run", model, CONFIG)
        return folder
    if isinstance(model, Path) or os.sep in model:
        return _without_links(folder)
    if not _has_model(folder):
        try:
            return named_model(model)
        except FileNotFoundError:
            if not os.path.exists(folder):  # noqa: PTH110 - as in _has_model
                raise  # otherwise whoever reads the folder says what it lacks
    if model in (BUNDLED, *DISTRIBUTIONS):
        log.info("%s is the folder of this name here, not the model that nq provides", folder)
    return _without_links(folder)


def model_name(folder: Path) -> str:
    """Returns the name of a model for records: of the hub's with the commit, else its folder's.

    The package of an installed model begins with ``PACKAGE``, which its name does not.
    """
    if folder == bundled_model():
        return BUNDLED
    return hub.name_of(folder) or folder.name.removeprefix(PACKAGE)


def _hub_files(name: str, sizes: Mapping[str, int]) -> list[str]:
    """Returns patterns of the files of a model, given the bytes of all files of a repository."""
    if CONFIG not in sizes:
        raise Error(f"there is no {CONFIG}, so that it is no model of transformers")
    patterns = next((patterns for patterns in WEIGHTS if patterns[0] in sizes), ())
    if not patterns:
        advice = CONVERT_PICKLE.format(name.partition("@")[0])
        raise Error(f"there are no safetensors, and pickles are never loaded: {advice}")
    others = [file for file in HUB_FILES if file in sizes]
    for file in others:
        if sizes[file] > MAX_HUB_BYTES:
            limit = f"expected at most {format_bytes(MAX_HUB_BYTES)}"
            raise Error(f"{file} has {format_bytes(sizes[file])}, {limit}: choose another model")
    return [*patterns, *others]


def _without_links(folder: Path) -> Path:
    """Returns a folder without links out of it, except to ``blobs`` in Hugging Face's cache."""
    for path in (folder, *folder.glob("*"), *folder.glob("1_Pooling/*")):
        with contextlib.suppress(FileNotFoundError):
            path.stat()  # which names a link that leads to itself
    inside = folder.resolve()
    is_cached = inside.parent.name == "snapshots"
    allowed = [inside, *(one / "blobs" for one in inside.parents[1:3] if is_cached)]
    for path in (*folder.glob("*"), *folder.glob("1_Pooling/*")):
        target = path.resolve()
        if path.is_file() and not any(map(target.is_relative_to, allowed)):
            raise Error(
                f"{path} is a link out of the model folder, to {target}: if you trust it, give a "
                f"copy without links (cp -rL {shlex.quote(str(folder))} COPY)"
            )
    return folder


def named_model(model: str) -> Path:
    """Returns the folder of the bundled or an installed model, whatever the working directory has.

    It raises the errors of ``model_folder``.
    """
    if model == BUNDLED:
        return bundled_model()
    try:
        entries = tuple(entry_points(group="nq.models"))
    except Exception as error:  # of any installed distribution; the library raises bare exceptions
        cause = f"{type(error).__name__}: {error}"
        raise Error(
            f"the entry points of an installed distribution are damaged ({cause}): give the folder "
            "of the model"
        ) from error
    matches = [entry for entry in entries if entry.name == model]
    if not matches:
        names = sorted({BUNDLED, *(entry.name for entry in entries)})
        installed = ", ".join(names[:MAX_NAMES_SHOWN])
        if model in DISTRIBUTIONS:
            raise Error(
                f"the model {model} is not installed (installed: {installed}): run pip install "
                f"{DISTRIBUTIONS[model]} in a clone of nq"
            )
        like = did_you_mean(model, (*names, *DISTRIBUTIONS))
        raise FileNotFoundError(
            f"no model {truncate(model, 80)!r}{like}: expected a folder, or the name of an "
            f"installed model ({installed}), or org/name of the Hugging Face hub"
        )
    owners = " and ".join(sorted(f"{m.dist.name} {m.dist.version}" for m in matches if m.dist))
    if len(matches) > 1:
        raise Error(
            f"{owners} both have a model {model}: uninstall one of them, or give the folder of the "
            "model"
        )
    package = matches[0].value
    try:
        spec = find_spec(package)
    except Exception:  # the name is none, or a package that contains it fails
        spec = None
    for place in (spec and spec.submodule_search_locations) or ():
        if _has_model(Path(place)):
            return Path(place)
    raise Error(
        f"the model {model} of {owners} is incomplete: no package {package} with a {CONFIG} is "
        "installed; install it again"
    )


def _has_model(folder: Path) -> bool:
    # unlike the method of Path, the function is false for a name that no file can have
    return any(os.path.isfile(folder / name) for name in (CONFIG, TF_CONFIG))  # noqa: PTH113
