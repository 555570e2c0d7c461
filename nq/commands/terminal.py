"""The terminal side of all commands: parsing, exit codes, errors, logs and results.

Results go to stdout, logs to stderr. Exit codes: 0 done, 1 failed, 2 wrong usage,
130 interrupted, 143 terminated. Errors that a user can correct are printed in one line without a
traceback.
Nothing heavy is imported here, so that ``--help`` and usage errors are instant.
"""

import argparse
import contextlib
import errno
import io
import json
import logging
import os
import re
import shutil
import sys
import textwrap
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from nq import __version__, interruption
from nq.errors import Error
from nq.extras import install
from nq.text import did_you_mean, visible, without_password

log = logging.getLogger(__name__)

FAILED = 1
USAGE = 2
HELP_WIDTH = 80
_USER_ERRORS = (OSError, ValueError, ArithmeticError, ImportError, MemoryError, Error)


class UsageError(ValueError):
    """Arguments that do not fit together; the command exits with code 2."""


class HelpFormatter(argparse.HelpFormatter):
    """Wraps help at ``HELP_WIDTH`` columns, or at a narrower terminal's width, between words.

    The usage names required arguments only. Each line of a longer text is wrapped on its own, and
    continues below the second column of a table.
    """

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=min(HELP_WIDTH, shutil.get_terminal_size().columns))

    def _format_usage(self, usage: Any, actions: Any, groups: Any, prefix: Any) -> str:
        required = [action for action in actions if action.required or not action.option_strings]
        text = super()._format_usage(usage, required, groups, prefix)
        return text if usage else f"{text.rstrip()} [options]\n\n"

    def _split_lines(self, text: str, width: int) -> list[str]:
        start = re.match(r" +\S+ {2,}| *", text)
        indent = " " * len(start[0]) if start else ""
        return textwrap.wrap(
            text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join("\n".join(self._split_lines(line, width)) for line in text.splitlines())


class Parser(argparse.ArgumentParser):
    """A parser with ``--version``, suggestions for unknown options, and examples in its help.

    Args:
        notes: text below the options.
        resumable: whether the same command continues after an interruption.
        pass_on: keep options that the parser does not know as ``args.unknown``.
    """

    def __init__(
        self,
        prog: str,
        description: str,
        examples: Sequence[str] = (),
        notes: str = "",
        resumable: bool = False,
        pass_on: bool = False,
        **options: Any,
    ) -> None:
        lines = "".join(f"\n  {example}" for example in examples)
        super().__init__(
            prog=prog,
            description=description,
            epilog="\n\n".join(filter(None, (notes, lines and f"examples:{lines}"))),
            formatter_class=HelpFormatter,
            **options,
        )
        self.examples = tuple(examples)
        self.resumable = resumable
        self.pass_on = pass_on
        self.add_argument("--version", action="version", version=__version__)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parses arguments, which must all be known if they are not passed on."""
        values, unknown = self.parse_known_intermixed_args(args, namespace)
        if self.pass_on:
            values.unknown = unknown
        elif unknown:
            self.error(self.unknown(unknown))
        return values

    def flag(self, name: str, help: str) -> None:
        self.add_argument(f"--{name}", action="store_true", help=help)

    def unknown(self, arguments: Sequence[str]) -> str:
        """Returns the error for unknown arguments, with the option that resembles one."""
        names = [argument.partition("=")[0] for argument in arguments if argument[:1] == "-"]
        suggestions = (did_you_mean(name, self._option_string_actions) for name in names)
        return f"unrecognized arguments: {' '.join(arguments)}{next(filter(None, suggestions), '')}"

    def error(self, message: str) -> NoReturn:
        """Prints an error of usage in one line and exits with code 2."""
        print(error_line(self, message), file=sys.stderr)
        raise SystemExit(USAGE)


def error_line(parser: argparse.ArgumentParser, message: str) -> str:
    """Returns an error of usage in one line, which names the help.

    >>> error_line(argparse.ArgumentParser(prog="nq ask"), "the question is empty")
    'nq ask: error: the question is empty; nq ask --help explains the options'
    """
    message = without_password(visible(message))
    return f"{parser.prog}: error: {message}; {parser.prog} --help explains the options"


def run(
    function: Callable[[argparse.Namespace], int], parser: Parser, argv: Sequence[str] | None = None
) -> int:
    """Parses the arguments and runs ``function`` on them; returns its exit code, or an error's.

    The parser needs the options of ``arguments.add_common``.
    """
    prepare_streams()
    with interruption.limited() as interrupted:
        if parser.resumable:
            interrupted.message = interruption.RESUME_MESSAGE
        try:
            args = parser.parse_args(argv)
            log_to_stderr(args.verbose)
            from tqdm.contrib.logging import logging_redirect_tqdm

            with logging_redirect_tqdm():  # log lines are printed above a progress bar
                code = function(args)
            sys.stdout.flush()
            if not interrupted.number:
                return code
        except BaseException as error:
            # a library may have turned the interrupt into an exception of its own
            if not (interrupted.number or isinstance(error, KeyboardInterrupt)):
                return _report(error, parser)
        interrupted.reported = True
        with contextlib.suppress(OSError):
            print(interrupted.message, file=sys.stderr)
        return interrupted.exit_code


def _report(error: BaseException, parser: argparse.ArgumentParser) -> int:
    """Prints an error that a user can cause, raises others; returns the exit code."""
    if isinstance(error, UsageError):
        print(error_line(parser, str(error)), file=sys.stderr)
        return USAGE
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else FAILED
    if isinstance(error, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    if not isinstance(error, _USER_ERRORS):
        raise error
    if isinstance(error, OSError) and error.errno == errno.ENOSPC and error.filename is None:
        error.filename = "standard output"  # writes to files name them
    if logging.getLogger("nq").isEnabledFor(logging.DEBUG):
        traceback.print_exception(error)
    print(f"nq: error: {explain(error)}", file=sys.stderr)
    return FAILED


def prepare_streams() -> None:
    """Opens streams that are closed, and lets none fail at characters that a locale lacks."""
    # A stream that was closed (``>&-``) becomes the null device. Otherwise the next file that is
    # opened gets its number, and the output of C++ code.
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_WRONLY)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8", closefd=False))
    for stream, errors in ((sys.stdout, "replace"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)


def explain(error: BaseException) -> str:
    """Returns an error in one line for the user, without control characters.

    >>> explain(FileNotFoundError(2, "No such file or directory", "dev.jsonl"))
    'dev.jsonl: No such file or directory'
    """
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        names = [f"{name}" for name in (error.filename, error.filename2) if name is not None]
        return without_password(visible(f"{' -> '.join(names)}: {error.strerror}"))
    if isinstance(error, MemoryError) or "failed to map segment" in str(error):
        return "out of memory: end other programs, or raise the limit (ulimit -v)"
    text = " ".join(str(error).split()) or type(error).__name__
    advice = f": {install('cpu')}" if isinstance(error, ImportError) else ""
    return without_password(visible(text)) + advice


class _Formatter(logging.Formatter):
    """Starts a line with the program, or the library that logs, and the level of warnings."""

    def format(self, record: logging.LogRecord) -> str:
        name = "nq" if record.name.split(".")[0] == "nq" else record.name
        level = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        text = without_password(super().format(record))
        return visible(f"{name}: {level}{text}", lines=name != "nq")


class _StderrHandler(logging.StreamHandler[Any]):
    """Writes to the present ``sys.stderr``, which tests and notebooks replace."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def log_to_stderr(verbose: bool = False) -> None:
    """Sends logs to stderr: of nq from INFO on, of other libraries from WARNING on."""
    root = logging.getLogger()
    if not any(isinstance(handler, _StderrHandler) for handler in root.handlers):
        handler = _StderrHandler()
        handler.setFormatter(_Formatter())
        root.addHandler(handler)
    root.setLevel(logging.INFO if verbose else logging.WARNING)
    logging.getLogger("huggingface_hub").propagate = False  # it has a handler of its own
    logging.getLogger("nq").setLevel(logging.DEBUG if verbose else logging.INFO)


def print_json(result: Mapping[str, Any]) -> None:
    """Prints one JSON object in one line on stdout, escaped where its encoding lacks characters."""
    text = visible(json.dumps(result, ensure_ascii=False))
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(result)
    print(text)
