"""The dialect simplified NQ (the training file, Kaggle): tokens joined by single spaces."""

from __future__ import annotations

from nq.formats import fields
from nq.formats.fields import Record, get
from nq.formats.limits import LIMITS, RecordLimits
from nq.records import Example

NAME = "simplified NQ"
MARK = "document_text"


def is_tag(token: str) -> bool:
    """Returns whether a token as a whole is an HTML tag, that is, matches ``<[^>]*>``.

    >>> [is_tag(t) for t in ("<P>", "</Td>", '<Th_colspan="2">', "<3", "a<b>", "<a>b>")]
    [True, True, True, False, False, False]
    """
    return token[:1] == "<" and token.find(">") == len(token) - 1


def decode(record: Record, limits: RecordLimits = LIMITS) -> Example:
    """Returns the example in a simplified record.

    Raises:
        RecordError: A field is missing, of the wrong type, or out of range.
    """
    text = get(record, MARK, str)
    limits.check(characters=len(text), tokens=text.count(" ") + 1)
    tokens = text.split(" ")
    candidates = fields.candidates(record, len(tokens))
    return Example(
        example_id=fields.example_id(record),
        question=get(record, "question_text", str),
        tokens=tokens,
        is_html=[is_tag(token) for token in tokens],
        candidates=candidates,
        annotations=fields.nq_gold(record, len(candidates), len(tokens)),
        title=fields.optional_text(record, "document_title"),
    )
