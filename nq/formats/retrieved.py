"""Questions with the passages that a retriever found, which become the blocks of one page.

| from                           | fields of a record, and of a passage                            |
|--------------------------------|-----------------------------------------------------------------|
| DPR, FiD, Self-RAG             | ``answers``, ``ctxs``: ``id``, ``title``, ``text``              |
| Pyserini, by query id          | ``answers``, ``contexts``: ``docid``, ``text`` below the title  |
| FlashRAG, Search-R1            | ``golden_answers``, ``retrieval_result``: ``id``, ``contents``  |
| training files of DPR          | ``answers``, ``positive_ctxs``, ``hard_negative_ctxs``, …       |
| RAGAS                          | ``reference``, ``retrieved_contexts``: texts                    |

A passage is a block in the order of the file, with its title as the heading, and may have a
``score``, which is a number or text. Gold is looked for in the texts of all passages, not in their
titles; in a training file in the positive ones, where its first place counts. Scores of training
files are not read, since a positive passage that people chose has one of its own there.
"""

import contextlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

from nq.formats import own_data
from nq.formats.fields import Record, RecordError, check_type, get, same_id
from nq.formats.html import PageBuilder
from nq.formats.words import located_words
from nq.records import Example, Passage

POSITIVE = "positive_ctxs"
FIELDS = ("ctxs", "contexts", "retrieval_result", POSITIVE)
"""The field with the passages, by which a record is known."""
TRAINING = (POSITIVE, "hard_negative_ctxs", "negative_ctxs")
OUTPUT = "output"
"""The field of FlashRAG's intermediate files that has the passages."""
TEXTS = "retrieved_contexts"
"""The field of RAGAS that has the passages, which are texts; before version 0.2 ``contexts``."""
QUESTIONS = (own_data.QUESTION, "user_input", "query")
GOLD_OF_TEXTS = (
    "answers",
    "golden_answers",
    "reference",
    "ground_truths",
    "ground_truth",
)
"""Fields with the gold beside texts; ``answer`` is that of the program that RAGAS evaluates."""
_IDS = ("id", "docid", "passage_id", "psg_id")
_Text = tuple[Passage, str]


def decode(record: Record) -> Example:
    """Returns the example in a record with passages."""
    name = next(name for name in FIELDS if record.get(name) is not None)
    example = _example(record, _passages(record, name))
    if name != POSITIVE:
        return example
    passages = chain.from_iterable(_passages(record, one) for one in TRAINING)
    places = sorted(example.annotations or (), key=lambda gold: gold.shorts)[:1]
    page = _example({**record, "answers": None}, passages)
    return replace(
        page,
        annotations=tuple(places) or None,
        answers=example.answers,
        answer_rank=example.answer_rank,
    )


def flat(record: Record) -> Record:
    """Returns a record of FlashRAG or RAGAS with the fields of the others."""
    output = record.get(OUTPUT)
    if type(output) is dict and "retrieval_result" in output:
        return {**record, **output}
    passages = None if record.get(own_data.CONTEXT) else record.get(TEXTS, record.get("contexts"))
    if type(passages) is not list or not all(type(passage) is str for passage in passages):
        return record
    if not passages and TEXTS not in record:
        return record
    question = _first(record, QUESTIONS)
    gold = _first(record, GOLD_OF_TEXTS)
    return {
        **record,
        "question": question,
        "contexts": passages,
        "answers": gold,
        "answer": None,
    }


def _first(record: Record, names: Iterable[str]) -> Any:
    """Returns the first of these fields that a record has, else ``None``."""
    return next(
        (record[name] for name in names if record.get(name) is not None),
        None,
    )


def _passages(record: Record, name: str) -> Iterator[_Text]:
    """Yields each passage with its text; a title may be the first line of the text."""
    names = ("contents", "text") if name == "retrieval_result" else ("text", "contents")
    for i, item in enumerate(get(record, name, list, type(None), default=None) or ()):
        where = f"{name}[{i}]"
        passage = {"text": item, "title": ""} if type(item) is str else item
        passage = check_type(passage, where, dict)
        passage = passage | get(passage, "document", dict, where=where, default={})  # Search-R1
        field = next((field for field in names if field in passage), names[0])
        text = get(passage, field, str, where=where)
        title = get(passage, "title", str, type(None), where=where, default=None)
        if title is None:
            first, _, rest = text.partition("\n")
            title, text = (_without_quotes(first.strip()), rest) if rest.strip() else ("", text)
        ids = (same_id(passage[n]) for n in _IDS if type(passage.get(n)) in (int, str))
        score = None if name in TRAINING else passage.get("score")
        score = None if score is None else _number(score, f"{where}.score")
        yield (
            Passage(next(ids, None), " ".join(title.split()), i + 1, score),
            text,
        )


def _without_quotes(title: str) -> str:
    """Returns a title without the pair of quotes around it; quotes in it stay.

    >>> _without_quotes('""Heroes" (album)"'), _without_quotes('"Heroes" (album)')
    ('"Heroes" (album)', '"Heroes" (album)')
    """
    is_quoted = len(title) > 1 and title.startswith('"') and title.endswith('"')
    return title[1:-1] if is_quoted else title


def _number(value: Any, where: str) -> float:
    with contextlib.suppress(ValueError, TypeError):
        if math.isfinite(number := float(value)):
            return number
    raise RecordError(f"{where} must be a finite number, found {value!r:.40}")


def _example(record: Record, passages: Iterable[_Text]) -> Example:
    """Returns the example with the page of these passages; those without words are no blocks."""
    builder = PageBuilder()
    plain = ""
    blocks = list[Passage]()
    for rank, (passage, text) in enumerate(passages, 1):
        parts = [part for part in (passage.title, text) if any(True for _ in located_words(part))]
        for tag, part in zip(("h2", "p")[-len(parts) :], parts, strict=False):
            builder.start(tag, {})
            builder.data(part, len(plain))
            builder.end(tag)
            plain += part + "\n"
        if parts:
            plain += "\n"
            blocks.append(replace(passage, rank=rank))
    page = builder.close(plain)
    example = replace(page.example, passages=tuple(blocks))
    return own_data.example(record, replace(page, example=example))
