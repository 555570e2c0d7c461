"""The processes that a test has started, found by what runs in them."""

from __future__ import annotations

import contextlib

import psutil


def children(word: str) -> list[psutil.Process]:
    """Returns the child processes that have a word in their command line."""
    return [process for process in psutil.Process().children() if _has(process, word)]


def _has(process: psutil.Process, word: str) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):  # or it has ended and nobody has asked how
        return word in " ".join(process.cmdline())
    return False
