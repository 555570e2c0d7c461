"""Names in the form that MLflow accepts, and the tags of every run."""

from __future__ import annotations

import contextlib
import getpass
import importlib.metadata
import platform
import posixpath
import re
import subprocess
import zlib
from pathlib import Path

COLORS = (  # Tableau 10: easy to tell apart
    *("#4e79a7", "#f28e2b", "#e15759", "#76b7b2", "#59a14f"),
    *("#edc948", "#b07aa1", "#ff9da7", "#9c755f", "#bab0ac"),
)


def safe_name(name: str) -> str:
    """Returns a name that MLflow accepts for a metric, param or tag; most names are unchanged.

    >>> safe_name("long-recall-at-precision>=0.5")
    'long-recall-at-precision-ge-0.5'
    """
    for sign, word in ((">=", "ge"), ("<=", "le"), (">", "gt"), ("<", "lt"), ("@", "at")):
        name = name.replace(sign, f"-{word}-")
    name = re.sub(r"[^\w\-. :/]", "_", name)[:250].lstrip("./")
    # MLflow refuses names such as "a//b", "./a" and "../a", which change when read as paths
    parts = [part for part in name.split("/") if part not in ("", ".", "..")]
    return posixpath.join(*parts) if parts else "_"


def color(profile: str) -> str:
    """Returns the color of a profile's runs; the order of the profile's parts does not matter.

    >>> color("xla+mixed") == color("mixed+xla") != color("baseline")
    True
    """
    key = "+".join(sorted(profile.split("+")))
    seed = 16  # gives the eight profiles eight colors
    return COLORS[zlib.crc32(key.encode(), seed) % len(COLORS)]


def run_tags(source: str, profile: str | None) -> dict[str, str]:
    """Returns the tags of every run: command, color, commit, machine, user and versions."""
    tags = {"mlflow.source.name": source, "mlflow.source.type": "LOCAL"}
    tags |= {"host": platform.node(), "version.python": platform.python_version()}
    for package in ("tensorflow-cpu", "tensorflow", "keras", "numpy", "apache-beam", "mlflow"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            name = package.removesuffix("-cpu").removeprefix("apache-")
            tags[f"version.{name}"] = importlib.metadata.version(package)
    with contextlib.suppress(Exception):  # a user without a name, as in some containers
        tags["mlflow.user"] = getpass.getuser()
    if profile:
        tags["mlflow.runColor"] = color(profile)
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        _git("ls-files", "--error-unmatch", Path(__file__).name)  # fails for an installed package
        commit = _git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
        tags |= {"git_commit": commit, "mlflow.source.git.commit": commit.removesuffix("-dirty")}
    return tags


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    output = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout
    return output.strip()
