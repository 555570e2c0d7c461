"""Output formats besides ``predictions.json``.

Kaggle's "TensorFlow 2.0 Question Answering" reads two rows a question:

    example_id,PredictionString
    -545833482873225036_long,105:200
    -545833482873225036_short,YES

Token spans have an exclusive end, no answer is empty, several short spans are separated by
blanks. Rows are in the order of the data. The ids of the competition are whole numbers, often
negative. Any other id that a spreadsheet would take for a formula gets a ``'`` before it, so that
opening the file runs nothing.

SQuAD's scorer reads ``{id: answer}``, with an empty text for no answer. The answer is the short
one, ``yes`` or ``no``; of several short answers all, with ``;`` between them.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import orjson

from nq.formats import nbest
from nq.records import Alternative, Example, Prediction, Span, YesNo
from nq.storage import atomic_write

OFFICIAL = "official"
Alternatives = Sequence[Alternative] | None
"""An n-best list; ``None`` for a decision rule without probabilities."""
_NUMBER = re.compile(r"-?\d+", re.ASCII)
_FORMULA = re.compile(r"'*[\s\x00-\x1f]*[=+\-@\uff1d\uff0b\uff0d\uff20|%]|'*[\t\r\n\x00]")
"""What begins a formula: after blanks, too, since some programs remove them; in full width, too."""


@dataclass(frozen=True)
class Format:
    """An output format.

    ``encode`` returns the bytes of an example, of whose n-best list ``alternatives`` entries are
    written. ``separator`` is between two examples.
    """

    file: str
    encode: Callable[[Example, Prediction, Alternatives], bytes]
    header: bytes = b""
    separator: bytes = b""
    footer: bytes = b""
    alternatives: int = 0


def _kaggle_rows(example: Example, prediction: Prediction, alternatives: Alternatives) -> bytes:
    long = _spans(() if prediction.long is None else (prediction.long,))
    yes_no = prediction.yes_no
    short = _spans(prediction.shorts) if yes_no is YesNo.NONE else str(yes_no)
    name = str(prediction.example_id)
    if _FORMULA.match(name) and not _NUMBER.fullmatch(name):
        name = f"'{name}"
    first, quote = name.replace('"', '""'), '"' * any(char in name for char in ',"\r\n')
    return "".join(
        f"{quote}{first}_{kind}{quote},{answer}\n"
        for kind, answer in (("long", long), ("short", short))
    ).encode()


def _spans(spans: tuple[Span, ...]) -> str:
    return " ".join(f"{span.start}:{span.end}" for span in spans)


def _squad_entry(example: Example, prediction: Prediction, alternatives: Alternatives) -> bytes:
    answer = example.short_answer(prediction.shorts, prediction.yes_no)
    key, value = str(example.example_id), answer.encode("utf-8", "replace").decode()
    return orjson.dumps(key) + b": " + orjson.dumps(value)


FORMATS = {
    "kaggle": Format("kaggle.csv", _kaggle_rows, header=b"example_id,PredictionString\n"),
    "nbest": Format(nbest.FILE, nbest.encode, alternatives=nbest.ALTERNATIVES),
    "squad": Format("squad.json", _squad_entry, b"{\n", b",\n", b"\n}\n"),
}


def parse(formats: str | Iterable[str]) -> tuple[str, ...]:
    """Returns the names of formats, in a list or separated by commas; the official one is implied.

    >>> parse("official,nbest,kaggle"), parse(["nbest"]), parse("")
    (('kaggle', 'nbest'), ('nbest',), ())
    """
    names = formats.split(",") if isinstance(formats, str) else formats
    names = {str(name).strip() for name in names} - {"", OFFICIAL}
    unknown = sorted(names - set(FORMATS))
    if unknown:
        expected = ", ".join((OFFICIAL, *FORMATS))
        raise ValueError(f"unknown format {', '.join(unknown)}; known are {expected}")
    return tuple(name for name in FORMATS if name in names)


def encode(
    names: Sequence[str],
    example: Example,
    prediction: Prediction,
    alternatives: Callable[[int], Alternatives],
) -> dict[str, bytes]:
    """Returns one prediction in each of these formats, by name.

    ``alternatives`` returns an n-best list of at most so many entries; it is called only if a
    format needs it.
    """
    limit = max((FORMATS[name].alternatives for name in names), default=0)
    n_best = alternatives(limit) if limit else None
    return {name: FORMATS[name].encode(example, prediction, n_best) for name in names}


class Writer:
    """Writes encoded predictions in several formats, each to its open file."""

    def __init__(self, files: Mapping[str, IO[bytes]]) -> None:
        self._files, self._is_first = files, True

    def write(self, encoded: Mapping[str, bytes]) -> None:
        """Writes one prediction, as ``encode`` returns it."""
        for name, file in self._files.items():
            file.write((b"" if self._is_first else FORMATS[name].separator) + encoded[name])
        self._is_first = False


@contextlib.contextmanager
def open_writer(folder: Path, names: Sequence[str]) -> Iterator[Writer]:
    """Opens the files of these formats; they are complete when the block ends, or unchanged.

    Files of other formats are removed, since an older run wrote them.
    """
    for name in FORMATS.keys() - set(names):
        (folder / FORMATS[name].file).unlink(missing_ok=True)
    with contextlib.ExitStack() as stack:
        files = {}
        for name in names:
            files[name] = stack.enter_context(atomic_write(folder / FORMATS[name].file))
            files[name].write(FORMATS[name].header)
        yield Writer(files)
        for name, file in files.items():
            file.write(FORMATS[name].footer)
