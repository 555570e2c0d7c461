"""Gold and predictions as labels: the answers of one annotator, or of one system.

Of a gold record only ``example_id`` and ``annotations`` are read, so that documents may be
omitted; predictions are an official ``{"predictions": [...]}`` file. Both may be compressed.

Source of the rules: google-research-datasets/natural-questions (eval_utils.py).
"""

import contextlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self

import orjson

from nq.formats.fields import RecordError, get, same_id
from nq.formats.input_files import Patterns, matching_files, unchanged
from nq.formats.lines import open_bytes
from nq.records import ExampleId, Span


@dataclass(frozen=True, slots=True)
class LabelSpan:
    """A half-open span in bytes of the HTML, in document tokens, or both; -1 is null.

    ``is_any`` stands for a gold passage that is not known, so that every passage is right.
    """

    start_byte: int = -1
    end_byte: int = -1
    start_token: int = -1
    end_token: int = -1
    is_official: bool = field(default=True, compare=False)  # its record has all four fields
    is_any: bool = False

    def __post_init__(self) -> None:
        for unit, (start, end) in (("byte", self.bytes), ("token", self.tokens)):
            if (start < 0) != (end < 0):
                raise ValueError(f"{unit} span [{start}, {end}) is half null: give both, or -1 -1")
            if 0 <= end <= start:
                raise ValueError(f"{unit} span [{start}, {end}) is empty: end must exceed start")

    @property
    def bytes(self) -> tuple[int, int]:
        return self.start_byte, self.end_byte

    @property
    def tokens(self) -> tuple[int, int]:
        return self.start_token, self.end_token

    @property
    def in_tokens(self) -> Span | None:
        return Span(*self.tokens) if self.start_token >= 0 else None

    @property
    def is_null(self) -> bool:
        return self.start_byte < 0 and self.start_token < 0 and not self.is_any

    def matches(self, gold: Self) -> bool:
        """Returns whether both are non-null and have the same bytes or the same tokens."""
        if gold.is_any:
            return not self.is_null
        same_bytes = self.start_byte >= 0 and self.bytes == gold.bytes
        return same_bytes or (self.start_token >= 0 and self.tokens == gold.tokens)


@dataclass(frozen=True, slots=True)
class Label:
    """The answers of one annotator or one system to a question; only a system gives scores.

    ``is_text`` stands for a place of gold that is text, which no annotators have to agree on.
    """

    long: LabelSpan = LabelSpan()
    short: tuple[LabelSpan, ...] = ()
    yes_no: str = "none"
    long_score: float = 0.0
    short_score: float = 0.0
    is_text: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if self.yes_no not in ("yes", "no", "none"):
            raise ValueError(f"yes_no_answer is {self.yes_no!r}, expected YES, NO or NONE")
        if self.long_score != self.long_score or self.short_score != self.short_score:
            raise ValueError("a score is NaN and cannot be ranked: give a number")

    @property
    def short_tokens(self) -> list[Span]:
        return [span for one in self.short if (span := one.in_tokens)]

    @property
    def short_spans(self) -> list[LabelSpan]:
        return [span for span in self.short if not span.is_null]

    @property
    def has_long(self) -> bool:
        return not self.long.is_null

    @property
    def has_short(self) -> bool:
        return self.yes_no != "none" or bool(self.short_spans)

    def short_equals(self, other: Self) -> bool:
        """Returns whether yes/no is equal or, without it, every span has a match in the other."""
        if self.yes_no != "none":
            return self.yes_no == other.yes_no
        ours, theirs = self.short_spans, other.short_spans
        return all(any(a.matches(b) for b in theirs) for a in ours) and all(
            any(b.matches(a) for a in ours) for b in theirs
        )


def same_answers(mine: Label, theirs: Label) -> bool:
    """Returns whether two predictions are the same answer, whatever their scores are."""
    first, second = ((x.long, x.yes_no, set(x.short_spans)) for x in (mine, theirs))
    return first == second


