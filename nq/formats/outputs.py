"""Output formats: ``predictions.json``, and those that a user may choose besides it.

The official evaluation reads ``{"predictions": [...]}``, where null answers are -1.

Kaggle's "TensorFlow 2.0 Question Answering" reads two rows a question:

    example_id,PredictionString
    -545833482873225036_long,105:200
    -545833482873225036_short,YES

Token spans have an exclusive end, no answer is empty, several short spans are separated by
blanks. Rows are in the order of the data. The ids of the competition are whole numbers, often
negative. Any other id that a spreadsheet would take for a formula gets a ``'`` before it, so that
opening the file runs nothing.

SQuAD's scorer reads ``{id: answer}``, with an empty text for no answer. The answer is the short
one, ``yes`` or ``no``; of several short answers all, with ``;`` between them. EfficientQA
reads the same answer as a line, ``{"question": "…", "prediction": "…"}``.

The n-best lists are one JSON object per line:

    {"example_id": 7, "question": "…", "title": "…", "probabilities": true, "answers": [
        {"long_answer": {"start_token": 3, "end_token": 90, "text": "…"}, "long_score": 0.81,
         "short_answers": [{"start_token": 9, "end_token": 12, "text": "…"}],
         "short_score": 0.54, "yes_no_answer": "NONE"}, …]}

The first answer is the prediction, the others are the alternatives, best first. Where a threshold
made the prediction null, the best alternative comes second. Scores are probabilities if
``probabilities`` is true; the rules of the originals give sums of logits and no alternatives. Spans
have ``start_byte`` and ``end_byte`` where the data have, and ``start_char`` and ``end_char`` where
the user's own text was cut into tokens. Where a retriever found the passages, each answer and each
official prediction has ``passage``, with ``id``, ``title`` and ``rank`` from 1.
"""

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from nq.records import (
    Alternative,
    Example,
    IntArray,
    Prediction,
    Span,
    YesNo,
    char_span,
)
from nq.storage import atomic_write

OFFICIAL = "official"
NBEST_FILE = "nbest.jsonl"
ALTERNATIVES = 5
Alternatives = Sequence[Alternative] | None
"""An n-best list; ``None`` for a decision rule without probabilities."""
_NUMBER = re.compile(r"-?\d+", re.ASCII)
_FORMULA = re.compile(r"'*[\s\x00-\x1f]*[=+\-@\uff1d\uff0b\uff0d\uff20|%]|'*[\t\r\n\x00]")
"""What begins a formula: after blanks, too, since some programs remove them; in full width, too."""


def encode_prediction(
    prediction: Prediction,
    token_bytes: IntArray | None = None,
    example: Example | None = None,
) -> dict[str, Any]:
    """Returns one prediction as the official evaluation reads it.

    With ``token_bytes`` ``[n_tokens, 2]`` answers have bytes, with the example characters, where
    the page is the user's own text, and the passage, where a retriever found it.
    """

    def encode(span: Span | None) -> dict[str, int]:
        start, end = (-1, -1) if span is None else byte_span(span, token_bytes)
        return {
            "start_token": -1 if span is None else span.start,
            "end_token": -1 if span is None else span.end,
            "start_byte": start,
            "end_byte": end,
            **char_span(span, None if example is None else example.original),
        }

    return {
        "example_id": prediction.example_id,
        "long_answer": encode(prediction.long),
        "long_answer_score": prediction.long_score,
        "short_answers": [encode(span) for span in prediction.shorts or (None,)],
        "short_answers_score": prediction.short_score,
        "yes_no_answer": str(prediction.yes_no),
        **passage_of(example, prediction.long, prediction.shorts),
    }


def passage_of(
    example: Example | None, long: Span | None, shorts: Sequence[Span]
) -> dict[str, dict[str, Any] | None]:
    """Returns id, title and rank of the passage of an answer; empty if no retriever found any."""
    if example is None or example.passages is None:
        return {}
    span = long or next(iter(shorts), None)
    if span is None or (found := example.passage(span)) is None:
        return {"passage": None}
    return {
        "passage": {
            "id": found.passage_id,
            "title": found.title,
            "rank": found.rank,
        }
    }


def byte_span(span: Span, token_bytes: IntArray | None) -> tuple[int, int]:
    """Returns the start and end byte of ``span``, (-1, -1) if ``token_bytes`` has none for it."""
    if token_bytes is not None and span.start < span.end <= len(token_bytes):
        start, end = (
            int(token_bytes[span.start, 0]),
            int(token_bytes[span.end - 1, 1]),
        )
        if 0 <= start < end:
            return start, end
    return -1, -1


def write_predictions(path: Path, predictions: Iterable[Mapping[str, Any]]) -> None:
    """Writes encoded predictions to ``path`` one by one; the file appears when it is complete."""
    separator = b"\n"
    with atomic_write(path) as file:
        file.write(b'{"predictions": [')
        for prediction in predictions:
            file.write(separator + orjson.dumps(prediction))
            separator = b",\n"
        file.write(b"\n]}\n")


