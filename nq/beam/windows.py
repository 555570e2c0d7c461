"""Makes windows with Beam, where workers or options of Beam are given."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from nq import extras
from nq.preprocess.prepared import Preprocess, Request
from nq.preprocess.shards import StoredExample
from nq.records import DeadLetter


def by_workers(workers: int | None, options: Sequence[str] = ()) -> Preprocess | None:
    """Returns a function that makes the windows of a request by workers of Beam.

    ``None`` for one worker without options, which needs no Beam. The function imports Beam when it
    is called.
    """
    if not options and (workers or 1) == 1:
        return None
    extras.require("beam")
    return partial(_preprocess, workers=workers, options=tuple(options))


def _preprocess(
    request: Request, part: Path, workers: int | None, options: Sequence[str]
) -> Iterator[StoredExample | DeadLetter]:
    from nq.beam.pipelines import preprocess

    return preprocess(request, part, workers, options)