def _optional(record: Any, name: str, kind: type, default: Any) -> Any:
    """Returns a field; the default if it is absent or null."""
    value = get(record, name, kind, type(None), default=None)
    return default if value is None else value


def example_id(record: Mapping[str, Any]) -> ExampleId:
    """Returns the id of a gold or predicted record, which may be any number, as officially."""
    key: ExampleId = same_id(get(record, "example_id", int, float, str))
    return key


def _span(record: Any) -> LabelSpan:
    names = ("start_byte", "end_byte", "start_token", "end_token")
    values = {name: _optional(record, name, int, -1) for name in names}
    return LabelSpan(**values, is_official=record.keys() >= {*names})


def gold_labels(record: Mapping[str, Any]) -> list[Label]:
    """Returns the labels of the annotators of a record."""
    annotations = _optional(record, "annotations", list, [])
    if not annotations:
        raise ValueError("no 'annotations': gold must be the annotated examples (train or dev)")
    return [
        Label(
            long=_span(get(item, "long_answer", dict)),
            short=tuple(map(_span, get(item, "short_answers", list))),
            yes_no=get(item, "yes_no_answer", str).lower(),
        )
        for item in annotations
    ]


def prediction_label(record: Mapping[str, Any]) -> Label:
    """Returns the label of one record of a prediction file, whose answers may be absent."""
    names = "long_answer_score", "short_answers_score"
    scores = (get(record, name, int, float, type(None)) for name in names)
    long = _optional(record, "long_answer", dict, None)
    label = Label(
        LabelSpan() if long is None else _span(long),
        tuple(map(_span, _optional(record, "short_answers", list, []))),
        _optional(record, "yes_no_answer", str, "none").lower(),
        *(-math.inf if score is None else score for score in scores),  # Python 2 sorts null first
    )
    if label.yes_no != "none" and label.short_spans:
        raise ValueError(f"both yes_no_answer {label.yes_no.upper()} and short answers: give one")
    return label


@contextlib.contextmanager
def _open(path: str | Path) -> Iterator[IO[bytes]]:
    """Opens a file, plain or compressed, that must not change while it is read."""
    try:
        with unchanged([path]), open_bytes(str(path)) as file:
            yield file
    except RecordError as error:
        raise ValueError(f"{path}: {error}; copy the file again") from error


def _decode(data: bytes) -> Any:
    """Returns JSON with what the official script accepts: NaN, lone surrogates, ids of any size."""
    with contextlib.suppress(orjson.JSONDecodeError):
        value = orjson.loads(data)
        items = value.get("predictions", [value]) if type(value) is dict else None
        records = [item for item in items if type(item) is dict] if type(items) is list else []
        if not any(type(record.get("example_id")) is float for record in records):  # rounded
            return value
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON ({error})") from error


def read_gold(paths: Patterns) -> dict[ExampleId, list[Label]]:
    """Reads the annotators' labels by example id; of equal ids the last counts.

    A line that is no annotated example is a ``ValueError``, which names file and line.
    """
    gold = {}
    for path in matching_files(paths):
        with _open(path) as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    record = _decode(line)
                    key = example_id(record)
                    gold[key] = gold_labels(record)
                except ValueError as error:
                    for _ in lines:  # at its end a damaged compressed file says so
                        pass
                    raise ValueError(f"{path}:{number}: {error}") from error
    return gold


def read_predictions(path: str | Path) -> dict[ExampleId, Label]:
    """Reads the labels of a ``{"predictions": […]}`` file; of equal ids the last counts.

    A file or a record in another format is a ``ValueError``, which names the position.
    """
    with _open(path) as file:
        data = file.read()
    predictions, where = {}, str(path)
    try:
        for i, record in enumerate(get(_decode(data), "predictions", list)):
            where = f"{path}: predictions[{i}]"
            key = example_id(record)
            predictions[key] = prediction_label(record)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    return predictions
