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

An answer with a place is one annotator's. One without a place is looked for in the page: each
place where its words are is as good as any other. In passages of a retriever they may be in any
case of letters, elsewhere only where they are nowhere in the same. If no answer is in the page, the
gold is the text alone. "yes" and "no" without a place, and booleans, are yes/no answers. Empty
texts alone mean that there is no answer.
"""

import ast
import contextlib
import re
from bisect import bisect_right
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from nq.formats.fields import LIMITS, Record, RecordError, check_type, get, objects
from nq.formats.lines import json_value
from nq.formats.words import located_words, span_at
from nq.records import Annotation, Example, Span, YesNo

FIELDS = ("answers", "golden_answers", "answer")
DETECTED = "detected_answers"
IMPOSSIBLE = "is_impossible"
PLACES: tuple[str, str] = ("answer_start", "answer_end")
MAX_PLACES = 100
"""Places of one answer that are looked for."""
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
    page, gold = _Page(example), list[Annotation]()
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
    return replace(example, answers=all_texts, annotations=tuple(gold) or None)


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
    return [*placed, *(one for one in get(record, "answers", list, default=[]) if one not in texts)]


def _cell(value: Any, name: str) -> Any:
    """Returns the list or the object in a cell of CSV, by JSON or Python; other values as they are.

    >>> _cell("{'text': array(['1986'], dtype=object), 'answer_start': [np.int64(3)]}", "answers")
    {'text': ['1986'], 'answer_start': [3]}
    """
    if type(value) is not str or value.strip()[:1] + value.strip()[-1:] not in ("[]", "{}"):
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
    is_boolean = text in ("True", "False") and item.get("answer_start") in (None, "")
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
        self.words = np.flatnonzero(~np.array(example.is_html, np.bool_))
        self.blocks = [i for i, block in enumerate(example.candidates) if block.top_level]
        self.block_starts = [example.candidates[i].span.start for i in self.blocks]
        original = example.original
        self.plain = None if original is None else original.plain

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
        text = answer.text
        if self.plain is None:
            raise RecordError(f"{answer.where} has a place, but the page is no plain text")
        if start < 0:
            raise RecordError(f"{answer.where} has the place {start}: expected one from 0, or none")
        end = start + len(text) if answer.end is None else answer.end
        there = self.plain[start : max(end, 0)]
        if _letters(there) != _letters(text):
            raise RecordError(
                f"the context lacks an answer: {answer.where} is {text!r:.40}, but at character "
                f"{start} there is {there!r:.40}; correct the place, or leave it out"
            )
        return self._tokens(start, end, answer.where)

    def places(self, gold: TextAnswer) -> list[Span]:
        """Returns where the words of an answer are, in the same case or else in any.

        In passages of a retriever they are in any, as DPR looks for them.
        """
        words = [word for word, *_ in located_words(gold.text)]
        if not words:
            return []
        answer = f" {' '.join(words)} "
        searches = [*zip(self._texts, (answer, answer.casefold()), strict=True)]
        for page, phrase in searches if self.example.passages is None else searches[1:]:
            spans, first, before, at = list[Span](), 0, 0, page.find(phrase)
            while at >= 0 and len(spans) < MAX_PLACES:
                first, before = first + page.count(" ", before, at), at
                last = self.words[first + len(words) - 1]
                spans.append(Span(int(self.words[first]), int(last) + 1))
                at = page.find(phrase, at + 1)
            if spans:
                return spans
        text = gold.text.strip()
        start = -1 if self.plain is None else self.plain.find(text)
        return [] if start < 0 else [self._tokens(start, start + len(text), gold.where)]

    @cached_property
    def _texts(self) -> tuple[str, str]:
        """The words with a blank before and after each, as they are and in one case."""
        page = f" {' '.join(self.example.tokens[i] for i in self.words.tolist())} "
        return page, page.casefold()

    def _tokens(self, start: int, end: int, where: str) -> Span:
        original = self.example.original
        span = None if original is None else span_at(original.chars, self.words, start, end)
        if span is None:
            raise RecordError(f"{where}: there is no word at characters [{start}, {end})")
        return span


def _letters(text: str) -> str:
    """Returns what must be equal in an answer and in its place: all but white space and case."""
    return "".join(text.split()).casefold()