def kaggle_rows(example: Example, prediction: Prediction, alternatives: Alternatives) -> bytes:
    """Returns the two rows of an example for Kaggle."""
    long = prediction.long
    yes_no = prediction.yes_no
    shorts = " ".join(f"{span.start}:{span.end}" for span in prediction.shorts)
    answers = {
        "long": "" if long is None else f"{long.start}:{long.end}",
        "short": shorts if yes_no is YesNo.NONE else str(yes_no),
    }
    name = str(prediction.example_id)
    if _FORMULA.match(name) and not _NUMBER.fullmatch(name):
        name = f"'{name}"
    first = name.replace('"', '""')
    quote = '"' if any(char in name for char in ',"\r\n') else ""
    rows = (f"{quote}{first}_{kind}{quote},{answer}\n" for kind, answer in answers.items())
    return "".join(rows).encode()


def squad_entry(example: Example, prediction: Prediction, alternatives: Alternatives) -> bytes:
    """Returns the entry of an example for SQuAD's scorer."""
    key = str(example.example_id)
    value = _short_answer(example, prediction)
    return orjson.dumps(key) + b": " + orjson.dumps(value)


def nq_open_line(example: Example, prediction: Prediction, alternatives: Alternatives) -> bytes:
    """Returns the line of an example for EfficientQA."""
    answer = _short_answer(example, prediction)
    return orjson.dumps({"question": example.question, "prediction": answer}) + b"\n"


def _short_answer(example: Example, prediction: Prediction) -> str:
    answer = example.short_answer(prediction.shorts, prediction.yes_no)
    return answer.encode("utf-8", "replace").decode()


def nbest_line(example: Example, prediction: Prediction, alternatives: Alternatives) -> bytes:
    """Returns the line of an example with its n-best list."""

    def place(span: Span) -> dict[str, Any]:
        start, end = byte_span(span, example.token_bytes)
        values: dict[str, Any] = {
            "start_token": span.start,
            "end_token": span.end,
        }
        if start >= 0:
            values |= {"start_byte": start, "end_byte": end}
        return values | char_span(span, example.original) | {"text": example.text(span)}

    def answer(part: Prediction | Alternative, scores: tuple[float, float]) -> dict[str, Any]:
        return {
            "long_answer": None if part.long is None else place(part.long),
            "long_score": scores[0],
            "short_answers": [place(span) for span in part.shorts],
            "short_score": scores[1],
            "yes_no_answer": str(part.yes_no),
            **passage_of(example, part.long, part.shorts),
        }

    first = answer(prediction, (prediction.long_score, prediction.short_score))
    others = [answer(a, (a.long_probability, a.short_probability)) for a in alternatives or ()]
    line = {
        "example_id": example.example_id,
        "question": example.question,
        "title": example.title,
        "probabilities": alternatives is not None,
        "answers": [first, *(other for other in others if other != first)],
    }
    return orjson.dumps(line) + b"\n"


@dataclass(frozen=True)
class OutputFormat:
    """An output format; ``alternatives`` is the maximum length of its n-best list."""

    file: str
    encode: Callable[[Example, Prediction, Alternatives], bytes]
    header: bytes = b""
    separator: bytes = b""
    footer: bytes = b""
    alternatives: int = 0


FORMATS = {
    "kaggle": OutputFormat("kaggle.csv", kaggle_rows, header=b"example_id,PredictionString\n"),
    "nbest": OutputFormat(NBEST_FILE, nbest_line, alternatives=ALTERNATIVES),
    "nq-open": OutputFormat("nq_open.jsonl", nq_open_line),
    "squad": OutputFormat("squad.json", squad_entry, b"{\n", b",\n", b"\n}\n"),
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

    ``alternatives(n)`` returns an n-best list of at most n entries.
    """
    limit = max((FORMATS[name].alternatives for name in names), default=0)
    n_best = alternatives(limit) if limit else None
    return {name: FORMATS[name].encode(example, prediction, n_best) for name in names}


@contextlib.contextmanager
def open_writer(
    folder: Path, names: Sequence[str]
) -> Iterator[Callable[[Mapping[str, bytes]], None]]:
    """Yields a function that writes what ``encode`` returns to files, complete with the block.

    Files of other formats are removed, since an older run wrote them.
    """
    for name in FORMATS.keys() - set(names):
        (folder / FORMATS[name].file).unlink(missing_ok=True)
    with contextlib.ExitStack() as stack:
        files = {}
        for name in names:
            files[name] = stack.enter_context(atomic_write(folder / FORMATS[name].file))
            files[name].write(FORMATS[name].header)
        separators = dict.fromkeys(files, b"")

        def write(encoded: Mapping[str, bytes]) -> None:
            for name, file in files.items():
                file.write(separators[name] + encoded[name])
                separators[name] = FORMATS[name].separator

        yield write
        for name, file in files.items():
            file.write(FORMATS[name].footer)
