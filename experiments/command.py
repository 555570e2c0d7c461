"""What the commands of the studies share: how they start, and how they print a result."""

import argparse
import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from nq import extras
from nq.commands import arguments, terminal
from nq.errors import Error
from nq.inference.profile import Profile

EXTRA_OF = {name: extra for extra, names in extras.EXTRAS.items() for name in names}
"""Maps packages to our extra that installs them; others are in the extra ``peers``."""


KINDS: dict[type[Any], dict[str, Any]] = {
    int: {"type": arguments.positive, "metavar": "N"},
    type(None): {"type": arguments.positive, "metavar": "N"},
    float: {"type": float, "metavar": "X"},
    Path: {"type": Path, "metavar": "DIR"},
    Profile: {"type": arguments.profile, "metavar": "P"},
}
"""Maps types of defaults to what options of this kind have in common."""


class Main(Protocol):
    """Runs a command with arguments, by default those of the process; returns its exit code."""

    def __call__(self, argv: Sequence[str] | None = None) -> int: ...


def main(
    function: Callable[[argparse.Namespace], int],
    options: Callable[[terminal.Parser], None] = lambda parser: None,
) -> Main:
    """Returns the function that parses arguments and runs a command with them.

    Args:
        function: runs the command. The docstring of its module is in the help.
        options: adds the options besides those that all commands have.
    """
    module = sys.modules[function.__module__]

    def run(argv: Sequence[str] | None = None) -> int:
        name = module.__spec__.name if module.__spec__ else module.__name__
        # The lines of a paragraph become one; examples and items keep theirs.
        text = re.sub(r"(?<=\S)\n(?!\n|-| {4})\s*", " ", f"{module.__doc__}").replace("``", "")
        parser = terminal.Parser(f"python -m {name.removesuffix('.__main__')}", text)
        options(parser)
        arguments.add_common(parser)
        return terminal.run(function, parser, argv)

    return run


def missing(packages: Iterable[str]) -> str:
    """Returns which packages are not installed and how to install them; empty if all are."""
    names = [name for name in packages if importlib.util.find_spec(name) is None]
    needed = dict.fromkeys(EXTRA_OF.get(name, "peers") for name in names)
    return f"{' and '.join(names)} not installed: {extras.install(*needed)}" if names else ""


def run_program(argv: Sequence[str]) -> None:
    """Runs a program; an ``Error`` has the first line of what it says of a failure."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line]
        cause = (lines or done.stderr.splitlines() or [f"exit code {done.returncode}"])[0]
        raise Error(f"{Path(argv[0]).name} failed: {cause[:500]}")


def add_option(
    parser: argparse._ActionsContainer, name: str, default: Any, text: str, **more: Any
) -> None:
    """Adds an option of the kind of its default, which is in the help; ``None`` is of a number."""
    kind = next(options for known, options in KINDS.items() if isinstance(default, known))
    text += "" if default is None else f" (default: {default})"
    parser.add_argument(f"--{name}", default=default, help=text, **{**kind, **more})


def add_list(
    parser: argparse.ArgumentParser,
    name: str,
    default: Iterable[Any],
    choices: Iterable[str] | None = None,
) -> None:
    """Adds an option for several names, such as shapes, or without ``choices`` for numbers."""
    values, metavar = list(default), name[0].upper()
    more: dict[str, Any] = {"choices": list(choices)} if choices else {"type": arguments.positive}
    text = f"default: {' '.join(map(str, values))}"
    parser.add_argument(f"--{name}", nargs="+", default=values, metavar=metavar, help=text, **more)


def show(
    result: Mapping[str, Any], table: Callable[[Mapping[str, Any]], str], args: argparse.Namespace
) -> int:
    """Prints a result as its table, or with ``--json`` as an object; returns the exit code 0."""
    if args.json:
        terminal.print_json(result)
    else:
        print(table(result), end="")
    return 0


def print_result(result: Mapping[str, Any], as_json: bool) -> None:
    """Prints a result on stdout: one JSON object, or a line for each entry."""
    if as_json:
        terminal.print_json(result)
        return
    width = max(map(len, result), default=0)
    for name, value in result.items():
        shown = f"{value:.4g}" if isinstance(value, float) else value
        print(f"{name:<{width}}  {shown}")
