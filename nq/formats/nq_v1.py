"""NQ v1.0: tokens with bytes and an html flag (the downloads of the data set's site)."""

from __future__ import annotations

import numpy as np

from nq.formats.fields import (
    Record,
    RecordError,
    get,
    get_annotations,
    get_candidates,
    get_id,
)
from nq.records import Example

NAME = "NQ v1.0"
MARK = "document_tokens"


def decode(record: Record) -> Example:
    """The example in a v1.0 record.

    Raises:
        RecordError: a field is missing, of the wrong kind, or out of range.
    """
    items = get(record, "document_tokens", list)
    try:
        tokens = [item["token"].replace(" ", "") for item in items]
        is_html = [bool(item["html_token"]) for item in items]
        spans = [(item.get("start_byte", -1), item.get("end_byte", -1)) for item in items]
        token_bytes = np.array(spans, np.int64).reshape(-1, 2)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise RecordError(f"document_tokens: a token lacks its text or html flag ({error})") from error
    candidates = get_candidates(record, len(tokens))
    return Example(
        example_id=get_id(record),
        question=get(record, "question_text", str),
        tokens=tokens,
        is_html=is_html,
        candidates=candidates,
        annotations=get_annotations(record, candidates, len(tokens)),
        token_bytes=token_bytes,
        title=str(record.get("document_title", "")),
    )
