"""Simplified NQ (the training file and Kaggle): one text, tokens between single blanks."""

from __future__ import annotations

from nq.formats.fields import (
    Record,
    get,
    get_annotations,
    get_candidates,
    get_id,
    get_text,
)
from nq.records import Example

NAME = "simplified NQ"
MARK = "document_text"


def is_tag(token: str) -> bool:
    """Whether a token as a whole is an HTML tag, that is, matches ``<[^>]*>``.

    >>> [is_tag(t) for t in ("<P>", "</Td>", '<Th_colspan="2">', "<3", "a<b>", "<a>b>")]
    [True, True, True, False, False, False]
    """
    return token[:1] == "<" and token.find(">") == len(token) - 1


def decode(record: Record) -> Example:
    """The example in a simplified record.

    Raises:
        RecordError: a field is missing, of the wrong kind, or out of range.
    """
    tokens = get(record, MARK, str).split(" ")
    candidates = get_candidates(record, len(tokens))
    return Example(
        example_id=get_id(record),
        question=get(record, "question_text", str),
        tokens=tokens,
        is_html=[is_tag(token) for token in tokens],
        candidates=candidates,
        annotations=get_annotations(record, candidates, len(tokens)),
        title=get_text(record, "document_title"),
    )
