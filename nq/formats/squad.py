"""Files of SQuAD and of the MRQA shared task: contexts, each with several questions.

SQuAD 1.1 and 2.0 are one JSON document, which is read article by article:

    {"version": "v2.0", "data": [{"title": …, "paragraphs": [{"context": …, "qas": [
        {"id": …, "question": …, "is_impossible": false,
         "answers": [{"text": …, "answer_start": 17}]}, …]}, …]}, …]}

In place of articles, ``data`` may have the questions themselves, each with its context.

MRQA is jsonl:

    {"header": {"dataset": "SQuAD", "split": "train"}}
    {"id": "", "context": …, "qas": [{"qid": …, "question": …, "answers": ["the Tower", …],
        "detected_answers": [{"text": "the Tower", "char_spans": [[12, 20]]}, …]}, …]}

Each question is a record of ``nq.formats.own_data``; records are numbered by question.
"""

import re
from collections.abc import Iterator
from typing import Any

from nq.formats import elements, lines
from nq.formats.fields import Record, RecordError, get, optional_text
from nq.formats.own_data import QUESTION

DATA = "data"
_MAY_BE_MRQA = re.compile(rb"\s*\{\s*\"(?:header|context|qas|id)\"\s*:")

Questions = Iterator[Record | RecordError]


def is_mrqa(path: str, head: bytes) -> bool:
    """Returns whether the first object in the lines of a file is one of MRQA."""
    if not _MAY_BE_MRQA.match(head) and b'"qas"' not in head:
        return False
    record = lines.first_record(path)
    return type(record.get("qas")) is list or _is_header(record)


def squad_questions(path: str) -> Questions:
    """Yields the questions of a SQuAD document."""
    for number, article in elements.rows(path, DATA, "document_"):
        yield from _article(article, f"{DATA}[{number - 1}]")


def _article(text: lines.Row, where: str) -> Questions:
    try:
        article = lines.parsed(text, "document_")
        if "paragraphs" not in article and QUESTION in article:
            yield article
            return
        paragraphs = get(article, "paragraphs", list)
    except RecordError as error:
        yield RecordError(f"{where}: {error}")
        return
    for i, paragraph in enumerate(paragraphs):
        title = optional_text(article, "title")
        yield from _questions(paragraph, title, f"{where}.paragraphs[{i}]")


def mrqa_questions(path: str) -> Questions:
    """Yields the questions of an MRQA file."""
    for number, line in lines.rows(path):
        try:
            record = lines.parsed(line)
        except RecordError as error:
            yield RecordError(f"line {number}: {error}")
            continue
        if not _is_header(record):
            yield from _questions(record, optional_text(record, "title"), f"line {number}")


def _is_header(record: Record) -> bool:
    return type(record.get("header")) is dict and "context" not in record


def _questions(paragraph: Any, title: str, where: str) -> Questions:
    """Yields the questions of a paragraph as records, each with the context."""
    try:
        questions = get(paragraph, "qas", list, where=where)
        context = get(paragraph, "context", str, where=where) if questions else ""
    except RecordError as error:
        yield error
        return
    for i, question in enumerate(questions):
        if type(question) is dict:
            yield {**question, "context": context, "title": title}
        else:
            yield RecordError(f"{where}.qas[{i}] must be an object, found {question!r:.40}")
