"""What the commands of the studies share: how they start, and how they print a result."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from nq.commands import terminal


class Main(Protocol):
    """Runs a command with arguments, by default those of the process; returns its exit code."""

    def __call__(self, argv: Sequence[str] | None = None) -> int: ...


def main(
    function: Callable[[argparse.Namespace], int], parser: Callable[[], argparse.ArgumentParser]
) -> Main:
    """Returns the function that parses arguments and runs a command with them."""

    def run(argv: Sequence[str] | None = None) -> int:
        return terminal.run(function, parser(), argv)

    return run


def show(
    result: Mapping[str, Any], table: Callable[[Mapping[str, Any]], str], args: argparse.Namespace
) -> int:
    """Prints a result as its table, or with ``--json`` as an object; returns the exit code 0."""
    if args.json:
        terminal.print_json(result)
    else:
        print(table(result), end="")
    return 0
