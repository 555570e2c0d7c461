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
from typing import TYPE_CHECKING, Any

from nq.bundle import bundled_model
from nq.errors import Error
from nq.text import did_you_mean, truncate

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

log = logging.getLogger(__name__)

GROUP = "nq.models"
CONFIG, TF_CONFIG = "config.json", "bert_config.json"
BUNDLED = "small"
DISTRIBUTIONS = {name: f"./models/{name}" for name in ("base", "ranker")}
"""Models of this repository that are installed on their own: where each one is in a clone."""
MAX_NAMES_SHOWN = 20


def model_folder(model: str | Path | None = None) -> Path:
    """Returns the folder of a model.

    Args:
        model: a folder, or the name of a model; by default the bundled model. A ``Path``, and text
            with a slash in it, is always a folder. So is a name that a folder with a model has.

    Raises:
        FileNotFoundError: there is neither a folder nor a model of this name.
        Error: the model is not installed, or not as it should be.
    """
    if model is None:
        return bundled_model()
    folder = Path(model)
    if isinstance(model, Path) or os.sep in model:
        return folder
    if _has_model(folder):
        return _here(folder)
    try:
        return named_model(model)
    except FileNotFoundError:
        if os.path.exists(folder):  # noqa: PTH110 - as in _has_model
            return _here(folder)  # whoever reads it says what it lacks
        raise


def named_model(model: str) -> Path:
    """Returns the folder of the bundled or an installed model, whatever the working directory has.

    It raises the errors of ``model_folder``.
    """
    if model == BUNDLED:
        return bundled_model()
    entries = _entry_points()
    matches = [entry for entry in entries if entry.name == model]
    if matches:
        return _installed(matches)
    names = ", ".join(sorted({BUNDLED, *(entry.name for entry in entries)})[:MAX_NAMES_SHOWN])
    if model in DISTRIBUTIONS:
        raise Error(
            f"the model {model} is not installed (installed: {names}): run pip install "
            f"{DISTRIBUTIONS[model]} in a clone of nq"
        )
    like = did_you_mean(model, (BUNDLED, *DISTRIBUTIONS, *(entry.name for entry in entries)))
    raise FileNotFoundError(
        f"no model {truncate(model, 80)!r}{like}: expected a folder, or the name of an installed "
        f"model ({names})"
    )


def _has_model(folder: Path) -> bool:
    # unlike the method of Path, the function is false for a name that no file can have
    return any(os.path.isfile(folder / name) for name in (CONFIG, TF_CONFIG))  # noqa: PTH113


def _here(folder: Path) -> Path:
    if folder.name in (BUNDLED, *DISTRIBUTIONS):
        log.info("%s is the folder of this name here, not the model that nq provides", folder)
    return folder


def _entry_points() -> tuple[EntryPoint, ...]:
    """Returns the registered models of all installed distributions."""
    from importlib.metadata import entry_points

    try:
        return tuple(entry_points(group=GROUP))
    except Exception as error:  # of any installed distribution; the library raises bare exceptions
        cause = f"{type(error).__name__}: {error}"
        raise Error(
            f"the entry points of an installed distribution are damaged ({cause}): give the folder "
            "of the model"
        ) from error


def _installed(entries: list[EntryPoint]) -> Path:
    """Returns the folder of the one model that has the name of ``entries``."""
    first, *others = entries
    if others:
        names = " and ".join(sorted(map(_distribution, entries)))
        raise Error(
            f"{names} both have a model {first.name}: uninstall one of them, or give the folder of "
            "the model"
        )
    folders = map(Path, _places(first.value))
    folder = next(filter(_has_model, folders), None)
    if folder is None:
        raise Error(
            f"the model {first.name} of {_distribution(first)} is incomplete: no package "
            f"{first.value} with a {CONFIG} is installed; install it again"
        )
    return folder


def _distribution(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "a distribution"


def _places(package: str) -> Any:
    """Returns the folders of a package; none if it cannot be found."""
    try:
        spec = find_spec(package)
    except Exception:  # the name is none, or a package that contains it fails
        spec = None
    return (spec and spec.submodule_search_locations) or ()
