"""Options of Apache Beam, which commands pass on to it."""

from __future__ import annotations

from collections.abc import Sequence

from nq import extras
from nq.commands import terminal


def check_beam_options(options: Sequence[str]) -> list[str]:
    """Returns options that a command does not know, if they are options of Beam.

    Raises:
        UsageError: they are not, or Beam is not installed.
    """
    if extras.missing("beam"):
        raise terminal.UsageError(
            f"unrecognized arguments: {' '.join(options)}; if they are options of Apache Beam, "
            f"{extras.install('beam')}"
        )
    from nq.beam.runner import parse_options

    try:
        parse_options(options)
    except ValueError as error:
        raise terminal.UsageError(str(error)) from error
    return list(options)
