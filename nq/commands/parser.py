"""The argument parser of the commands: errors in one line, suggestions, examples in the help."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Sequence
from typing import Any, NoReturn

from nq import __version__
from nq.text import did_you_mean, visible

USAGE = 2
HELP_WIDTH = 80


class Parser(argparse.ArgumentParser):
    """A parser with ``--version``, whose help ends with examples.

    Args:
        prog: the command.
        description: what it does; wrapped.
        examples: command lines.
        notes: text below the options, kept as it is.
        resumable: whether the same command continues after an interruption.
        intermixed: whether options may stand between positional arguments.
        options: of ``argparse.ArgumentParser``.
    """

    def __init__(
        self,
        prog: str,
        description: str,
        examples: Sequence[str] = (),
        notes: str = "",
        resumable: bool = False,
        intermixed: bool = False,
        **options: Any,
    ) -> None:
        lines = "".join(f"\n  {example}" for example in examples)
        super().__init__(
            prog=prog,
            description=textwrap.fill(description, HELP_WIDTH),
            epilog="\n\n".join(filter(None, (notes, lines and f"examples:{lines}"))),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            **options,
        )
        self.examples, self.resumable = tuple(examples), resumable
        self.intermixed = intermixed
        self.add_argument("--version", action="version", version=__version__)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parses arguments that must all be known."""
        if self.intermixed:
            values, unknown = self.parse_known_intermixed_args(args, namespace)
        else:
            values, unknown = self.parse_known_args(args, namespace)
        if unknown:
            self.error(self.unknown(unknown))
        return values

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
    return f"{parser.prog}: error: {visible(message)}; {parser.prog} --help explains the options"
