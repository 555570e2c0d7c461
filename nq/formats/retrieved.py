"""Questions with the passages that a retriever found, which become the blocks of one page.

| from                           | fields of a record, and of a passage                            |
|--------------------------------|-----------------------------------------------------------------|
| DPR, FiD, Self-RAG             | ``answers``, ``ctxs``: ``id``, ``title``, ``text``              |
| Pyserini, by query id          | ``answers``, ``contexts``: ``docid``, ``text`` below the title  |
| FlashRAG, Search-R1            | ``golden_answers``, ``retrieval_result``: ``id``, ``contents``  |
| training files of DPR          | ``answers``, ``positive_ctxs``, ``hard_negative_ctxs``, …       |

A passage is a block in the order of the file, with its title as the heading, and may have a
``score``, which is a number or text. Gold is looked for in all passages, in a training file in the
positive ones, where its first place counts. Scores of training files are not read, since a positive
passage that people chose has one of its own there.
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
    return replace(page, annotations=tuple(places) or None, answers=example.answers)


def flat(record: Record) -> Record:
    """Returns a record with the fields of FlashRAG's ``output`` among its own."""
    output = record.get(OUTPUT)
    return {**record, **output} if type(output) is dict and "retrieval_result" in output else record


def _passages(record: Record, name: str) -> Iterator[_Text]:
    """Yields each passage with its text; a title may be the first line of the text."""
    for i, item in enumerate(get(record, name, list, type(None), default=None) or ()):
        where = f"{name}[{i}]"
        passage = check_type(item, where, dict)
        passage = passage | get(passage, "document", dict, where=where, default={})  # Search-R1
        text = get(passage, "text" if "text" in passage else "contents", str, where=where)
        title = get(passage, "title", str, type(None), where=where, default=None)
        if title is None:
            first, _, rest = text.partition("\n")
            title, text = (first.strip().strip('"'), rest) if rest.strip() else ("", text)
        ids = (same_id(passage[n]) for n in _IDS if type(passage.get(n)) in (int, str))
        score = None if name in TRAINING else _score(passage.get("score"), f"{where}.score")
        yield Passage(next(ids, None), " ".join(title.split()), i + 1, score), text


def _score(value: Any, where: str) -> float | None:
    with contextlib.suppress(ValueError, TypeError):
        if value is None or math.isfinite(score := float(value)):
            return None if value is None else score
    raise RecordError(f"{where} must be a finite number, found {value!r:.40}")


def _example(record: Record, passages: Iterable[_Text]) -> Example:
    """Returns the example with the page of these passages; those without words are no blocks."""
    builder, plain, blocks = PageBuilder(), "", list[Passage]()
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
