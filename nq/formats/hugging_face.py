"""Hugging Face's ``natural_questions``: the v1.0 records with lists of fields for objects.

A row has ``id``, ``document{title, tokens{token[], is_html[], start_byte[], end_byte[]}}``,
``question{text, tokens}``, ``long_answer_candidates{start_token[], …}`` and
``annotations{long_answer[{…}], short_answers[{start_token[], …}], yes_no_answer[]}``, where
``yes_no_answer`` is 0 for NO, 1 for YES, -1 for none. Lists of objects in the place of objects
of lists, which newer exports write, are read as well.
"""

from __future__ import annotations

from typing import Any

from nq.formats.fields import (
    Record,
    RecordError,
    byte_spans,
    check,
    get,
    get_annotations,
    get_candidates,
    get_column,
    get_id,
    get_text,
    without_blanks,
)
from nq.records import Example, IntArray, YesNo

NAME = "Hugging Face's natural_questions"
MARK = "document"
TOKENS, CANDIDATES, ANNOTATIONS = "document.tokens", "long_answer_candidates", "annotations"
COLUMNS: dict[str, tuple[type, ...]] = {
    "id": (str, int),
    "question.text": (str,),
    f"{TOKENS}.token": (str,),
    f"{TOKENS}.is_html": (bool,),
    f"{CANDIDATES}.start_token": (int,),
    f"{CANDIDATES}.end_token": (int,),
}
OPTIONAL_COLUMNS: dict[str, tuple[type, ...]] = {
    "document.title": (str,),
    f"{TOKENS}.start_byte": (int,),
    f"{TOKENS}.end_byte": (int,),
    f"{CANDIDATES}.top_level": (bool,),
    f"{ANNOTATIONS}.long_answer.start_token": (int,),
    f"{ANNOTATIONS}.long_answer.end_token": (int,),
    f"{ANNOTATIONS}.long_answer.candidate_index": (int,),
    f"{ANNOTATIONS}.short_answers.start_token": (int,),
    f"{ANNOTATIONS}.short_answers.end_token": (int,),
    f"{ANNOTATIONS}.yes_no_answer": (int, str),
}
_YES_NO = {-1: YesNo.NONE, 0: YesNo.NO, 1: YesNo.YES}


def decode(record: Record) -> Example:
    """The example in a row.

    Raises:
        RecordError: a field is missing, of the wrong kind, or out of range.
    """
    document = get(record, MARK, dict)
    items = get(document, "tokens", dict, list, where=MARK)
    spelled, is_html = _column(items, "token", str), _column(items, "is_html", bool)
    if len(spelled) != len(is_html):
        raise RecordError(f"{TOKENS}: {len(spelled)} tokens, but {len(is_html)} html flags")
    n_tokens = len(spelled)
    rows = {
        CANDIDATES: _rows(get(record, CANDIDATES, dict, list), CANDIDATES),
        ANNOTATIONS: _annotations(record.get(ANNOTATIONS)),
    }
    candidates = get_candidates(rows, n_tokens)
    return Example(
        example_id=get_id(record, "id"),
        question=get(get(record, "question", dict), "text", str, where="question"),
        tokens=without_blanks(spelled, is_html),
        is_html=is_html,
        candidates=candidates,
        annotations=get_annotations(rows, candidates, n_tokens),
        token_bytes=_token_bytes(items, n_tokens),
        title=get_text(document, "title"),
    )


def _column(items: Any, name: str, kind: type) -> list[Any]:
    """Field ``name`` of every token."""
    if type(items) is list:
        return get_column(items, name, kind, TOKENS)
    values: list[Any] = get(items, name, list, where=TOKENS)
    if not set(map(type, values)) <= {kind}:
        for i, value in enumerate(values):
            check(value, f"{TOKENS}.{name}[{i}]", kind)
    return values


def _token_bytes(items: Any, n_tokens: int) -> IntArray | None:
    """Start and end byte of each token; older exports have none."""
    first = items[0] if type(items) is list and items else items
    if type(first) is not dict or first.get("start_byte") is None:
        return None
    starts, ends = _column(items, "start_byte", int), _column(items, "end_byte", int)
    if not len(starts) == len(ends) == n_tokens:
        raise RecordError(
            f"{TOKENS}: {n_tokens} tokens, but {len(starts)} start and {len(ends)} end bytes"
        )
    return byte_spans(starts, ends, TOKENS)


def _rows(value: Any, where: str) -> list[Any]:
    """An object of lists as a list of objects; a column that is null as a whole is absent.

    >>> _rows({"start": [1, 2], "end": [3, 4], "text": None}, "spans")
    [{'start': 1, 'end': 3}, {'start': 2, 'end': 4}]
    """
    if type(check(value, where, dict, list)) is list:
        return list(value)
    columns = {name: column for name, column in value.items() if column is not None}
    for name, column in columns.items():
        check(column, f"{where}.{name}", list)
    if len({len(column) for column in columns.values()}) > 1:
        lengths = ", ".join(f"{name} {len(column)}" for name, column in columns.items())
        raise RecordError(f"{where} has columns of different lengths: {lengths}")
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _annotations(value: Any) -> list[dict[str, Any]]:
    """The annotations as v1.0 has them."""
    if value is None:
        return []
    return [
        _annotation(row, f"{ANNOTATIONS}[{i}]") for i, row in enumerate(_rows(value, ANNOTATIONS))
    ]


def _annotation(row: Any, where: str) -> dict[str, Any]:
    code = get(row, "yes_no_answer", int, str, where=where, default=-1)
    if type(code) is int and code not in _YES_NO:
        raise RecordError(f"{where}.yes_no_answer must be 0 (NO), 1 (YES) or -1, found {code}")
    shorts = get(row, "short_answers", dict, list, where=where)
    return {
        **row,
        "short_answers": _rows(shorts, f"{where}.short_answers"),
        "yes_no_answer": _YES_NO[code].value if type(code) is int else code,
    }
