"""Makes windows with Beam, where workers or options of Beam are given."""

import glob
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nq import extras
from nq.errors import Error
from nq.preprocess.prepared import Request
from nq.preprocess.shards import StoredExample
from nq.records import DeadLetter
from nq.text import visible


@dataclass(frozen=True)
class BeamWindows:
    """Makes the windows of a request by workers of Beam; Beam is imported when they are made."""

    workers: int | None
    options: tuple[str, ...]

    def __call__(self, request: Request, part: Path) -> Iterator[StoredExample | DeadLetter]:
        if glob.escape(str(part)) != visible(str(part)):
            problem = f"Beam takes *, ? and [ in {part.parent} for patterns, and refuses odd bytes"
            raise Error(f"{problem}: give another folder")
        from nq.beam.pipelines import made_windows

        return made_windows(request, part, self.workers, self.options)


def by_workers(workers: int | None, options: Sequence[str] = ()) -> BeamWindows | None:
    """Returns what makes windows with Beam; ``None`` for one worker and no options, without it."""
    if not options and (workers or 1) == 1:
        return None
    extras.require("beam")
    return BeamWindows(workers, tuple(options))
