"""Models by name: the bundled one, and those that installed distributions bring.

A distribution registers a model by an entry point of the group ``nq.models``: the name of the
model, and the package that is its folder. The metadata of the installed distributions are read only
for a name that is neither a folder nor the bundled model, and a package is found without running
its code.
"""

from __future__ import annotations

import logging
import os
from importlib.util import find_spec
from pathlib import Path

from nq.bundle import bundled_model
from nq.errors import Error
from nq.model import hub
from nq.text import did_you_mean, truncate

log = logging.getLogger(__name__)

CONFIG, TF_CONFIG = "config.json", "bert_config.json"
BUNDLED = "small"
DISTRIBUTIONS = {"ranker": "./models/ranker"}
"""Models of this repository that are installed on their own: where each one is in a clone."""
MAX_NAMES_SHOWN = 20


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
    if isinstance(model, str) and hub.is_name(model) and not os.path.exists(folder):  # noqa: PTH110
        folder = hub.fetch(model)
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


def _without_links(folder: Path) -> Path:
    """Returns a folder without links out of it, except to ``blobs`` in Hugging Face's cache."""
    inside = folder.resolve()
    blobs = [inside.parents[1] / "blobs"] if inside.parent.name == "snapshots" else []
    for path in (*folder.glob("*"), *folder.glob("1_Pooling/*")):
        target = path.resolve()
        if path.is_file() and not any(map(target.is_relative_to, [inside, *blobs])):
            raise Error(
                f"{path} is a link out of the model folder, to {target}: if you trust it, give a "
                f"copy without links (cp -rL {folder} COPY)"
            )
    return folder


def named_model(model: str) -> Path:
    """Returns the folder of the bundled or an installed model, whatever the working directory has.

    It raises the errors of ``model_folder``.
    """
    from importlib.metadata import entry_points

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
            f"installed model ({installed})"
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
