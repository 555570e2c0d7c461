"""Finds answers in texts as ``has_answer`` of DPR does: the same tokens, in any case of letters.

A token is a run of letters, digits and marks, or any other character alone, after normalization by
NFD. White space and control characters only separate tokens. So "J. K. Lind" is in "J.K. Lind", and
"19" is not in "1902". In scripts without blanks between words each letter is a token, where DPR has
a whole run: 東京 is in 東京都.

Source: Karpukhin et al. 2020, Dense Passage Retrieval (qa_validation.py and tokenizers.py).
"""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, cached_property
from typing import NamedTuple

from nq.records import Span
from nq.text import UNSPACED

_EDGE = "\n"
"""Stands between two texts like a token, so that no answer is in both."""


class Place(NamedTuple):
    """The pieces of an answer.

    ``is_whole`` tells whether these have no word beside the answer; "1.5" has one beside 5.
    """

    span: Span
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
        pieces: parts of words or words, with the blanks behind them.
        texts: the numbers of the pieces of each text. An answer may begin and end within a piece,
            but not be in two texts.
    """

    def __init__(self, pieces: Sequence[str], texts: Iterable[Iterable[int]]) -> None:
        tokens = list[str]()
        self._pieces = list[tuple[int, int]]()  # the first and the last of each token
        self._words = list[int]()  # the tokens with letters or digits
        for numbers in texts:
            text = ""
            piece_of = list[int]()  # of each character
            for number in numbers:
                piece = _normalize(pieces[number])
                text += piece
                piece_of += [number] * len(piece)
            for start, end, is_word in _tokens(text):
                if is_word:
                    self._words.append(len(tokens))
                tokens.append(text[start:end])
                self._pieces.append((piece_of[start], piece_of[end - 1]))
            tokens.append(_EDGE)
            self._pieces.append((-1, -1))
        self._as_is = f" {' '.join(tokens)} "

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

    def _place(self, first: int, last: int) -> Place:
        """Returns the place of an answer from its first to its last token."""
        first_piece = self._pieces[first][0]
        last_piece = self._pieces[last][1]
        begin = bisect_left(self._words, first)
        end = bisect_right(self._words, last)
        before = self._words[max(begin - 1, 0) : begin]
        behind = self._words[end : end + 1]
        is_whole = all(self._pieces[word][1] < first_piece for word in before)
        is_whole &= all(self._pieces[word][0] > last_piece for word in behind)
        return Place(Span(first_piece, last_piece + 1), is_whole)
