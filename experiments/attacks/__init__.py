"""What strangers and accidents do to ``nq``: mutated records, kills."""

import argparse
import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One attack on a target, whether it ended as it should, and details as text."""

    attack: str
    target: str
    is_right: bool
    text: str
    seconds: float = 0.0


def chosen(args: argparse.Namespace, names: Iterable[str]) -> list[str]:
    """Returns the names that match a pattern of ``--only``, or all without it."""
    patterns = args.only or ["*"]
    return [n for n in names if any(fnmatch.fnmatch(n, p) for p in patterns)]
