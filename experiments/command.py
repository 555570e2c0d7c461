"""What the commands of the studies share: how they start, options, tables, printing a result."""

import argparse
import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from experiments import Values
from nq import extras
from nq.bundle import READER
from nq.commands import arguments, terminal
from nq.errors import Error
from nq.inference.profile import Profile
from nq.model.folder import ModelFolder
from nq.model.model import Model
from nq.records import ExampleId

EXTRA_OF = {name: extra for extra, names in extras.EXTRAS.items() for name in names}
"""Maps packages to our extra that installs them; others are in the extra ``peers``."""
KINDS: dict[type[Any], Values] = {
    int: {"type": arguments.positive, "metavar": "N"},
    type(None): {"type": arguments.positive, "metavar": "N"},
    float: {"type": float, "metavar": "X"},
    Path: {"type": Path, "metavar": "DIR"},
    Profile: {"type": arguments.profile, "metavar": "P"},
}
"""Maps types of defaults to what options of this kind have in common."""
REMAINDERS = {"even": 0, "odd": 1}
"""Maps the halves of dev to the remainders of the ids of their examples."""


def called(
    function: Callable[[argparse.Namespace], int],
    options: Callable[[terminal.Parser], None] = lambda parser: None,
) -> Callable[..., int]:
    """Returns the main function of a command, which parses ``argv`` and calls ``function``.

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


def main(
    function: Callable[[argparse.Namespace], int],
    options: Callable[[terminal.Parser], None] = lambda parser: None,
) -> Callable[..., int]:
    """Returns the main function of a command, as ``called``.

    Where the module of ``function`` is run as a program, it is called here, and the program ends.
    """
    run = called(function, options)
    if function.__module__ == "__main__":
        raise SystemExit(run())
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
    """Adds an option of the kind of its default, which is in the help; ``None`` is of a number.

    Without a default, but with the type of one, the option is required.
    """
    if isinstance(default, type):
        parser.add_argument(
            f"--{name}",
            required=True,
            help=text,
            **{**KINDS[default], **more},
        )
        return
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
    more: Values = {"choices": list(choices)} if choices else {"type": arguments.positive}
    text = f"default: {' '.join(map(str, values))}"
    parser.add_argument(
        f"--{name}",
        nargs="+",
        default=values,
        metavar=metavar,
        help=text,
        **more,
    )


def add_answering(
    parser: argparse.ArgumentParser,
    note: str = "",
    add_model: Callable[[argparse.ArgumentParser], None] = arguments.add_model,
) -> None:
    """Adds the options that say what is answered: data, model, profile and limit."""
    parser.epilog = arguments.PROFILES_HELP
    arguments.add_data(parser, note=note)
    add_model(parser)
    arguments.add_profile(parser)
    arguments.add_limit(parser)


def add_one_model(parser: argparse.ArgumentParser) -> None:
    """Adds ``--model`` of a study of one model, which ``one_model`` opens."""
    text = f"folder or name of one model (default: {READER})"
    parser.add_argument("--model", default=READER, metavar="MODEL", help=text)


def one_model(args: argparse.Namespace) -> Model:
    """Returns the model of ``add_one_model``; ``ValueError`` if these are two models."""
    return Model.open(ModelFolder.open(args.model))


def add_half(parser: argparse.ArgumentParser, default: str) -> None:
    """Adds ``--half``: decisions are fitted to the even half of dev and measured on the odd one."""
    parser.add_argument(
        "--half",
        choices=(*REMAINDERS, "all"),
        default=default,
        help=f"examples that count, by their ids; all are scored (default: {default})",
    )


def in_half(example_id: ExampleId, half: str) -> bool:
    """Returns whether an example belongs to a half; ids that are not numbers are in neither.

    >>> in_half(4, "even"), in_half(4, "odd"), in_half("a", "odd"), in_half("a", "all")
    (True, False, False, True)
    """
    return half == "all" or (isinstance(example_id, int) and example_id % 2 == REMAINDERS[half])


def markdown(*rows: Sequence[str]) -> str:
    """Returns a Markdown table; the first row is its head.

    >>> print(markdown(("a", "b"), ("1", "2")), end="")
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = [f"| {' | '.join(cells)} |\n" for cells in rows]
    return "".join([lines[0], f"|{'---|' * len(rows[0])}\n", *lines[1:]])


def entries(result: Values) -> str:
    """Returns a line for each entry of a result."""
    width = max(map(len, result), default=0)
    shown = {n: f"{x:.4g}" if isinstance(x, float) else x for n, x in result.items()}
    return "".join(f"{name:<{width}}  {value}\n" for name, value in shown.items())


def show(
    result: Values,
    args: argparse.Namespace,
    table: Callable[[Values], str] = entries,
) -> int:
    """Prints a result as its table, or with ``--json`` as an object; returns the exit code 0."""
    if args.json:
        terminal.print_json(result)
    else:
        print(table(result), end="")
    return 0
