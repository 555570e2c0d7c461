"""Gold and predictions in the files of the official evaluation.

Of a gold record only ``example_id`` and ``annotations`` are read, so that documents may be
omitted; predictions are an official ``{"predictions": [...]}`` file. Both may be compressed.

Source of the rules: google-research-datasets/natural-questions (eval_utils.py).
"""

import contextlib
import json
import math
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import orjson

from nq.formats.fields import RecordError, get, same_id
from nq.formats.input_files import Patterns, matching_files, unchanged
from nq.formats.lines import open_bytes
from nq.records import Annotation, ExampleId, Prediction, Span, YesNo


@dataclass(frozen=True, slots=True)
class FileSpan(Span):
    """A span in document tokens, in bytes of the HTML, or both; -1 is a unit that is not given.

    ``is_official`` tells whether its record has all four fields.
    """

    start_byte: int = -1
    end_byte: int = -1
    is_official: bool = field(default=True, compare=False)

    @property
    def bytes(self) -> tuple[int, int]:
        return self.start_byte, self.end_byte


def token_spans(spans: Iterable[Span]) -> list[Span]:
    """Returns spans without their bytes; those of which only the bytes are known are left out."""
    return [Span(*span.tokens) for span in spans if span.start >= 0]


def places(prediction: Prediction) -> Hashable:
    """Returns a value that is equal for equal answers, whatever their scores are."""
    long, *shorts = (
        span if span is None or span.start < 0 else span.tokens
        for span in (prediction.long, *prediction.shorts)
    )
    return long, prediction.yes_no, frozenset(shorts)


def _optional(record: Any, name: str, kind: type, default: Any) -> Any:
    """Returns a field; the default if it is absent or null."""
    value = get(record, name, kind, type(None), default=None)
    return default if value is None else value


def example_id(record: Mapping[str, Any]) -> ExampleId:
    """Returns the id of a gold or predicted record, which may be any number, as officially."""
    key: ExampleId = same_id(get(record, "example_id", int, float, str))
    return key


def _spans(records: Iterable[Any]) -> tuple[FileSpan, ...]:
    """Returns the spans of records that are not null."""
    spans = []
    for record in records:
        names = ("start_token", "end_token", "start_byte", "end_byte")
        start, end, first, last = (_optional(record, name, int, -1) for name in names)
        _check_range("byte", first, last)
        _check_range("token", start, end)
        if start >= 0 or first >= 0:
            spans.append(FileSpan(start, end, first, last, record.keys() >= {*names}))
    return tuple(spans)


def _check_range(unit: str, start: int, end: int) -> None:
    if (start < 0) != (end < 0):
        raise ValueError(f"{unit} span [{start}, {end}) is half null: give both, or -1 -1")
    if 0 <= end <= start:
        raise ValueError(f"{unit} span [{start}, {end}) is empty: end must exceed start")


def _yes_no(name: str) -> YesNo:
    if name.upper() not in list(YesNo):
        raise ValueError(f"yes_no_answer is {name.lower()!r}, expected YES, NO or NONE")
    return YesNo(name.upper())


def annotations(record: Mapping[str, Any]) -> list[Annotation]:
    """Returns the answers of the annotators of a record."""
    items = _optional(record, "annotations", list, [])
    if not items:
        raise ValueError("no 'annotations': gold must be the annotated examples (train or dev)")
    gold = []
    for item in items:
        longs = _spans([get(item, "long_answer", dict)])
        shorts = _spans(get(item, "short_answers", list))
        yes_no = _yes_no(get(item, "yes_no_answer", str))
        gold.append(Annotation(longs[0] if longs else None, None, shorts, yes_no))
    return gold


def prediction(record: Mapping[str, Any]) -> Prediction:
    """Returns one record of a prediction file, whose answers may be absent."""
    key = example_id(record)
    names = "long_answer_score", "short_answers_score"
    scores = [get(record, name, int, float, type(None)) for name in names]
    long = _optional(record, "long_answer", dict, None)
    longs = () if long is None else _spans([long])
    shorts = _spans(_optional(record, "short_answers", list, []))
    yes_no = _yes_no(_optional(record, "yes_no_answer", str, "none"))
    # Python 2 sorts null first
    long_score, short_score = (-math.inf if score is None else score for score in scores)
    if math.isnan(long_score) or math.isnan(short_score):
        raise ValueError("a score is NaN and cannot be ranked: give a number")
    if shorts and yes_no is not YesNo.NONE:
        raise ValueError(f"both yes_no_answer {yes_no} and short answers: give one")
    long_span = longs[0] if longs else None
    return Prediction(key, long_span, long_score, shorts, short_score, yes_no)


@contextlib.contextmanager
def _open(path: str | Path) -> Iterator[IO[bytes]]:
    """Opens a file, plain or compressed, that must not change while it is read."""
    try:
        with unchanged([path]), open_bytes(str(path)) as file:
            yield file
    except RecordError as error:
        raise ValueError(f"{path}: {error}; copy the file again") from error


def _json(data: bytes) -> Any:
    """Returns JSON with what the official script accepts: NaN, lone surrogates, ids of any size."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON ({error})") from error


def _gold_record(line: bytes) -> Any:
    with contextlib.suppress(orjson.JSONDecodeError):
        record = orjson.loads(line)  # faster, and rounds large numbers
        if not (isinstance(record, dict) and isinstance(record.get("example_id"), float)):
            return record
    return _json(line)


def read_gold(paths: Patterns) -> dict[ExampleId, list[Annotation]]:
    """Reads the annotations by example id; of equal ids the last counts.

    A line that is no annotated example is a ``ValueError``, which names file and line.
    """
    gold = {}
    for path in matching_files(paths):
        with _open(path) as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    record = _gold_record(line)
                    key = example_id(record)
                    gold[key] = annotations(record)
                except ValueError as error:
                    for _ in lines:  # at its end a damaged compressed file says so
                        pass
                    raise ValueError(f"{path}:{number}: {error}") from error
    return gold


def read_predictions(path: str | Path) -> dict[ExampleId, Prediction]:
    """Reads a ``{"predictions": […]}`` file; of equal ids the last counts.

    A file or a record in another format is a ``ValueError``, which names the position.
    """
    with _open(path) as file:
        data = file.read()
    predictions = {}
    where = str(path)
    try:
        for i, record in enumerate(get(_json(data), "predictions", list)):
            where = f"{path}: predictions[{i}]"
            given = prediction(record)
            predictions[given.example_id] = given
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    return predictions
