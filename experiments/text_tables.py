"""Tables as text: Markdown, or JSON in their place."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nq.commands import terminal


def markdown(*rows: Sequence[str]) -> str:
    """Returns a Markdown table; the first row is its head.

    >>> print(markdown(("a", "b"), ("1", "2")), end="")
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = [f"| {' | '.join(cells)} |\n" for cells in rows]
    return "".join([lines[0], f"|{'---|' * len(rows[0])}\n", *lines[1:]])


def show(
    result: Mapping[str, Any], table: Callable[[Mapping[str, Any]], str], args: argparse.Namespace
) -> int:
    """Prints a result as its table, or with ``--json`` as an object; returns the exit code 0."""
    if args.json:
        terminal.print_json(result)
    else:
        print(table(result), end="")
    return 0
