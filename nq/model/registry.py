"""Models by name: the bundled ones, and those of the Hugging Face hub."""

import contextlib
import logging
import os
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from nq import hub
from nq.bundle import RANKER, READER, bundled_model, bundled_pair
from nq.errors import Error
from nq.json_files import read_json_object
from nq.preprocess.tokenizers import FILES
from nq.text import did_you_mean, format_bytes, truncate

log = logging.getLogger(__name__)

CONFIG = "config.json"
TF_CONFIG = "bert_config.json"
SETTINGS = "nq.json"
DEFAULT = f"{RANKER}+{READER}"
"""The two bundled models as one, which every command answers with unless another is given."""
WEIGHTS = ("model.safetensors",), ("model.safetensors.index.json", "model-*.safetensors")
"""The names of weights in a repository of the hub: one file, or several with an index."""
HUB_FILES = (CONFIG, SETTINGS, "1_Pooling/config.json", *FILES)
"""The other files that are fetched from the hub; each is read into memory."""
MAX_HUB_BYTES = 64 << 20
CONVERT_PICKLE = (
    "convert it where you trust it and have transformers: python -c 'import sys; from "
    "transformers import AutoModelForQuestionAnswering as M; "
    "M.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[2])' {} NEW_FOLDER"
)


def model_folder(model: str | Path | None = None) -> Path:
    """Returns the folder of a model, or of two (``is_pair``).

    Args:
        model: a folder, or the name of a model; by default ``DEFAULT``. A ``Path`` is always
            a folder, and so is a name that a folder has. ``org/name`` and ``org/name@revision``
            are models of the Hugging Face hub. No file in a folder may be a link to a place
            outside it.

    Raises:
        FileNotFoundError: there is neither a folder nor a model of this name.
        Error: the model is not as it should be, or cannot be fetched.
    """
    if model is None:
        return bundled_pair()
    folder = Path(model)
    if isinstance(model, str) and hub.is_model(model) and not os.path.exists(folder):  # noqa: PTH110
        folder = hub.fetch_model(model, partial(_hub_files, model))
        if b'"auto_map"' in (folder / CONFIG).read_bytes():
            log.info("%s has code of its own (auto_map in its %s), which is not run", model, CONFIG)
        return folder
    if isinstance(model, Path) or os.sep in model:
        return _without_links(folder)
    bundled = {name: bundled_model(name) for name in (READER, RANKER)}
    bundled = {DEFAULT: bundled_pair(), **bundled}
    if not (_has_model(folder) or is_pair(folder)):
        if model in bundled:
            return bundled[model]
        if not os.path.exists(folder):  # noqa: PTH110 - as in _has_model
            raise FileNotFoundError(
                f"no model {truncate(model, 80)!r}{did_you_mean(model, bundled)}: expected a "
                f"folder, the name of a bundled model ({', '.join(bundled)}), or org/name of the "
                "Hugging Face hub"
            )
    if model in bundled:
        log.info("%s is the folder of this name here, not the model that nq provides", folder)
    return _without_links(folder)


def model_name(folder: Path) -> str:
    """Returns the name of a model for records: of the hub's with the commit, else its folder's."""
    if folder == bundled_pair():
        return DEFAULT
    return hub.name_of(folder) or folder.name


def is_pair(folder: Path) -> bool:
    """Returns whether a folder has two models in folders of their own, and settings of both."""
    if _has_model(folder) or not os.path.isfile(folder / SETTINGS):  # noqa: PTH113 - as below
        return False
    return "ranker" in read_json_object(folder / SETTINGS)


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
    _check_links(folder, (*folder.glob("*"), *folder.glob("1_Pooling/*")))
    if is_pair(folder):
        _check_links(folder, tuple(folder.glob("*/*")))
    return folder


def _check_links(folder: Path, paths: Sequence[Path]) -> None:
    for path in (folder, *paths):
        with contextlib.suppress(FileNotFoundError):
            path.stat()  # which names a link that leads to itself
    inside = folder.resolve()
    is_cached = inside.parent.name == "snapshots"
    allowed = [inside, *(one / "blobs" for one in inside.parents[1:3] if is_cached)]
    for path in paths:
        target = path.resolve()
        if path.is_file() and not any(map(target.is_relative_to, allowed)):
            raise Error(
                f"{path} is a link out of the model folder, to {target}: if you trust it, give a "
                f"copy without links (cp -rL {shlex.quote(str(folder))} COPY)"
            )


def _has_model(folder: Path) -> bool:
    # unlike the method of Path, the function is false for a name that no file can have
    return any(os.path.isfile(folder / name) for name in (CONFIG, TF_CONFIG))  # noqa: PTH113
