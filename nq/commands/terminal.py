"""The terminal side of all commands: parsing, exit codes, errors, logs, results and progress.

Results go to stdout, logs and progress to stderr. Exit codes: 0 done, 1 failed, 2 wrong usage,
130 interrupted, 143 terminated. Errors that a user can correct are printed in one line without a
traceback.
Nothing heavy is imported here, so that ``--help`` and usage errors are instant.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from nq import interruption
from nq.commands.parser import USAGE, Parser, error_line
from nq.errors import Error
from nq.extras import install
from nq.text import visible

log = logging.getLogger(__name__)

FAILED = 1
REPORT_S = 10.0
"""Seconds between two lines about the progress of a command whose stderr is no terminal."""
_USER_ERRORS = (OSError, ValueError, ArithmeticError, ImportError, MemoryError, Error)


class UsageError(ValueError):
    """Arguments that do not fit together; the command exits with code 2."""


def command(
    parser: Callable[[], Parser],
    function: Callable[[argparse.Namespace], int],
    pass_on: bool = False,
) -> Callable[..., int]:
    """Returns the ``main`` of a command: it takes the arguments and returns the exit code.

    The arguments are those of the process by default; the others are as for ``run``.
    """

    def main(argv: Sequence[str] | None = None) -> int:
        return run(function, parser(), argv, pass_on)

    return main


def run(
    function: Callable[[argparse.Namespace], int],
    parser: argparse.ArgumentParser,
    argv: Sequence[str] | None = None,
    pass_on: bool = False,
) -> int:
    """Parses the arguments and runs ``function`` on them; returns the exit code.

    Args:
        function: gets the parsed arguments and returns the exit code.
        parser: the command's parser, with the options of ``arguments.add_common``.
        argv: the arguments, by default those of the process.
        pass_on: keep options that the parser does not know as ``args.unknown``.
    """
    prepare_streams()
    with interruption.limited() as interrupted:
        if getattr(parser, "resumable", False):
            interrupted.message = interruption.RESUME_MESSAGE
        try:
            if pass_on:
                args, unknown = parser.parse_known_args(argv)
                args.unknown = unknown
            else:
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
        return visible(f"{error.filename}: {error.strerror}")
    if isinstance(error, MemoryError):
        return "out of memory"
    text = " ".join(str(error).split()) or type(error).__name__
    advice = f": {install('cpu')}" if isinstance(error, ImportError) else ""
    return visible(text) + advice


class _Formatter(logging.Formatter):
    """Starts a line with the program, or the library that logs, and the level of warnings."""

    def format(self, record: logging.LogRecord) -> str:
        name = "nq" if record.name.split(".")[0] == "nq" else record.name
        level = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        return visible(f"{name}: {level}{super().format(record)}", lines=name != "nq")


class _StderrHandler(logging.StreamHandler[Any]):
    """Writes to the ``sys.stderr`` of the moment."""

    @property
    def stream(self) -> Any:
        return sys.stderr

    @stream.setter
    def stream(self, value: Any) -> None:
        pass


def log_to_stderr(verbose: bool = False) -> None:
    """Sends logs to stderr: ours from INFO on, those of other libraries from WARNING on."""
    root = logging.getLogger()
    if not any(isinstance(handler, _StderrHandler) for handler in root.handlers):
        handler = _StderrHandler()
        handler.setFormatter(_Formatter())
        root.addHandler(handler)
    root.setLevel(logging.INFO if verbose else logging.WARNING)
    logging.getLogger("nq").setLevel(logging.DEBUG if verbose else logging.INFO)


def print_json(result: Mapping[str, Any]) -> None:
    """Prints one JSON object in one line on stdout, escaped where its encoding lacks characters."""
    text = visible(json.dumps(result, ensure_ascii=False))
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(result)
    print(text)


def print_result(result: Mapping[str, Any], as_json: bool) -> None:
    """Prints a result on stdout: one JSON object, or a line for each entry."""
    if as_json:
        print_json(result)
        return
    width = max(map(len, result), default=0)
    for name, value in result.items():
        shown = f"{value:.4g}" if isinstance(value, float) else value
        print(f"{name:<{width}}  {shown}")


class ProgressBar:
    """Shows the progress as a bar on stderr; in a pipe as a line every ``REPORT_S`` seconds.

    It is a context manager, and shows the label before anything is counted.

    Args:
        label: what is done with the units.
        unit: what is counted, in the plural.
    """

    def __init__(self, label: str, unit: str) -> None:
        from tqdm import tqdm

        self._label = self._shown = label
        self._unit, self._started = f" {unit}", time.monotonic()
        self._done = self._total = 0
        self._bar = tqdm(desc=label, unit=self._unit, disable=None)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="nq-progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()
        self._bar.set_description_str(self._label, refresh=False)
        self._bar.close()

    def __call__(self, new: int, total: int) -> None:
        """Adds new units, of a total as far as it is known."""
        if not self._done:  # so that the speed is that of the units alone
            self._started = time.monotonic()
            self._bar.unpause()
        self._done, self._total = self._done + new, total
        self._bar.total = total
        self._bar.update(new)

    def phase(self, text: str) -> None:
        """Shows the present phase in place of the label."""
        self._shown = text
        self._bar.set_description_str(text, refresh=False)

    def _beat(self) -> None:
        """Refreshes the bar every second; without one logs a line every ``REPORT_S`` seconds."""
        while not self._ended.wait(REPORT_S if self._bar.disable else 1.0):
            if not self._bar.disable:
                self._bar.refresh()
                continue
            elapsed = time.monotonic() - self._started
            line = f"{self._shown}, {elapsed:.0f} s"
            if self._done:
                line = self._bar.format_meter(
                    self._done, self._total, elapsed, 0, prefix=self._shown, unit=self._unit
                )
            log.info("%s", line)
