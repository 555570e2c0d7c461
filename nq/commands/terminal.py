"""Manners that all commands share.

Results go to stdout, logs and bars to stderr. Exit codes: 0 done, 1 failed, 2 wrong usage,
130 interrupted. What a person can cause is told in one line, without a traceback. Nothing
heavy is imported here, so that ``--help`` and usage errors are instant.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import sys
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar, get_type_hints

from nq.config import Settings
from nq.errors import Error
from nq.tracking import DEFAULT_EXPERIMENT

FAILED, USAGE, INTERRUPTED = 1, 2, 130
_USER_ERRORS = (OSError, ValueError, ArithmeticError, ImportError, MemoryError, Error)
_METAVARS = {int: "N", float: "X", str: "TEXT"}

S = TypeVar("S", bound=Settings)


class UsageError(ValueError):
    """Arguments that do not fit together; ends the command with exit code 2."""


def add_settings(
    parser: argparse._ActionsContainer,
    cls: type[Settings],
    only: Collection[str] | None = None,
    exclude: Collection[str] = (),
    show_default: bool = True,
) -> None:
    """Adds an option for each field of ``cls``; ``settings`` reads them back.

    Args:
        parser: a parser or a group of one.
        cls: a settings dataclass made with ``config.option``.
        only: the names of the fields to add, if not all.
        exclude: the names of fields to leave out.
        show_default: whether the help ends in the field's default.
    """
    hints = get_type_hints(cls)
    for f in fields(cls):  # type: ignore[arg-type]
        if f.name in exclude or (only is not None and f.name not in only):
            continue
        if "help" not in f.metadata:  # settings within settings have no option
            continue
        shown = f" (default: {f.default})" if show_default else ""
        choices = f.metadata.get("choices")
        parser.add_argument(
            f"--{f.name.replace('_', '-')}",
            type=hints[f.name],
            choices=choices,
            metavar=None if choices else _METAVARS[hints[f.name]],
            help=(f.metadata["help"] + shown).replace("%", "%%"),
        )


def settings(base: type[S] | S, args: argparse.Namespace) -> S:
    """The settings that ``args`` ask for; what was not given is as in ``base``.

    Raises:
        UsageError: a value that the settings refuse.
    """
    names = [f.name for f in fields(base)]  # type: ignore[arg-type]
    given = {n: getattr(args, n) for n in names if getattr(args, n, None) is not None}
    try:
        return base(**given) if isinstance(base, type) else replace(base, **given)  # type: ignore[type-var]
    except ValueError as error:
        raise UsageError(str(error)) from error


def positive(text: str) -> int:
    """An argument type: a whole number from 1 on."""
    return count(text, least=1)


def count(text: str, least: int = 0) -> int:
    """An argument type: a whole number from 0 on, or from ``least``."""
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, got {text!r}") from None
    if value < least:
        raise argparse.ArgumentTypeError(f"must be at least {least}, got {value}")
    return value


def add_common(parser: argparse._ActionsContainer) -> None:
    """Adds the options that every command has."""
    parser.add_argument(
        "--json", action="store_true", help="print the result as one JSON object on stdout"
    )
    parser.add_argument(
        "--verbose", action="store_true", help="log more, and show the traceback of an error"
    )


def add_tracking(parser: argparse.ArgumentParser) -> None:
    """Adds the options that say where a run is recorded."""
    group = parser.add_argument_group("tracking")
    group.add_argument(
        "--tracking-uri", metavar="U", help="MLflow store or server; default: sqlite:///mlflow.db"
    )
    group.add_argument(
        "--experiment",
        metavar="E",
        default=DEFAULT_EXPERIMENT,
        help=f"MLflow experiment (default: {DEFAULT_EXPERIMENT})",
    )
    group.add_argument("--no-track", action="store_true", help="do not record the run")


def run(
    command: Callable[[argparse.Namespace], int],
    parser: argparse.ArgumentParser,
    argv: Sequence[str] | None = None,
    pass_on: bool = False,
) -> int:
    """Parses the arguments and runs ``command`` on them; returns the exit code.

    Args:
        command: gets the parsed arguments; what it returns is the exit code.
        parser: the command's parser, with the options of ``add_common``.
        argv: the arguments, by default those of the process.
        pass_on: keep options that the parser does not know as ``args.unknown``.
    """
    verbose = False
    _reopen_closed()
    try:
        args = parser.parse_args(argv) if not pass_on else _parse_known(parser, argv)
        verbose = args.verbose
        log_to_stderr(verbose)
        code = _command_code(command, parser, args)
        sys.stdout.flush()
        return code
    except SystemExit as exit:
        return exit.code if isinstance(exit.code, int) else FAILED
    except KeyboardInterrupt:
        print("nq: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except _USER_ERRORS as error:
        if verbose:
            traceback.print_exc()
        print(f"nq: error: {explain(error)}", file=sys.stderr)
        return FAILED


def _reopen_closed() -> None:
    """Sends to nowhere what is written to a stream that was closed (``>&-``).

    Otherwise the next file that is opened would take its number, and what C++ writes to it.
    """
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8", closefd=False))


def _parse_known(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    args, unknown = parser.parse_known_args(argv)
    args.unknown = unknown
    return args


def _command_code(
    command: Callable[[argparse.Namespace], int],
    parser: argparse.ArgumentParser,
    args: argparse.Namespace,
) -> int:
    try:
        return command(args)
    except UsageError as error:
        parser.error(str(error))


def explain(error: BaseException) -> str:
    """An error in one line, as a person wants to read it.

    >>> explain(FileNotFoundError(2, "No such file or directory", "dev.jsonl"))
    'dev.jsonl: No such file or directory'
    """
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, MemoryError):
        return "out of memory"
    text = " ".join(str(error).split()) or type(error).__name__
    return f"{text}: run pip install 'nq[cpu]'" if isinstance(error, ImportError) else text


def log_to_stderr(verbose: bool = False) -> None:
    """Sends logs to stderr: ours from INFO on, of other libraries only warnings."""
    root = logging.getLogger()
    if not any(isinstance(handler, _StderrHandler) for handler in root.handlers):
        root.addHandler(_StderrHandler())
    root.setLevel(logging.INFO if verbose else logging.WARNING)
    logging.getLogger("nq").setLevel(logging.DEBUG if verbose else logging.INFO)


class _StderrHandler(logging.Handler):
    """Writes to what ``sys.stderr`` is at that time, around a progress bar if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        ours = record.name.split(".")[0] == "nq"
        level = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        line = f"{'nq' if ours else record.name}: {level}{self.format(record)}"
        tqdm = sys.modules.get("tqdm")
        if tqdm is not None:
            tqdm.tqdm.write(line, file=sys.stderr)
        else:
            print(line, file=sys.stderr)


def print_json(result: Mapping[str, Any]) -> None:
    """One JSON object in one line on stdout."""
    print(json.dumps(result, ensure_ascii=False))


def print_result(result: Mapping[str, Any], as_json: bool) -> None:
    """A result on stdout: one JSON object, or a line for each entry."""
    if as_json:
        print_json(result)
        return
    width = max(map(len, result), default=0)
    for name, value in result.items():
        shown = f"{value:.4g}" if isinstance(value, float) else value
        print(f"{name:<{width}}  {shown}")


@contextlib.contextmanager
def bar(label: str, unit: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr, silent in a pipe; yields what to call with (new, total)."""
    from tqdm import tqdm

    with tqdm(desc=label, unit=f" {unit}", disable=None) as shown:

        def update(new: int, total: int) -> None:
            shown.total = total
            shown.update(new)

        yield update
