"""The messages between the process of a pool and those of its instances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nq.inference.load import ScorerSpec
from nq.inference.scorer import Counters, Rows
from nq.records import Columns, Example


@dataclass(frozen=True, eq=False)
class Start:
    """The first message to an instance.

    Args:
        spec: of its scorer.
        log_level: the lowest level of messages that are of use.
    """

    spec: ScorerSpec
    log_level: int


@dataclass(frozen=True, eq=False)
class Score:
    """What an instance is to score; see ``Scorer.scores``."""

    rows: Rows
    examples: Sequence[Example]


@dataclass(frozen=True)
class Ready:
    """An instance has loaded its model.

    Args:
        device, precision, batch_size, part_batches: of its scorer; see ``Scorer``.
    """

    device: str
    precision: str
    batch_size: int
    part_batches: int


@dataclass(frozen=True)
class Windows:
    """An instance has completed so many windows of what it scores, all in all."""

    completed: int


@dataclass(frozen=True)
class LogLine:
    """A line for the log of the process of the pool."""

    name: str
    level: int
    text: str


@dataclass(frozen=True, eq=False)
class Scored:
    """What an instance has scored.

    Args:
        columns: see ``Scorer.scores``.
        counters: what was done for them.
        threads_elsewhere: threads of the instance that may run on cores of others too.
    """

    columns: Columns
    counters: Counters
    threads_elsewhere: int


@dataclass(frozen=True)
class Failure:
    """An exception that an instance has raised.

    Args:
        kind: its class, or the nearest base class that is built in or of ``nq.errors``.
        text: the message.
        traceback: for the log.
    """

    kind: type[Exception]
    text: str
    traceback: str

    def exception(self) -> Exception:
        """Returns an equal exception, with the traceback as a note."""
        error = self.kind(self.text)
        error.add_note(f"in an instance:\n{self.traceback}")
        return error


Answer = Ready | Windows | LogLine | Scored | Failure
"""What an instance sends."""
