"""The dialect of Hugging Face's ``natural_questions``: NQ v1.0 with objects of lists.

A row has ``id``, ``document{title, tokens{token[], is_html[], start_byte[], end_byte[]}}``,
``question{text, tokens}``, ``long_answer_candidates{start_token[], …}`` and
``annotations{long_answer[{…}], short_answers[{start_token[], …}], yes_no_answer[]}``, where
``yes_no_answer`` is 0 for NO, 1 for YES, -1 for none. Newer exports write lists of objects
instead of objects of lists; both are read.
"""

from __future__ import annotations

from typing import Any

from nq.formats import fields
from nq.formats.fields import Record, RecordError, get
from nq.formats.limits import LIMITS, RecordLimits
from nq.records import Example, YesNo

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


def decode(record: Record, limits: RecordLimits = LIMITS) -> Example:
    """Returns the example in a row.

    Raises:
        RecordError: A field is missing, of the wrong type, or out of range.
    """
    document = get(record, MARK, dict)
    items = get(document, "tokens", dict, list, where=MARK)
    tokens, is_html = fields.tokens(items, "is_html", TOKENS)
    annotations = record.get(ANNOTATIONS)
    lists: dict[str, list[Any]] = {
        CANDIDATES: _objects(get(record, CANDIDATES, dict, list), CANDIDATES),
        ANNOTATIONS: [] if annotations is None else _annotations(annotations),
    }
    candidates = fields.candidates(lists, len(tokens))
    first = items[0] if type(items) is list and items else items
    has_bytes = type(first) is dict and first.get("start_byte") is not None
    return Example(
        example_id=fields.example_id(record, "id"),
        question=get(get(record, "question", dict), "text", str, where="question"),
        tokens=tokens,
        is_html=is_html,
        candidates=candidates,
        annotations=fields.nq_gold(lists, len(candidates), len(tokens)),
        token_bytes=fields.token_bytes(items, len(tokens), TOKENS) if has_bytes else None,
        title=fields.optional_text(document, "title"),
    )


def _objects(value: Any, where: str) -> list[Any]:
    """Returns an object of lists as a list of objects; a list that is null is omitted.

    >>> _objects({"start": [1, 2], "end": [3, 4], "text": None}, "spans")
    [{'start': 1, 'end': 3}, {'start': 2, 'end': 4}]
    """
    if type(fields.check_type(value, where, dict, list)) is list:
        return list(value)
    columns = {name: column for name, column in value.items() if column is not None}
    for name, column in columns.items():
        fields.check_type(column, f"{where}.{name}", list)
    if len({len(column) for column in columns.values()}) > 1:
        lengths = ", ".join(f"{name} {len(column)}" for name, column in columns.items())
        raise RecordError(f"{where} has columns of different lengths: {lengths}")
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _annotations(value: Any) -> list[dict[str, Any]]:
    """Returns the annotations in the layout of NQ v1.0."""
    annotations = []
    for i, row in enumerate(_objects(value, ANNOTATIONS)):
        where = f"{ANNOTATIONS}[{i}]"
        code = get(row, "yes_no_answer", int, str, where=where, default=-1)
        if type(code) is int and code not in _YES_NO:
            raise RecordError(f"{where}.yes_no_answer must be 0 (NO), 1 (YES) or -1, found {code}")
        shorts = get(row, "short_answers", dict, list, where=where)
        annotations.append(
            {
                **row,
                "short_answers": _objects(shorts, f"{where}.short_answers"),
                "yes_no_answer": _YES_NO[code].value if type(code) is int else code,
            }
        )
    return annotations
