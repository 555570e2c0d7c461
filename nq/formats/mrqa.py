"""The format of the MRQA shared task: lines of jsonl, each a context with several questions.

    {"header": {"dataset": "SQuAD", "split": "train"}}
    {"id": "", "context": …, "qas": [{"qid": …, "question": …, "answers": ["the Tower", …],
        "detected_answers": [{"text": "the Tower", "char_spans": [[12, 20]]}, …]}, …]}

The end of a span is its last character. Each question is a record of the dialect ``passages``;
records are numbered by question.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

import orjson

from nq.formats.fields import Record, RecordError, check_type, get, optional_text
from nq.formats.limits import LIMITS, RecordLimits
from nq.formats.lines import nonblank_lines, parse_line, share_of
from nq.formats.squad import questions_of

MAX_LINES = 100
_LIKELY = re.compile(rb"\s*\{\s*\"(?:header|context|qas|id)\"\s*:")


def matches(path: str, head: bytes) -> bool:
    """Returns whether the first object in the lines of a file is one of MRQA."""
    if not _LIKELY.match(head):
        return False
    for _, line in islice(nonblank_lines(path, LIMITS), MAX_LINES):
        try:
            record = orjson.loads(line) if isinstance(line, bytes) else None
        except orjson.JSONDecodeError:
            continue
        if type(record) is dict:
            return type(record.get("qas")) is list or _is_header(record)
    return False


def _is_header(record: Record) -> bool:
    return type(record.get("header")) is dict and "context" not in record


def check(path: str) -> None:
    """Does nothing: a damaged line is a bad record."""


def rows(
    path: str,
    share: tuple[int, int] = (0, 1),
    limit: int | None = None,
    limits: RecordLimits = LIMITS,
) -> Iterator[tuple[int, Record | RecordError]]:
    """Yields the questions of a file with their numbers, from 1; see ``parquet.rows``."""
    return share_of(enumerate(_questions(path, limits), 1), share, limit)


def _questions(path: str, limits: RecordLimits) -> Iterator[Record | RecordError]:
    for number, line in nonblank_lines(path, limits):
        try:
            if isinstance(line, RecordError):
                raise line
            record = parse_line(line, limits)
        except RecordError as error:
            yield RecordError(f"line {number}: {error}")
            continue
        if _is_header(record):
            continue
        for question in questions_of(record, optional_text(record, "title"), f"line {number}"):
            yield _with_places(question) if isinstance(question, dict) else question


def _with_places(record: dict[str, Any]) -> Record | RecordError:
    """Returns a question with the places of its answers as ``nq.formats.text_gold`` reads them."""
    if record.get("detected_answers") is None:
        return record
    try:
        detected = [
            {"text": get(item, "text", str, where=where), **_place(place, where)}
            for i, item in enumerate(get(record, "detected_answers", list))
            for where in [f"detected_answers[{i}]"]
            for place in get(item, "char_spans", list, where=where)
        ]
        answers = get(record, "answers", list, default=[])
    except RecordError as error:
        return error
    texts = {item["text"] for item in detected}
    return {**record, "answers": [*detected, *(text for text in answers if text not in texts)]}


def _place(value: Any, where: str) -> dict[str, int]:
    if len(check_type(value, f"{where}.char_spans", list)) != 2:
        raise RecordError(f"{where}.char_spans has {len(value)} numbers, expected first and last")
    first, last = (check_type(number, f"{where}.char_spans", int) for number in value)
    return {"answer_start": first, "answer_end": last + 1}
