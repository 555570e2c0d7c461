"""Finds answers in texts as ``has_answer`` of DPR does: the same tokens, in any case of letters.

A token is a run of letters, digits and marks, or any other character alone, after normalization by
NFD. White space and control characters only separate tokens. So "J. K. Lind" is in "J.K. Lind", and
"19" is not in "1902". In scripts without blanks between words each letter is a token, where DPR has
a whole run: 東京 is in 東京都.

Source: Karpukhin et al. 2020, Dense Passage Retrieval (qa_validation.py and tokenizers.py).
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache, cached_property
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nq.text import UNSPACED

BoolArray = NDArray[np.bool_]
_EDGE = "\n"
"""Stands between two texts like a token, so that no answer is in both."""


class Place(NamedTuple):
    """Where an answer is: the index of its first and of its last piece.

    ``is_whole`` tells whether these have no word beside the answer; "1.5" has one beside 5.
    """

    first: int
    last: int
    is_whole: bool


@cache
def _pattern() -> re.Pattern[str]:
    basic = map(chr, range(0x300, 0x10000))  # a set with others is searched one by one
    marks = "".join(c for c in basic if unicodedata.category(c)[0] == "M")
    run = rf"(?>(?:[^\W_{UNSPACED}]+|[{marks}]+)+)"
    letter = f"[{UNSPACED}][{marks}]*"
    return re.compile(rf"({run}|{letter})|\S")


def _tokens(text: str) -> list[tuple[int, int, bool]]:
    """Returns the range of each token in a normalized text, and whether it has letters or digits.

    >>> [text[start:end] for text in ["J.K. Lind, 東京"] for start, end, _ in _tokens(text)]
    ['J', '.', 'K', '.', 'Lind', ',', '東', '京']
    """
    return [
        (*match.span(), match.lastindex is not None)
        for match in _pattern().finditer(text)
        if match.lastindex or unicodedata.category(match[0])[0] != "C"
    ]


def _normalize(text: str) -> str:
    return unicodedata.normalize("NFD", text)


class AnswerSearch:
    """Texts in which answers are looked for.

    Args:
        texts: the pieces of each text, such as its words with the blanks behind them. An answer may
            begin and end within a piece, but not be in two texts.
    """

    def __init__(self, texts: Iterable[Iterable[str]]) -> None:
        tokens = list[str]()
        located = list[tuple[int, int, bool]]()
        piece_starts = list[int]()
        begin = 0
        for pieces in texts:
            normalized = [_normalize(piece) for piece in pieces]
            piece_starts += accumulate(map(len, normalized[:-1]), initial=begin)
            text = "".join(normalized)
            for start, end, is_word in _tokens(text):
                tokens.append(text[start:end])
                located.append((begin + start, begin + end - 1, is_word))
            begin += len(text)
            tokens.append(_EDGE)
            located.append((begin, begin, False))
        self._as_is = f" {' '.join(tokens)} "
        columns = np.array(located, np.int64).reshape(-1, 3)
        self._first_piece, self._last_piece = (
            np.searchsorted(piece_starts, columns[:, i], "right") - 1 for i in (0, 1)
        )
        self._words = np.flatnonzero(columns[:, 2])

    def find(self, answer: str, *, same_case: bool = False) -> Iterator[Place]:
        """Yields the places of an answer in the order of the texts; none of one without tokens."""
        answer = _normalize(answer)
        tokens = [answer[start:end] for start, end, _ in _tokens(answer)]
        if not tokens:
            return
        text = self._as_is if same_case else self._lower
        phrase = f" {' '.join(tokens)} "
        phrase = phrase if same_case else phrase.lower()
        index = searched = 0
        start = text.find(phrase)
        while start >= 0:
            index += text.count(" ", searched, start)
            searched = start
            yield self._place(index, index + len(tokens) - 1)
            start = text.find(phrase, start + 1)

    @cached_property
    def _lower(self) -> str:
        return self._as_is.lower()

    @cached_property
    def _is_whole(self) -> tuple[BoolArray, BoolArray]:
        """Whether no word is before, and behind, each token in the same piece."""
        index = np.arange(len(self._first_piece))
        n_before = np.searchsorted(self._words, index)
        n_until = np.searchsorted(self._words, index, "right")
        last_pieces = np.concatenate([[-1], self._last_piece[self._words]])
        first_pieces = np.concatenate([self._first_piece[self._words], [len(index)]])
        return last_pieces[n_before] < self._first_piece, first_pieces[n_until] > self._last_piece

    def _place(self, first: int, last: int) -> Place:
        """Returns the place of an answer from its first to its last token."""
        begins, ends = self._is_whole
        is_whole = bool(begins[first] and ends[last])
        return Place(int(self._first_piece[first]), int(self._last_piece[last]), is_whole)
