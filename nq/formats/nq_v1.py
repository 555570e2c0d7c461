"""NQ v1.0: tokens with bytes and an html flag (the downloads of the data set's site)."""

from __future__ import annotations

from typing import Any

from nq.formats.fields import (
    Record,
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
from nq.records import Example, IntArray

NAME = "NQ v1.0"
MARK = "document_tokens"


def decode(record: Record) -> Example:
    """The example in a v1.0 record.

    Raises:
        RecordError: a field is missing, of the wrong kind, or out of range.
    """
    items = get(record, MARK, list)
    is_html = get_column(items, "html_token", bool, MARK)
    tokens = without_blanks(get_column(items, "token", str, MARK), is_html)
    candidates = get_candidates(record, len(tokens))
    return Example(
        example_id=get_id(record),
        question=_question(record),
        tokens=tokens,
        is_html=is_html,
        candidates=candidates,
        annotations=get_annotations(record, candidates, len(tokens)),
        token_bytes=_token_bytes(items),
        title=get_text(record, "document_title"),
    )


def _question(record: Record) -> str:
    """``question_text``, which some exports leave out, or else the question's tokens."""
    if "question_text" in record or "question_tokens" not in record:
        return str(get(record, "question_text", str))
    words = get(record, "question_tokens", list)
    return " ".join(check(word, f"question_tokens[{i}]", str) for i, word in enumerate(words))


def _token_bytes(items: list[dict[str, Any]]) -> IntArray | None:
    """Start and end byte of each token; ``None`` for a page without bytes."""
    if not any("start_byte" in item for item in items):
        return None
    starts, ends = (get_column(items, name, int, MARK) for name in ("start_byte", "end_byte"))
    return byte_spans(starts, ends, MARK)
