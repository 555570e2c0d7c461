"""What a run can write besides ``predictions.json``: one file a format beside this one.

A format has a ``NAME``, the name of its ``FILE``, the ``HEADER`` of it, and ``encode``, which
gives the bytes of one example.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from nq.files import atomic_write
from nq.formats import kaggle, nbest
from nq.records import Example, Prediction, Weighed

OFFICIAL = "official"
FORMATS = {kaggle.NAME: kaggle, nbest.NAME: nbest}

Write = Callable[[Example, Prediction, Weighed | None], None]


def parse(text: str) -> tuple[str, ...]:
    """The names of formats in ``text``, with commas between them; the official one is implied.

    >>> parse("official,nbest,kaggle"), parse("")
    (('kaggle', 'nbest'), ())

    Raises:
        ValueError: an unknown name.
    """
    names = {name.strip() for name in text.split(",")} - {"", OFFICIAL}
    unknown = sorted(names - set(FORMATS))
    if unknown:
        known = ", ".join((OFFICIAL, *FORMATS))
        raise ValueError(f"unknown format {', '.join(unknown)}; known are {known}")
    return tuple(name for name in FORMATS if name in names)


@contextlib.contextmanager
def write(folder: Path, names: Sequence[str]) -> Iterator[Write]:
    """Yields what takes in one answered example after the other.

    At the end each file is there whole; those of formats that were not asked for are removed,
    so that nothing of an older run stands beside the new predictions.
    """
    for name, kind in FORMATS.items():
        if name not in names:
            (folder / kind.FILE).unlink(missing_ok=True)
    with contextlib.ExitStack() as stack:
        files = [
            (FORMATS[name], stack.enter_context(atomic_write(folder / FORMATS[name].FILE)))
            for name in names
        ]
        for kind, file in files:
            file.write(kind.HEADER)

        def add(example: Example, prediction: Prediction, weighed: Weighed | None) -> None:
            for kind, file in files:
                file.write(kind.encode(example, prediction, weighed))

        yield add
