"""The dialect of a question with its context: lines of jsonl, and rows of CSV.

    {"id": 7, "question": "When was it built?", "context": "It was built in 1889.",
     "answers": [{"text": "1889", "answer_start": 16}]}

The context is a paragraph, or a page whose paragraphs are separated by blank lines. The gold is
optional, see ``nq.formats.text_gold``. SQuAD of Hugging Face has such records; SQuAD's own files
and MRQA are read as such records.
"""

from __future__ import annotations

from nq.formats import fields, text_gold
from nq.formats.documents import paragraphs
from nq.formats.fields import Record, RecordError, get
from nq.formats.limits import LIMITS, RecordLimits
from nq.records import Example, ExampleId, Page

NAME = "question and context"
MARK = "context"
QUESTION = "question"
ID_FIELDS = ("id", "qid", "question_id", "example_id")
NO_ID = ""
"""The id of a record without one; the reader of files gives it the name of its place."""


def decode(record: Record, limits: RecordLimits = LIMITS) -> Example:
    """Returns the example in a record.

    Raises:
        RecordError: A field is missing or of the wrong type, or the context lacks an answer that
            should be at a place.
    """
    text = get(record, MARK, str)
    limits.check(characters=len(text))
    if "qas" in record:
        raise RecordError(
            "found several questions in a line ('qas', MRQA) of a file whose first record has one: "
            "move it to a file of such records"
        )
    return with_page(record, paragraphs(text), f"field {MARK!r}", limits)


def with_page(record: Record, page: Page, name: str, limits: RecordLimits) -> Example:
    """Returns the example of a record whose page is read; errors call the page ``name``."""
    question = get(record, QUESTION, str)
    if not question.strip():
        raise RecordError(f"field {QUESTION!r} is empty")
    if all(page.example.is_html):
        raise RecordError(f"{name} has no words")
    example = Example(
        example_id=example_id(record),
        question=question,
        tokens=page.example.tokens,
        is_html=page.example.is_html,
        candidates=page.example.candidates,
        title=fields.optional_text(record, "title") or page.example.title,
        original=page.example.original,
    )
    return text_gold.with_gold(example, record, limits)


def example_id(record: Record) -> ExampleId:
    """Returns the id of a record, ``NO_ID`` if it has none."""
    name = next((name for name in ID_FIELDS if record.get(name) not in (None, "")), None)
    return NO_ID if name is None else fields.example_id(record, name)
