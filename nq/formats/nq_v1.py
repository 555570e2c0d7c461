"""The dialect NQ v1.0: tokens with bytes and an HTML flag, as in the official downloads."""

from __future__ import annotations

from nq.formats import fields
from nq.formats.fields import Record, get
from nq.formats.limits import LIMITS, RecordLimits
from nq.records import Example

NAME = "NQ v1.0"
MARK = "document_tokens"


def decode(record: Record, limits: RecordLimits = LIMITS) -> Example:
    """Returns the example in a record of NQ v1.0.

    Raises:
        RecordError: A field is missing, of the wrong type, or out of range.
    """
    items = get(record, MARK, list)
    tokens, is_html = fields.tokens(items, "html_token", MARK)
    candidates = fields.candidates(record, len(tokens))
    has_bytes = any("start_byte" in item for item in items)
    return Example(
        example_id=fields.example_id(record),
        question=_question(record),
        tokens=tokens,
        is_html=is_html,
        candidates=candidates,
        annotations=fields.nq_gold(record, len(candidates), len(tokens)),
        token_bytes=fields.token_bytes(items, len(tokens), MARK) if has_bytes else None,
        title=fields.optional_text(record, "document_title"),
    )


def _question(record: Record) -> str:
    """Returns ``question_text`` or, as some exports omit it, the joined question tokens."""
    if "question_text" in record or "question_tokens" not in record:
        return str(get(record, "question_text", str))
    words = get(record, "question_tokens", list)
    return " ".join(
        fields.check_type(word, f"question_tokens[{i}]", str) for i, word in enumerate(words)
    )
