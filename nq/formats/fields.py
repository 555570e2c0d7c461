"""Checked access to the fields of a JSON record; shared by the dialects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nq.records import Annotation, Candidate, ExampleId, Span, YesNo

Record = Mapping[str, Any]


class RecordError(ValueError):
    """A record that cannot be used; the text says what was found and what was expected."""


def get(record: Record, name: str, kind: type | tuple[type, ...], where: str = "") -> Any:
    """``record[name]``, which must be there and of ``kind``."""
    at = f"{where}.{name}" if where else name
    if not isinstance(record, Mapping):
        raise RecordError(f"{where or 'record'} must be an object, found {type(record).__name__}")
    if name not in record:
        raise RecordError(f"missing field {at!r}")
    value = record[name]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        names = " or ".join(k.__name__ for k in kinds)
        raise RecordError(f"field {at!r} must be {names}, found {type(value).__name__}")
    return value


def get_id(record: Record) -> ExampleId:
    """The example's id; numeric strings (Kaggle) become numbers."""
    value = get(record, "example_id", (int, str))
    if isinstance(value, bool):
        raise RecordError("field 'example_id' must be int or str, found bool")
    if isinstance(value, int):
        return value
    try:
        return int(value)
    except ValueError:
        return str(value)


def get_span(record: Record, n_tokens: int, where: str) -> Span | None:
    """The token span of a record, ``None`` where it is -1.

    Raises:
        RecordError: it lies outside the document's ``n_tokens`` or ends before it starts.
    """
    start = get(record, "start_token", int, where)
    end = get(record, "end_token", int, where)
    if start == -1 and end == -1:
        return None
    if end < start:
        raise RecordError(f"{where} ends at token {end}, before its start {start}")
    if start < 0 or end > n_tokens:
        raise RecordError(f"{where} [{start}, {end}) lies outside the {n_tokens} tokens")
    return Span(start, end)


def get_candidates(record: Record, n_tokens: int) -> tuple[Candidate, ...]:
    """All long answer candidates; where ``top_level`` is absent a candidate is top level."""
    found = []
    for i, item in enumerate(get(record, "long_answer_candidates", list)):
        where = f"long_answer_candidates[{i}]"
        span = get_span(item, n_tokens, where)
        if span is None:
            raise RecordError(f"{where} has no span")
        found.append(Candidate(span, bool(item.get("top_level", True))))
    return tuple(found)


def get_annotations(
    record: Record, candidates: Sequence[Candidate], n_tokens: int
) -> tuple[Annotation, ...] | None:
    """The gold of every annotator, ``None`` where the record has no annotations."""
    if record.get("annotations") is None:
        return None
    items = get(record, "annotations", list)
    return tuple(
        _annotation(item, candidates, n_tokens, f"annotations[{i}]") for i, item in enumerate(items)
    )


def _annotation(
    item: Record, candidates: Sequence[Candidate], n_tokens: int, where: str
) -> Annotation:
    answer = get(item, "long_answer", dict, where)
    long = get_span(answer, n_tokens, f"{where}.long_answer")
    candidate = answer.get("candidate_index", -1) if long else -1
    if not isinstance(candidate, int) or candidate >= len(candidates):
        raise RecordError(
            f"{where}.long_answer.candidate_index is {candidate!r}, "
            f"there are {len(candidates)} candidates"
        )
    shorts = [
        get_span(short, n_tokens, f"{where}.short_answers[{j}]")
        for j, short in enumerate(get(item, "short_answers", list, where))
    ]
    yes_no = str(item.get("yes_no_answer", "NONE")).upper()
    if yes_no not in YesNo.__members__:
        raise RecordError(f"{where}.yes_no_answer must be YES, NO or NONE, found {yes_no!r}")
    return Annotation(
        long,
        candidate if candidate >= 0 else None,
        tuple(s for s in shorts if s is not None),
        YesNo(yes_no),
    )
