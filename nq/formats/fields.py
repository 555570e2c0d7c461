"""Checked access to the fields of a JSON record, shared by the input dialects.

``orjson`` returns exact Python types, so a field is valid if its type *is* an expected one: a
boolean is not an integer, and an integer beyond 64 bits arrives as a ``float``. ``where`` is
always the path of a value in its record; it appears in the text of the error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    """A record that cannot be used; the text names what was found and what was expected."""


def check_type(value: Any, where: str, *types: type) -> Any:
    """Returns ``value`` if its type is one of ``types``, else raises ``RecordError``."""
    if type(value) in types:
        return value
    expected = " or ".join(JSON_NAMES[t] for t in types)
    name = JSON_NAMES.get(type(value), f"a {type(value).__name__}")
    raise RecordError(f"{where} must be {expected}, found {name}")


def get(record: Any, name: str, *types: type, where: str = "", default: Any = _MISSING) -> Any:
    """Returns the field ``name`` of ``record``; without a default the field is required.

    Raises:
        RecordError: ``record`` is not an object, or the field is absent or not of ``types``.
    """
    if type(record) is not dict:
        check_type(record, where or "record", dict)
    value = record.get(name, default)
    if type(value) in types:
        return value
    path = f"{where}.{name}" if where else name
    if value is _MISSING:
        raise RecordError(f"missing field {path!r}")
    return check_type(value, f"field {path!r}", *types)


def column(items: Any, name: str, kind: type, where: str) -> list[Any]:
    """Returns the field ``name`` of every item; all values must be of type ``kind``.

    Args:
        items: A list of objects, or an object of lists (Hugging Face).
        name: The field's name.
        kind: The type of every value.
        where: The path of ``items``.

    Raises:
        RecordError: A value is absent or of another type.
    """
    if type(items) is dict:
        values: list[Any] = get(items, name, list, where=where)
        if not set(map(type, values)) <= {kind}:
            for i, value in enumerate(values):
                check_type(value, f"{where}.{name}[{i}]", kind)
        return values
    try:
        values = [item[name] for item in items]
        if set(map(type, values)) <= {kind}:
            return values
    except (KeyError, TypeError, IndexError):
        pass  # get() below raises an error that names the item
    return [get(item, name, kind, where=f"{where}[{i}]") for i, item in enumerate(items)]


def optional_text(record: Record, name: str) -> str:
    """Returns a string that is only displayed: empty if it is absent or not a string."""
    value = record.get(name)
    return value if isinstance(value, str) else ""


def example_id(record: Record, name: str = "example_id") -> ExampleId:
    """Returns the example's id; a numeric string (Kaggle) becomes a number if that is lossless."""
    value: ExampleId = get(record, name, int, str)
    if value == "":
        raise RecordError(f"field {name!r} is empty")
    try:
        number = int(value)
    except ValueError:
        return value
    return number if str(number) == value and -(1 << 63) <= number < 1 << 64 else value


def tokens(items: Any, html_name: str, where: str) -> tuple[list[str], list[bool]]:
    """Returns the tokens of NQ v1.0, without the spaces in a few words, and their HTML flags.

    Args:
        items: The tokens, as for ``column``.
        html_name: The name of the HTML flag.
        where: The path of ``items``.
    """
    words, is_html = column(items, "token", str, where), column(items, html_name, bool, where)
    if len(words) != len(is_html):
        raise RecordError(f"{where}: {len(words)} tokens, but {len(is_html)} html flags")
    pairs = zip(words, is_html, strict=True)
    return [word if html else word.replace(" ", "") for word, html in pairs], is_html


