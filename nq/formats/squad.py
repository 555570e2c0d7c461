"""SQuAD 1.1 and 2.0: a file is one JSON document of articles, paragraphs and questions.

    {"version": "v2.0", "data": [{"title": …, "paragraphs": [{"context": …, "qas": [
        {"id": …, "question": …, "is_impossible": false,
         "answers": [{"text": …, "answer_start": 17}]}, …]}, …]}, …]}

Each question is a record of the dialect ``passages``; records are numbered by question. The
document is read as a whole, within the limits of ``RecordLimits``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from nq.formats.fields import Record, RecordError, get, optional_text
from nq.formats.limits import LIMITS, RecordLimits
from nq.formats.lines import BOM, DAMAGED, open_bytes, parse_line, share_of

_SCALAR = rb"\"(?:[^\"\\]|\\.)*+\"|[\w.+-]++"
_START = re.compile(
    rb"\s*+\{\s*+(?:\"[^\"\\]*+\"\s*+:\s*+(?:" + _SCALAR + rb")\s*+,\s*+)*+\"data\"\s*+:\s*+\["
)


def matches(path: str, head: bytes) -> bool:
    """Returns whether a file that begins with ``head`` is one of SQuAD."""
    return bool(_START.match(head))


def check(path: str) -> None:
    """Does nothing: a damaged document is a bad record."""


def rows(
    path: str,
    share: tuple[int, int] = (0, 1),
    limit: int | None = None,
    limits: RecordLimits = LIMITS,
) -> Iterator[tuple[int, Record | RecordError]]:
    """Yields the questions of a file with their numbers, from 1; see ``parquet.rows``."""
    return share_of(enumerate(_questions(path, limits), 1), share, limit)


def _questions(path: str, limits: RecordLimits) -> Iterator[Record | RecordError]:
    try:
        with open_bytes(path) as file:
            data = file.read(limits.document_bytes + 1)
        document = parse_line(data.removeprefix(BOM), limits, ("document_bytes", "document_values"))
        del data
        articles = get(document, "data", list)
    except RecordError as error:
        yield error
        return
    except DAMAGED as error:
        yield RecordError(f"the compressed file is cut off or damaged: {error}")
        return
    for i, article in enumerate(articles):
        where = f"data[{i}]"
        try:
            paragraphs = get(article, "paragraphs", list, where=where)
        except RecordError as error:
            yield error
            continue
        title = optional_text(article, "title")
        for j, paragraph in enumerate(paragraphs):
            yield from questions_of(paragraph, title, f"{where}.paragraphs[{j}]")


def questions_of(paragraph: Any, title: str, where: str) -> Iterator[Record | RecordError]:
    """Yields the questions of a paragraph as records, each with the context.

    Args:
        paragraph: an object with ``context`` and ``qas``.
        title: of its article.
        where: its path, for errors.
    """
    try:
        context = get(paragraph, "context", str, where=where)
        questions = get(paragraph, "qas", list, where=where)
    except RecordError as error:
        yield error
        return
    for i, question in enumerate(questions):
        if type(question) is dict:
            yield {**question, "context": context, "title": title}
        else:
            yield RecordError(f"{where}.qas[{i}] must be an object, found {question!r:.40}")
