"""What strangers and accidents do to ``nq``: mutated records, broken requests, kills."""

import argparse
import fnmatch
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """One attack on a target, whether it ended as it should, and details as text."""

    attack: str
    target: str
    is_right: bool
    text: str
    seconds: float = 0.0


Group = Callable[[argparse.Namespace, Path, random.Random], Iterator[Row]]
"""Makes the attacks of a group by the options of the command, in an empty folder."""


def chosen(args: argparse.Namespace, names: Iterable[str]) -> list[str]:
    """Returns the names that match a pattern of ``--only``, or all without it."""
    return [n for n in names if not args.only or any(fnmatch.fnmatch(n, p) for p in args.only)]