def token_bytes(items: Any, n_tokens: int, where: str) -> IntArray:
    """Returns ``[n_tokens, 2]`` start and end byte of each token; see ``tokens``."""
    starts, ends = (column(items, name, int, where) for name in ("start_byte", "end_byte"))
    if not len(starts) == len(ends) == n_tokens:
        raise RecordError(
            f"{where}: {n_tokens} tokens, but {len(starts)} start and {len(ends)} end bytes"
        )
    try:
        return np.array([starts, ends], np.int64).T
    except OverflowError as error:
        raise RecordError(f"{where}: a byte offset is beyond 64 bits") from error


def span(record: Any, n_tokens: int, where: str, *, may_be_empty: bool = False) -> Span | None:
    """Returns the token span of ``record``, ``None`` if its start and end are -1.

    Raises:
        RecordError: The span exceeds the ``n_tokens`` of the document, ends before it starts, or
            is empty although it may not be.
    """
    start: int = get(record, "start_token", int, where=where)
    end: int = get(record, "end_token", int, where=where)
    if start == -1 and end == -1:
        return None
    if end < start:
        raise RecordError(f"{where} ends at token {end}, before its start {start}")
    if start < 0 or start >= n_tokens or end > n_tokens:
        raise RecordError(f"{where} [{start}, {end}) is outside the {n_tokens} tokens")
    if start == end and not may_be_empty:
        raise RecordError(f"{where} [{start}, {end}) is empty")
    return Span(start, end)


def candidates(record: Record, n_tokens: int) -> tuple[Candidate, ...]:
    """Returns all long answer candidates; one without ``top_level`` is top level."""
    found = []
    for i, item in enumerate(get(record, "long_answer_candidates", list)):
        where = f"long_answer_candidates[{i}]"
        block = span(item, n_tokens, where, may_be_empty=True)
        if block is None:
            raise RecordError(f"{where} has no span: its start and end are -1")
        found.append(Candidate(block, get(item, "top_level", bool, where=where, default=True)))
    return tuple(found)


def gold(record: Record, decode: Callable[[Any, str], Annotation]) -> tuple[Annotation, ...] | None:
    """Returns the gold of every annotator, ``None`` if the record has no annotations.

    Args:
        record: The record.
        decode: Returns the annotation in an item, given the item and its path.
    """
    if record.get("annotations") in (None, []):
        return None
    items = get(record, "annotations", list)
    return tuple(decode(item, f"annotations[{i}]") for i, item in enumerate(items))


def nq_gold(record: Record, n_candidates: int, n_tokens: int) -> tuple[Annotation, ...] | None:
    """Returns the annotations of a record of NQ v1.0 or simplified NQ; see ``gold``."""

    def decode(item: Any, where: str) -> Annotation:
        answer = get(item, "long_answer", dict, where=where)
        long = span(answer, n_tokens, f"{where}.long_answer")
        shorts = [
            span(short, n_tokens, f"{where}.short_answers[{i}]")
            for i, short in enumerate(get(item, "short_answers", list, where=where))
        ]
        candidate = candidate_index(answer, n_candidates, f"{where}.long_answer")
        return Annotation(
            long,
            candidate if long else None,
            tuple(short for short in shorts if short is not None),
            yes_no(item, where),
        )

    return gold(record, decode)


def candidate_index(answer: Any, n_candidates: int, where: str) -> int | None:
    """Returns the index of a long answer's candidate, ``None`` if it is -1 or absent."""
    index: int = get(answer, "candidate_index", int, where=where, default=-1)
    if not -1 <= index < n_candidates:
        raise RecordError(
            f"{where}.candidate_index is {index}, but there are {n_candidates} candidates"
        )
    return index if index >= 0 else None


def yes_no(item: Any, where: str) -> YesNo:
    """Returns the yes/no answer of an annotation, ``YesNo.NONE`` if it is absent."""
    value: str = get(item, "yes_no_answer", str, where=where, default=YesNo.NONE.value)
    if value.upper() not in YesNo.__members__:
        shown = value[:MAX_SHOWN_CHARS]
        raise RecordError(f"{where}.yes_no_answer must be YES, NO or NONE, found {shown!r}")
    return YesNo(value.upper())
