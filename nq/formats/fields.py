"""Checked access to the fields of a JSON record; shared by the dialects.

``orjson`` gives exact Python types, so a field is right if its type *is* the expected
one: a boolean is no integer, and an integer beyond 64 bits has become a ``float``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nq.records import Annotation, Candidate, ExampleId, IntArray, Span, YesNo

Record = Mapping[str, Any]

JSON_NAMES = {
    bool: "a boolean",
    int: "an integer",
    float: "a number that is no 64-bit integer",
    str: "a string",
    list: "an array",
    dict: "an object",
    type(None): "null",
}
MAX_SHOWN_CHARS = 40
_MISSING = object()


class RecordError(ValueError):
    """A record that cannot be used; the text says what was found and what was expected."""


def check(value: Any, where: str, *kinds: type) -> Any:
    """``value`` if it is of one of ``kinds``."""
    if type(value) in kinds:
        return value
    wanted = " or ".join(JSON_NAMES[kind] for kind in kinds)
    found = JSON_NAMES.get(type(value), f"a {type(value).__name__}")
    raise RecordError(f"{where} must be {wanted}, found {found}")


def get(record: Any, name: str, *kinds: type, where: str = "", default: Any = _MISSING) -> Any:
    """``record[name]``, which must be of one of ``kinds`` and, without a default, there."""
    if type(record) is dict:
        value = record.get(name, default)
        if type(value) in kinds:
            return value
        at = f"{where}.{name}" if where else name
        if value is _MISSING:
            raise RecordError(f"missing field {at!r}")
        return check(value, f"field {at!r}", *kinds)
    return check(record, where or "record", dict)


def get_column(items: list[Any], name: str, kind: type, where: str) -> list[Any]:
    """Field ``name`` of every item, all of ``kind``; quick, because most lists are long."""
    try:
        values = [item[name] for item in items]
        if set(map(type, values)) <= {kind}:
            return values
    except (KeyError, TypeError, IndexError):
        pass  # the slow way names the item
    return [get(item, name, kind, where=f"{where}[{i}]") for i, item in enumerate(items)]


def get_text(record: Record, name: str) -> str:
    """An optional string that is only shown to people: empty where it is absent or no string."""
    value = record.get(name)
    return value if isinstance(value, str) else ""


def get_id(record: Record, name: str = "example_id") -> ExampleId:
    """The example's id; numeric strings (Kaggle) become numbers if nothing is lost by it."""
    value: ExampleId = get(record, name, int, str)
    if value == "":
        raise RecordError(f"field {name!r} is empty")
    try:
        number = int(value)
    except ValueError:
        return value
    return number if str(number) == value and -(1 << 63) <= number < 1 << 64 else value


def get_span(record: Any, n_tokens: int, where: str) -> Span | None:
    """The token span of a record, ``None`` where it is -1.

    Raises:
        RecordError: it lies outside the document's ``n_tokens`` or ends before it starts.
    """
    start: int = get(record, "start_token", int, where=where)
    end: int = get(record, "end_token", int, where=where)
    if start == -1 and end == -1:
        return None
    if end < start:
        raise RecordError(f"{where} ends at token {end}, before its start {start}")
    if start < 0 or start >= n_tokens or end > n_tokens:
        raise RecordError(f"{where} [{start}, {end}) lies outside the {n_tokens} tokens")
    return Span(start, end)


def without_blanks(tokens: Sequence[str], is_html: Sequence[bool]) -> list[str]:
    """The tokens of NQ v1.0, whose words have blanks inside now and then."""
    return [t if html else t.replace(" ", "") for t, html in zip(tokens, is_html, strict=True)]


def byte_spans(starts: Sequence[int], ends: Sequence[int], where: str) -> IntArray:
    """``[n, 2]`` start and end bytes."""
    try:
        return np.array([starts, ends], np.int64).T
    except OverflowError as error:
        raise RecordError(f"{where}: a byte offset is beyond 64 bits") from error


def get_candidates(record: Record, n_tokens: int) -> tuple[Candidate, ...]:
    """All long answer candidates; where ``top_level`` is absent a candidate is top level."""
    found = []
    for i, item in enumerate(get(record, "long_answer_candidates", list)):
        where = f"long_answer_candidates[{i}]"
        span = get_span(item, n_tokens, where)
        if span is None:
            raise RecordError(f"{where} has no span: its start and end are -1")
        found.append(Candidate(span, get(item, "top_level", bool, where=where, default=True)))
    return tuple(found)


def get_annotations(
    record: Record, candidates: Sequence[Candidate], n_tokens: int
) -> tuple[Annotation, ...] | None:
    """The gold of every annotator, ``None`` where the record has no annotations."""
    if record.get("annotations") in (None, []):
        return None
    items = get(record, "annotations", list)
    return tuple(
        _annotation(item, candidates, n_tokens, f"annotations[{i}]") for i, item in enumerate(items)
    )


def _answer_span(record: Any, n_tokens: int, where: str) -> Span | None:
    """The span of an answer; unlike a candidate, an answer is not empty."""
    span = get_span(record, n_tokens, where)
    if span and span.start == span.end:
        raise RecordError(f"{where} [{span.start}, {span.end}) is empty")
    return span


def _annotation(
    item: Any, candidates: Sequence[Candidate], n_tokens: int, where: str
) -> Annotation:
    answer = get(item, "long_answer", dict, where=where)
    long = _answer_span(answer, n_tokens, f"{where}.long_answer")
    shorts = [
        _answer_span(short, n_tokens, f"{where}.short_answers[{j}]")
        for j, short in enumerate(get(item, "short_answers", list, where=where))
    ]
    candidate = get_candidate_index(answer, len(candidates), f"{where}.long_answer")
    return Annotation(
        long,
        candidate if long else None,
        tuple(s for s in shorts if s is not None),
        get_yes_no(item, where),
    )


def get_candidate_index(answer: Any, n_candidates: int, where: str) -> int | None:
    """Which candidate a long answer is, ``None`` where it is -1 or not said."""
    index: int = get(answer, "candidate_index", int, where=where, default=-1)
    if not -1 <= index < n_candidates:
        found = f"{where}.candidate_index is {index}"
        raise RecordError(f"{found}, but there are {n_candidates} candidates")
    return index if index >= 0 else None


def get_yes_no(item: Any, where: str) -> YesNo:
    """The yes/no answer of an annotation, none where it is absent."""
    value: str = get(item, "yes_no_answer", str, where=where, default=YesNo.NONE.value)
    if value.upper() not in YesNo.__members__:
        shown = value[:MAX_SHOWN_CHARS]
        raise RecordError(f"{where}.yes_no_answer must be YES, NO or NONE, found {shown!r}")
    return YesNo(value.upper())
