"""Gold answers of SQuAD, MRQA and own files: text with or without its place.

| field                                       | from                      |
|---------------------------------------------|---------------------------|
| ``[{"text": …, "answer_start": 17}, …]``    | SQuAD                     |
| ``{"text": […], "answer_start": […]}``      | SQuAD of Hugging Face     |
| ``detected_answers`` with ``char_spans``    | MRQA                      |
| ``["one", "another spelling of it"]``, text | own files; ``answer`` too |
| ``"['one', 'another spelling of it']"``     | CSV, by pandas or as JSON |

A span of MRQA, ``[12, 20]`` or on the hub ``{"start": 12, "end": 20}``, ends with its last
character.

One without a place is looked for in the page, as whole words and inside of one block: each place is
as good as any other, and as the places that are given. It may have any case of letters, on a page
that no retriever found only where it is nowhere in the same. If no answer is in the page, the gold
is the text alone. "yes" and "no" without a place, and booleans, are yes/no answers. Empty texts
alone mean that there is no answer.
"""

import ast
import contextlib
import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from nq.formats.answer_search import AnswerSearch
from nq.formats.fields import (
    LIMITS,
    Record,
    RecordError,
    check_type,
    get,
    objects,
)
from nq.formats.lines import json_value
from nq.formats.words import located_words, span_at
from nq.records import Annotation, Example, Span, YesNo

