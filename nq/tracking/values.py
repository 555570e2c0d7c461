"""What is written of a run: names, texts and figures that MLflow takes, the tags of every run."""

from __future__ import annotations

import contextlib
import getpass
import importlib.metadata
import math
import platform
import posixpath
import re
import subprocess
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

COLOURS = (
    *("#4e79a7", "#f28e2b", "#e15759", "#76b7b2", "#59a14f"),
    *("#edc948", "#b07aa1", "#ff9da7", "#9c755f", "#bab0ac"),
)
"""Colours that can be told apart, also beside each other (Tableau 10)."""
_COLOUR_SEED = 16  # gives the eight profiles eight colours

# MLflow's limits, in characters
_NAME_LIMIT = 250
PARAM_LIMIT = 6000
TAG_LIMIT = 8000
DIGEST_LIMIT = 12  # MLflow would take 36, but then the table of runs shows little else
DATASET_LIMIT = 500


def safe_name(name: str) -> str:
    """A name that MLflow takes for a metric, param or tag; most names stay as they are.

    >>> safe_name("long-recall-at-precision>=0.5")
    'long-recall-at-precision-ge-0.5'
    """
    for sign, word in ((">=", "ge"), ("<=", "le"), (">", "gt"), ("<", "lt"), ("@", "at")):
        name = name.replace(sign, f"-{word}-")
    name = re.sub(r"[^\w\-. :/]", "_", name)[:_NAME_LIMIT].lstrip("./")
    # "a//b", "./a" and "../a" would be other names as paths, so MLflow refuses them
    parts = [part for part in name.split("/") if part not in ("", ".", "..")]
    return posixpath.join(*parts) if parts else "_"


def colour(profile: str) -> str:
    """The colour of a profile's runs, whatever the order its parts are named in.

    >>> colour("xla+mixed") == colour("mixed+xla") != colour("baseline")
    True
    """
    key = "+".join(sorted(profile.split("+")))
    return COLOURS[zlib.crc32(key.encode(), _COLOUR_SEED) % len(COLOURS)]


def cut(text: str, limit: int) -> str:
    """A text of at most ``limit`` characters; the last one tells that it was longer."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def texts(values: Mapping[str, Any], limit: int) -> list[tuple[str, str]]:
    """Values as text, cut to ``limit`` characters, under names that MLflow takes."""
    return [(safe_name(key), cut(str(value), limit)) for key, value in values.items()]


def finite(values: Mapping[str, Any]) -> list[tuple[str, float]]:
    """The values that are numbers, under names that MLflow takes."""
    figures = []
    for key, value in values.items():
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            if math.isfinite(figure := float(value)):
                figures.append((safe_name(key), figure))
    return figures


def run_tags(source: str, profile: str | None) -> dict[str, str]:
    """What every run says about itself: command, colour, code, machine and versions."""
    tags = {
        "mlflow.source.name": source,
        "mlflow.source.type": "LOCAL",
        "host": platform.node(),
        "version.python": platform.python_version(),
    } | _versions()
    with contextlib.suppress(Exception):  # a user without a name, as in some containers
        tags["mlflow.user"] = getpass.getuser()
    if profile:
        tags["mlflow.runColor"] = colour(profile)
    if commit := _git_commit():
        tags["git_commit"] = commit
        tags["mlflow.source.git.commit"] = commit.removesuffix("-dirty")
    return tags


def _versions() -> dict[str, str]:
    """Versions of the installed packages that a result may depend on; nothing is imported."""
    versions = {}
    for package in ("tensorflow-cpu", "tensorflow", "keras", "numpy", "apache-beam", "mlflow"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            name = package.removesuffix("-cpu").removeprefix("apache-")
            versions[f"version.{name}"] = importlib.metadata.version(package)
    return versions


def _git_commit() -> str | None:
    """The commit of this code, with "-dirty" after it where files have changed since."""
    here = Path(__file__)
    tracked = _git(here.parent, "ls-files", "--error-unmatch", here.name)
    return tracked and _git(
        here.parent, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"
    )


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
