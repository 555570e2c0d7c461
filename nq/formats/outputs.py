"""Output formats besides ``predictions.json``: one module each.

A format has a ``NAME``, the name of its ``FILE``, the file's ``HEADER`` and ``FOOTER``, the
``SEPARATOR`` of examples, the number of ``ALTERNATIVES`` that it needs of an example, and
``encode``, which returns the bytes of an example.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from nq.formats import kaggle, nbest, squad_answers
from nq.records import Alternative, Example, Prediction
from nq.storage import atomic_write

OFFICIAL = "official"
FORMATS: dict[str, Any] = {kind.NAME: kind for kind in (kaggle, nbest, squad_answers)}


def parse(formats: str | Iterable[str]) -> tuple[str, ...]:
    """Returns the names of formats, in a list or separated by commas; the official one is implied.

    >>> parse("official,nbest,kaggle"), parse(["nbest"]), parse("")
    (('kaggle', 'nbest'), ('nbest',), ())

    Raises:
        ValueError: an unknown name.
    """
    names = formats.split(",") if isinstance(formats, str) else formats
    names = {str(name).strip() for name in names} - {"", OFFICIAL}
    unknown = sorted(names - set(FORMATS))
    if unknown:
        known = ", ".join((OFFICIAL, *FORMATS))
        raise ValueError(f"unknown format {', '.join(unknown)}; known are {known}")
    return tuple(name for name in FORMATS if name in names)


def encode(
    names: Sequence[str],
    example: Example,
    prediction: Prediction,
    alternatives: Callable[[int], Sequence[Alternative] | None],
) -> dict[str, bytes]:
    """Returns one prediction in each of these formats, by name.

    Args:
        names: of the formats.
        example: question and page.
        prediction: the answer.
        alternatives: returns the n-best list of at most so many entries, ``None`` for a decision
            rule without probabilities; it is called only if a format needs it.
    """
    kinds = [FORMATS[name] for name in names]
    limit = max((kind.ALTERNATIVES for kind in kinds), default=0)
    n_best = alternatives(limit) if limit else None
    return {kind.NAME: kind.encode(example, prediction, n_best) for kind in kinds}


class Writer:
    """Writes encoded predictions in several formats.

    Args:
        files: each format with its open file.
    """

    def __init__(self, files: Sequence[tuple[Any, IO[bytes]]]) -> None:
        self._files, self._separate = files, False

    def write(self, encoded: Mapping[str, bytes]) -> None:
        """Writes one prediction, as ``encode`` returns it."""
        for kind, file in self._files:
            file.write((kind.SEPARATOR if self._separate else b"") + encoded[kind.NAME])
        self._separate = True


@contextlib.contextmanager
def open_writer(folder: Path, names: Sequence[str]) -> Iterator[Writer]:
    """Opens the files of these formats; they are complete when the block ends, or unchanged.

    Files of other formats are removed, since an older run wrote them.
    """
    for name, kind in FORMATS.items():
        if name not in names:
            (folder / kind.FILE).unlink(missing_ok=True)
    with contextlib.ExitStack() as stack:
        files = []
        for kind in (FORMATS[name] for name in names):
            file = stack.enter_context(atomic_write(folder / kind.FILE))
            file.write(kind.HEADER)
            files.append((kind, file))
        yield Writer(files)
        for kind, file in files:
            file.write(kind.FOOTER)