FIELDS = ("answers", "golden_answers", "answer")
DETECTED = "detected_answers"
IMPOSSIBLE = "is_impossible"
PLACES: tuple[str, str] = ("answer_start", "answer_end")
MAX_PLACES = 100
"""Places of one answer that are gold."""
MAX_FOUND_PLACES = 1000
"""Places of one answer that are looked at, those in parts of words included."""
MAX_CELL_CHARS = 100_000  # of a list in Python, which takes a hundred times as many bytes to read
_TRUE = ("true", "1", "1.0", "yes")
_NUMPY = re.compile(
    r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|\b(?:array|np\.\w+)\(|(?:,\s*dtype=[^)]*)?\)"""
)
"""A string of Python as a group, or what numpy writes around values."""
_WHOLE = re.compile(r"\s*(-?\d{1,18})(?:\.0*)?\s*", re.ASCII)


class TextAnswer(NamedTuple):
    """A gold answer as text, its characters in the page if given, and its path in the record."""

    text: str
    start: int | None
    end: int | None
    where: str


def with_gold(example: Example, record: Record) -> Example:
    """Returns an example with the gold of its record, if the record has any."""
    answers = _answers(record)
    if answers is None:
        return example
    LIMITS.check(answers=len(answers))
    page = _Page(example)
    gold = list[Annotation]()
    for answer in answers:
        yes_no = answer.text.strip().upper()
        if answer.start is not None:
            gold.append(page.annotation(page.placed(answer, answer.start)))
        elif yes_no not in (YesNo.YES, YesNo.NO):
            gold += map(page.annotation, page.places(answer))
        else:
            one = example.candidates[0].span if len(example.candidates) == 1 else None
            gold.append(Annotation(one, None if one is None else 0, (), YesNo(yes_no)))
    if not answers:
        gold.append(Annotation(None, None, (), YesNo.NONE))
    all_texts = tuple(dict.fromkeys(answer.text for answer in answers))
    annotations = tuple(gold) or None
    rank = page.first_rank(all_texts)
    return replace(example, answers=all_texts, annotations=annotations, answer_rank=rank)


def texts(record: Record) -> tuple[str, ...]:
    """Returns the gold answers of a record as text; a ``RecordError`` says that it has no gold."""
    answers = _answers(record)
    if answers is None:
        raise RecordError(f"no gold: expected a field {' or '.join(map(repr, FIELDS))}")
    return tuple(dict.fromkeys(answer.text for answer in answers))


def _answers(record: Record) -> list[TextAnswer] | None:
    """Returns the answers of a record; empty if it says that there is none."""
    if str(record.get(IMPOSSIBLE)).strip().lower() in _TRUE:
        return []
    if record.get(DETECTED) is not None:
        record = {**record, "answers": _detected(record)}
    name = next((name for name in FIELDS if record.get(name) not in (None, "")), None)
    if name is None:
        return None
    value = _cell(record[name], name)
    if type(value) is not list or all(type(item) is not dict for item in value):
        columns = value if type(value) is dict else {**record, "text": value}
        places = {n: place for n in PLACES if (place := _cell(columns.get(n), n)) is not None}
        value = {"text": columns.get("text"), **places}
        value = objects({name: value}, name) if type(value["text"]) is list else value
    several = enumerate(value) if type(value) is list else [("", value)]
    answers = [_answer(item, f"{name}[{i}]".removesuffix("[]")) for i, item in several]
    filled = [answer for answer in answers if answer.text]
    if filled and filled != answers:
        raise RecordError(f"{name} has an empty text beside others: remove it, or the others")
    return filled


def _detected(record: Record) -> list[Any]:
    """Returns the answers of MRQA with their places, and then those that are not in the context."""
    placed = []
    for i, item in enumerate(objects(record, DETECTED)):
        where = f"{DETECTED}[{i}].char_spans"
        text = get(item, "text", str, where=f"{DETECTED}[{i}]")
        for span in objects(item, "char_spans", f"{DETECTED}[{i}]"):
            ends = [span.get("start"), span.get("end")] if type(span) is dict else span
            if len(check_type(ends, where, list)) != 2:
                raise RecordError(f"{where} has {len(ends)} numbers, expected first and last")
            first, last = (check_type(number, where, int) for number in ends)
            placed.append({"text": text, "answer_start": first, "answer_end": last + 1})
    texts = {item["text"] for item in placed}
    return [
        *placed,
        *(one for one in get(record, "answers", list, default=[]) if one not in texts),
    ]


def _cell(value: Any, name: str) -> Any:
    """Returns the list or the object in a cell of CSV, by JSON or Python; other values as they are.

    >>> _cell("{'text': array(['1986'], dtype=object), 'answer_start': [np.int64(3)]}", "answers")
    {'text': ['1986'], 'answer_start': [3]}
    """
    if type(value) is not str or value.strip()[:1] + value.strip()[-1:] not in (
        "[]",
        "{}",
    ):
        return None if value == "" else value
    with contextlib.suppress(RecordError):
        return json_value(value.encode())
    plain = _NUMPY.sub(r"\1", value.strip()[:MAX_CELL_CHARS])
    with contextlib.suppress(ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        parsed = ast.literal_eval(plain)
        if _letters(repr(parsed)) == _letters(plain):  # ['a' 'b'] of numpy would be one text
            return parsed
    raise RecordError(f"field {name!r} is no list or object of JSON or Python: write it as JSON")


def _answer(item: Any, where: str) -> TextAnswer:
    if type(item) is not dict:
        item = {"text": item}
    text = check_type(item.get("text"), f"{where}.text", str, int, float, bool)
    is_boolean = text in ("True", "False") and item.get("answer_start") in (
        None,
        "",
    )
    if is_boolean or (type(text) is float and text.is_integer()):  # as pandas writes yes, or 1986
        raise RecordError(f"{where} is {text}, which can be read in two ways: write yes, or 1986")
    if type(text) is bool:
        text = "yes" if text else "no"
    start, end = (_index(item, place) for place in PLACES)
    return TextAnswer(str(text), start, end, where)


def _index(item: Record, name: str) -> int | None:
    """Returns a place, which CSV has as text, and pandas as 137.0; ``None`` if there is none."""
    value = item.get(name)
    if match := _WHOLE.fullmatch(str(value)):
        return int(match[1])
    return None if value in (None, "") else int(check_type(value, name, int))


class _Page:
    """The words of an example's page, in which answers are looked for."""

    def __init__(self, example: Example) -> None:
        self.example = example
        self.passages = example.passages
        self.words = np.flatnonzero(~np.array(example.is_html, np.bool_))
        self.blocks = [i for i, block in enumerate(example.candidates) if block.top_level]
        self.block_starts = [example.candidates[i].span.start for i in self.blocks]
        original = example.original
        self.spelling = example.tokens if original is None else original.spelling

    def annotation(self, short: Span) -> Annotation:
        """Returns the annotation with a short answer, and the top-level block around it."""
        before = bisect_right(self.block_starts, short.start)  # blocks do not overlap
        for block in self.blocks[max(before - 1, 0) : before]:
            span = self.example.candidates[block].span
            if span.contains(short):
                return Annotation(span, block, (short,), YesNo.NONE)
        return Annotation(None, None, (short,), YesNo.NONE)

    def placed(self, answer: TextAnswer, start: int) -> Span:
        """Returns the tokens of an answer whose place is given; it is extended to whole tokens."""
        original = self.example.original
        if original is None or original.plain is None:
            raise RecordError(f"{answer.where} has a place, but the page is no plain text")
        if start < 0:
            raise RecordError(f"{answer.where} has the place {start}: expected one from 0, or none")
        end = start + len(answer.text) if answer.end is None else answer.end
        there = original.plain[start : max(end, 0)]
        if _letters(there) != _letters(answer.text):
            raise RecordError(
                f"the context lacks an answer: {answer.where} is {answer.text!r:.40}, but at "
                f"character {start} there is {there!r:.40}; correct the place, or leave it out"
            )
        span = span_at(original.chars, self.words, start, end)
        if span is None:
            raise RecordError(f"{answer.where}: there is no word at characters [{start}, {end})")
        return span

    def places(self, answer: TextAnswer) -> list[Span]:
        """Returns where an answer is in whole words, in the same case or else in any.

        In passages of a retriever it may be in any, as DPR looks for it; there the text is looked
        for as it is, so that answers are retrieved where DPR says so. On other pages the words are
        compared, in which the forms of quotes, hyphens and letters do not count.
        """
        text = answer.text
        cases = [False]
        if self.passages is None:
            text = " ".join(word for word, *_ in located_words(text))
            cases = [True, False]
        for same_case in cases:
            places = islice(
                self._search.find(text, same_case=same_case),
                MAX_FOUND_PLACES,
            )
            whole = [place for place in places if place.is_whole]
            if whole:
                return [place.span for place in whole[:MAX_PLACES]]
        return []

    def first_rank(self, texts: Iterable[str]) -> int | None:
        """Returns the rank of the first passage with one of these texts, as DPR looks for them.

        Parts of a word count here, such as 5 in "1.5"; ``None`` without passages or such a text.
        """
        if self.passages is None:
            return None
        places = (next(self._search.find(text), None) for text in texts)
        found = (self.example.passage(place.span) for place in places if place is not None)
        return min((passage.rank for passage in found if passage is not None), default=None)

    @cached_property
    def _search(self) -> AnswerSearch:
        if self.passages is None:
            return AnswerSearch([f"{token} " for token in self.example.tokens], self._texts())
        return AnswerSearch(self.spelling, self._texts())

    def _texts(self) -> list[list[int]]:
        """The words of each line of each block: a heading, paragraph, item or row.

        The titles of passages are left out.
        """
        texts = list[list[int]]()
        for number, block in enumerate(self.blocks):
            lines: list[list[int]] = [[]]
            span = self.example.candidates[block].span
            for i in range(span.start, span.end):
                if not self.example.is_html[i]:
                    lines[-1].append(i)
                if self.spelling[i].endswith("\n"):
                    lines.append([])
            title = self.passages[number].title if self.passages else ""
            has_title = any(True for _ in located_words(title))
            texts += list(filter(None, lines))[has_title:]
        return texts


def _letters(text: str) -> str:
    """Returns what must be equal in an answer and in its place: all but white space and case."""
    return "".join(text.split()).casefold()
