"""Gold answers that are text, with or without their place: those of SQuAD, MRQA and own files.

| field                                       | from                      |
|---------------------------------------------|---------------------------|
| ``[{"text": …, "answer_start": 17}, …]``    | SQuAD                     |
| ``{"text": […], "answer_start": […]}``      | SQuAD of Hugging Face     |
| ``["one", "another spelling of it"]``, text | own files; ``answer`` too |

An answer with a place is one annotator's. One without a place is looked for in the page: each
place where its words are is as good as any other. If no answer is in the page, the gold is the text
alone. "yes" and "no" without a place are yes/no answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import orjson

from nq.formats.fields import Record, RecordError, check_type, get
from nq.formats.limits import LIMITS, RecordLimits
from nq.formats.words import words
from nq.records import Annotation, Example, IntArray, Original, Span, YesNo

FIELDS = ("answers", "answer")
IMPOSSIBLE = "is_impossible"
MAX_PLACES = 100
"""Places of one answer that are looked for."""
MAX_COMPARISONS = 500_000
"""Words of the page that are compared with the answers without a place; the answers after that
count as not in the page, so that no record takes hours."""
MAX_SHOWN_CHARS = 40
NO_ANSWER = Annotation(None, None, (), YesNo.NONE)
_TRUE = ("true", "1", "yes")


@dataclass(frozen=True, slots=True)
class TextAnswer:
    """A gold answer as text.

    Args:
        text: the answer.
        start: its first character in the plain text of the page, if it is known.
        end: the character after its last one.
        where: the path of the answer in its record.
    """

    text: str
    start: int | None
    end: int | None
    where: str


def with_gold(example: Example, record: Record, limits: RecordLimits = LIMITS) -> Example:
    """Returns an example with the gold of its record, if the record has any.

    Raises:
        RecordError: A field has another type, or an answer is not at its place.
    """
    answers = _answers(record)
    if answers is None:
        return example
    limits.check(answers=len(answers))
    texts = tuple(dict.fromkeys(answer.text for answer in answers))
    return replace(example, answers=texts, annotations=_annotations(example, answers))


def _answers(record: Record) -> list[TextAnswer] | None:
    """Returns the answers of a record: empty if it says that there is none, else ``None``."""
    impossible = record.get(IMPOSSIBLE)
    if impossible is True or str(impossible).strip().lower() in _TRUE:
        return []
    name = next((name for name in FIELDS if record.get(name) not in (None, "")), None)
    if name is None:
        return None
    value = _parsed(record[name])
    if type(value) is dict:
        texts = get(value, "text", list, where=name)
        starts = get(value, "answer_start", list, where=name, default=[None] * len(texts))
        if len(texts) != len(starts):
            raise RecordError(f"{name} has {len(texts)} texts, but {len(starts)} answer_starts")
        value = [{"text": t, "answer_start": s} for t, s in zip(texts, starts, strict=True)]
    elif type(value) is not list:
        start = record.get("answer_start")
        return [_answer({"text": value, "answer_start": start}, name)]
    return [_answer(item, f"{name}[{i}]") for i, item in enumerate(value)]


def _parsed(value: Any) -> Any:
    """Returns a value of CSV that is JSON as what it means, any other value as it is."""
    if type(value) is str and value[:1] in ("[", "{"):
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError:
            return value
    return value


def _answer(item: Any, where: str) -> TextAnswer:
    if type(item) is not dict:
        item = {"text": item}
    text = str(check_type(item.get("text"), f"{where}.text", str, int, float, bool))
    start, end = (
        _index(item.get(name), f"{where}.{name}") for name in ("answer_start", "answer_end")
    )
    return TextAnswer(text, start, end, where)


def _index(value: Any, where: str) -> int | None:
    """Returns a place, which CSV has as text; ``None`` if there is none."""
    if type(value) is str and value.strip().isascii() and value.strip().isdigit():
        value = int(value.strip()[:19])
    return None if value in (None, "") else int(check_type(value, where, int))


def _annotations(example: Example, answers: Sequence[TextAnswer]) -> tuple[Annotation, ...] | None:
    if not answers:
        return (NO_ANSWER,)
    page, found = _Page(example), list[Annotation]()
    for answer in answers:
        yes_no = answer.text.strip().upper()
        if answer.start is not None:
            found.append(page.around(page.placed(answer, answer.start)))
        elif yes_no in (YesNo.YES, YesNo.NO):
            found.append(replace(page.only_block(), yes_no=YesNo(yes_no)))
        else:
            found += map(page.around, page.places(answer))
    return tuple(found) or None


class _Page:
    """The words of an example's page, in which answers are looked for."""

    def __init__(self, example: Example) -> None:
        self.example = example
        self._comparisons = MAX_COMPARISONS
        self.words = np.flatnonzero(~np.array(example.is_html, np.bool_))

    def only_block(self) -> Annotation:
        """Returns the page's block as the long answer, if it has only one."""
        candidates = self.example.candidates
        if len(candidates) != 1:
            return NO_ANSWER
        return replace(NO_ANSWER, long=candidates[0].span, candidate=0)

    def around(self, short: Span) -> Annotation:
        """Returns the annotation with a short answer, and the top-level block around it."""
        block = int(self._block_of_token[short.start])
        if block >= 0 and self.example.candidates[block].span.contains(short):
            return Annotation(self.example.candidates[block].span, block, (short,), YesNo.NONE)
        return Annotation(None, None, (short,), YesNo.NONE)

    @cached_property
    def _block_of_token(self) -> IntArray:
        """The top-level candidate of each token, -1 for none; they do not overlap."""
        blocks = np.full(len(self.example.tokens), -1)
        for i, candidate in enumerate(self.example.candidates):
            if candidate.top_level:
                blocks[candidate.span.start : candidate.span.end] = i
        return blocks

    def placed(self, answer: TextAnswer, start: int) -> Span:
        """Returns the tokens of an answer whose place is given; it is extended to whole tokens."""
        original, text = self.example.original, answer.text
        if original is None or original.plain is None:
            raise RecordError(
                f"{answer.where} has a place, but the page is no plain text: remove it"
            )
        end = start + len(text) if answer.end is None else answer.end
        found = original.plain[max(start, 0) : max(end, 0)]
        if _letters(found) != _letters(text) or start < 0:
            shown, there = (repr(t[:MAX_SHOWN_CHARS]) for t in (text, found))
            raise RecordError(
                f"the context lacks an answer: {answer.where} is {shown}, but at character {start} "
                f"there is {there}; correct the place, or leave it out so that it is looked for"
            )
        return self._tokens(original, start, end, answer.where)

    def places(self, answer: TextAnswer) -> list[Span]:
        """Returns where the words of an answer are, in the same case or else in any."""
        wanted = [word for word, _ in words(answer.text)]
        starts = self._starts.get(wanted[0].casefold(), ()) if wanted else ()
        starts = starts[: max(self._comparisons, 0)]
        self._comparisons -= (
            len(starts) + len(self.words) // 10
        )  # the latter for the search in text
        tokens = [i for i in starts if self._equal(i, wanted, str.casefold)]
        same_case = [i for i in tokens if self._equal(i, wanted, str)]
        spans = [self._span(i, i + len(wanted)) for i in (same_case or tokens)[:MAX_PLACES]]
        original, text = self.example.original, answer.text.strip()
        if spans or not wanted or original is None or original.plain is None:
            return spans
        if self._comparisons < 0:
            return []
        start = original.plain.find(text)
        return [] if start < 0 else [self._tokens(original, start, start + len(text), answer.where)]

    @cached_property
    def _starts(self) -> Mapping[str, Sequence[int]]:
        """The indices of the words that are equal in any case."""
        starts: dict[str, list[int]] = {}
        for i, token in enumerate(self.words.tolist()):
            starts.setdefault(self.example.tokens[token].casefold(), []).append(i)
        return starts

    def _equal(self, start: int, wanted: Sequence[str], same: Callable[[str], str]) -> bool:
        there = self.words[start : start + len(wanted)]
        return len(there) == len(wanted) and all(
            same(self.example.tokens[token]) == same(word)
            for token, word in zip(there, wanted, strict=True)
        )

    def _tokens(self, original: Original, start: int, end: int, where: str) -> Span:
        first = int(np.searchsorted(original.chars[self.words, 1], start, "right"))
        last = int(np.searchsorted(original.chars[self.words, 0], end, "left"))
        if first >= last:
            raise RecordError(f"{where}: there is no word at characters [{start}, {end})")
        return self._span(first, last)

    def _span(self, first: int, last: int) -> Span:
        """Returns the tokens of a range of words."""
        return Span(int(self.words[first]), int(self.words[last - 1]) + 1)


def _letters(text: str) -> str:
    """Returns what must be equal in an answer and in its place: all but white space and case."""
    return "".join(text.split()).casefold()
