"""TyDi QA: plain text in eleven languages, passages and answers as UTF-8 byte offsets.

The text becomes tokens, and offsets become spans of them:

- Words are split at white space, between letters and symbols, and where a number or a word in
  Latin letters meets another script. Scripts that put no blanks between words (Thai, Chinese,
  Japanese) give one token a character, combining marks included; Katakana, which spells whole
  names, one a run. What is split does not depend on the gold.
- A passage is a paragraph: it stands between ``<P>`` and ``</P>``, tokens of no bytes, so that
  the bytes of its span are the file's, and so that a model meets the markers that it knows.
- An answer that begins or ends inside a token is widened to it.

A passage answer is a long answer, a minimal answer a short one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from nq.formats.fields import (
    Record,
    RecordError,
    get,
    get_candidate_index,
    get_id,
    get_text,
    get_yes_no,
)
from nq.records import Annotation, Candidate, Example, IntArray, Span

NAME = "TyDi QA"
MARK = "document_plaintext"
START, END = "plaintext_start_byte", "plaintext_end_byte"
OPEN, CLOSE = "<P>", "</P>"
# One letter a character: l Latin, d digit, w other letter, k Katakana, s a script without
# blanks, m combining mark or joiner, b blank, o other.
TOKEN = re.compile("[ld][ldm]*|w[wm]*|km*(?:k+m*)*|[som]m*")
_WITHOUT_BLANKS = (
    *("THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN", "CJK", "HIRAGANA", "BOPOMOFO", "YI", "TAI"),
    *("JAVANESE", "BALINESE", "NEW"),
)
_JOINERS = ("\u200c", "\u200d")
_WIDER_FROM = (0x80, 0x800, 0x10000)


class _Kinds(dict[int, str]):
    """The letter for each character, as ``str.translate`` wants it; see ``TOKEN``."""

    def __missing__(self, code: int) -> str:
        self[code] = _kind(chr(code))
        return self[code]


def _kind(char: str) -> str:
    category, script = unicodedata.category(char), unicodedata.name(char, "").split(" ")[0]
    if char.isspace() or category[0] == "Z":
        return "b"
    if category[0] == "M" or char in _JOINERS:
        return "m"
    if category == "Nd":
        return "d"
    if category[0] != "L":
        return "o"
    if script.startswith("KATAKANA"):
        return "k"
    return "l" if script == "LATIN" else "s" if script in _WITHOUT_BLANKS else "w"


_KINDS = _Kinds()


def split(text: str) -> list[tuple[int, int]]:
    """Start and end, in characters, of the tokens of a text.

    >>> [text := "In 1994년에 (서울)", [text[a:b] for a, b in split(text)]][1]
    ['In', '1994', '년에', '(', '서울', ')']
    """
    return [match.span() for match in TOKEN.finditer(text.translate(_KINDS))]


def decode(record: Record) -> Example:
    """The example in a TyDi QA record.

    Raises:
        RecordError: a field is missing, of the wrong kind, or out of range.
    """
    page = _Page(get(record, MARK, str))
    passages = [
        page.place(item, f"passage_answer_candidates[{i}]")
        for i, item in enumerate(get(record, "passage_answer_candidates", list))
    ]
    layout = _layout(page, passages)
    return Example(
        example_id=get_id(record),
        question=get(record, "question_text", str),
        tokens=layout.tokens,
        is_html=layout.is_html,
        candidates=layout.candidates,
        annotations=_annotations(record, page, layout),
        token_bytes=layout.token_bytes,
        title=get_text(record, "document_title"),
    )


class _Page:
    """A text and where each of its characters lies in UTF-8."""

    def __init__(self, text: str) -> None:
        self.text = text
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        widths = 1 + sum((codes >= limit).astype(np.int64) for limit in _WIDER_FROM)
        self.byte_of_char: IntArray = np.concatenate([[0], np.cumsum(widths)])

    def place(self, item: Any, where: str) -> tuple[int, int]:
        """Start and end character of a non-null byte span."""
        start, end = (get(item, name, int, where=where) for name in (START, END))
        n_bytes = int(self.byte_of_char[-1])
        if end < start:
            raise RecordError(f"{where} ends at byte {end}, before its start {start}")
        if start < 0 or end > n_bytes:
            raise RecordError(f"{where} [{start}, {end}) lies outside the {n_bytes} bytes")
        return self._char(start, where), self._char(end, where)

    def _char(self, byte: int, where: str) -> int:
        char = int(np.searchsorted(self.byte_of_char, byte))
        if self.byte_of_char[char] != byte:
            raise RecordError(f"{where}: byte {byte} lies in the middle of a character")
        return char


@dataclass(frozen=True, slots=True, eq=False)
class _Layout:
    """A page as tokens, the tags of its passages among them."""

    tokens: Sequence[str]
    is_html: Sequence[bool]
    token_bytes: IntArray
    candidates: Sequence[Candidate]
    find: Callable[[int, int], Span | None]


def _layout(page: _Page, passages: Sequence[tuple[int, int]]) -> _Layout:
    """Cuts a page at its passages, puts tags there, and splits what lies between."""
    tokens: list[str] = []
    chars: list[tuple[int, int]] = []
    first, last = [0] * len(passages), [0] * len(passages)

    def tag(spelled: str, char: int) -> int:
        tokens.append(spelled)
        chars.append((char, char))
        return len(tokens)

    closing: dict[int, list[int]] = {}
    opening: dict[int, list[int]] = {}
    for number in sorted(range(len(passages)), key=lambda n: passages[n][0] - passages[n][1]):
        start, end = passages[number]
        opening.setdefault(start, []).append(number)
        if end > start:
            closing.setdefault(end, []).insert(0, number)
    cuts = sorted({0, len(page.text), *opening, *closing})
    for cut, following in pairwise([*cuts, len(page.text)]):
        for number in closing.get(cut, ()):
            last[number] = tag(CLOSE, cut)
        for number in opening.get(cut, ()):
            first[number] = tag(OPEN, cut) - 1
            if passages[number][1] == cut:
                last[number] = tag(CLOSE, cut)
        for start, end in split(page.text[cut:following]):
            tokens.append(page.text[cut + start : cut + end])
            chars.append((cut + start, cut + end))
    if not tokens:
        tokens, chars = [""], [(0, 0)]
    spans = np.array(chars, np.int64)
    is_html = spans[:, 0] == spans[:, 1]
    words = np.flatnonzero(~is_html)

    def find(start: int, end: int) -> Span | None:
        """The words that hold some of the characters from ``start`` to ``end``."""
        a = int(np.searchsorted(spans[words, 1], start, "right"))
        b = int(np.searchsorted(spans[words, 0], end, "left"))
        return Span(int(words[a]), int(words[b - 1]) + 1) if a < b else None

    return _Layout(
        tokens,
        is_html.tolist(),
        page.byte_of_char[spans],
        [Candidate(Span(a, b), top_level=True) for a, b in zip(first, last, strict=True)],
        find,
    )


def _annotations(record: Record, page: _Page, layout: _Layout) -> tuple[Annotation, ...] | None:
    if record.get("annotations") in (None, []):
        return None
    items = get(record, "annotations", list)
    return tuple(
        _annotation(item, page, layout, f"annotations[{i}]") for i, item in enumerate(items)
    )


def _annotation(item: Any, page: _Page, layout: _Layout, where: str) -> Annotation:
    passage = get(item, "passage_answer", dict, where=where)
    number = get_candidate_index(passage, len(layout.candidates), f"{where}.passage_answer")
    minimal = get(item, "minimal_answer", dict, where=where)
    short = _minimal_answer(minimal, page, layout, f"{where}.minimal_answer")
    return Annotation(
        None if number is None else layout.candidates[number].span,
        number,
        () if short is None else (short,),
        get_yes_no(item, where),
    )


def _minimal_answer(item: Any, page: _Page, layout: _Layout, where: str) -> Span | None:
    if [get(item, name, int, where=where) for name in (START, END)] == [-1, -1]:
        return None
    start, end = page.place(item, where)
    span = layout.find(start, end) if start < end else None
    if span is None:
        raise RecordError(f"{where} [{item[START]}, {item[END]}) holds no word")
    return span
