"""The blocks of a page, and the features of each that are known before the model runs.

One is the lexical overlap of question and block, BM25 within the page:

    score(block) = sum over words w of the question of
                   idf(w) * tf * (k + 1) / (tf + k * (1 - b + b * length / mean length))
    idf(w) = log(1 + (n - df + 0.5) / (df + 0.5))

with tf the count of w in the block, df the number of blocks that contain it, and n the number of
blocks. Robertson and Zaragoza 2009, The Probabilistic Relevance Framework: BM25 and Beyond. Another
is log(n), by whose weight a block of a long page needs more evidence than one of a short page. The
third bends that line: it is log(FEW / n) on pages of fewer than FEW blocks and 0 on others. The
fourth is the score that a retriever gave a passage, in standard deviations from the mean of the
page.

The others tell where a block stands in an article of Wikipedia, and are 0 on all other pages:
log(1 + place) with place 0 for the first block with text, whether it precedes the first heading of
a section (the lead), and log(1 + words) less its mean over the blocks. In Natural Questions the
first paragraph is the long answer of 38 % of the questions that have one (Kwiatkowski et al. 2019).
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Self

import numpy as np

from nq.config import RankingWeights
from nq.records import Example, FloatArray, IntArray, Span
from nq.text import ABBREVIATIONS, terms

BOILERPLATE = (("^",), ("Jump", "up"), ("This", "page", "was", "last", "edited"))
"""First words of Wikipedia's notes, references and page footers, which are never answers."""
K = 1.2
B = 0.75
FEW = 8
"""The pages to which the decision of `small` was fitted have that many, but for a few."""
MIN_HEADINGS = 3
"""Headings of sections that a page has at least if it is a whole article."""
_HEADING = re.compile("<(/?)H[2-6]>")


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """The blocks of a page that may be answers.

    Args:
        of_token: ``[T]`` candidate index of the block of each document token, -1 for none.
        candidates: ``[B]`` candidate indices of the blocks; blocks without words are left out.
        features: ``[B, 7]`` in the order of ``RankingWeights.block_vector``.
        parts: ``[T]`` number of the sentence, cell or item of each document token, ascending.
    """

    of_token: IntArray
    candidates: IntArray
    features: FloatArray
    parts: IntArray

    @classmethod
    def of(cls, example: Example) -> Self:
        of_token = block_of_token(example)
        is_word = ~np.array(example.is_html, np.bool_)
        candidates = np.unique(of_token[(of_token >= 0) & is_word])
        spans = [example.candidates[i].span for i in candidates.tolist()]
        page_length = np.full(len(spans), np.log(max(1, len(spans))))
        columns = [
            bm25(example.question, (lower_words(example, span) for span in spans)),
            page_length,
            np.maximum(0.0, np.log(FEW) - page_length),
            retriever_scores(example)[candidates],
            place_features(example, spans),
        ]
        with_text = np.where(np.isin(of_token, candidates), of_token, -1)
        parts = np.cumsum(part_starts(example))
        return cls(with_text, candidates, np.column_stack(columns), parts)

    def only(self, candidates: IntArray) -> Self:
        kept = np.isin(self.candidates, candidates)
        of_token = np.where(np.isin(self.of_token, candidates), self.of_token, -1)
        return type(self)(of_token, self.candidates[kept], self.features[kept], self.parts)

    def prior(self, weights: RankingWeights) -> FloatArray:
        """Returns the part of each block's utility that is known before the model runs."""
        return self.features @ weights.block_vector()


def retriever_scores(example: Example) -> FloatArray:
    """Returns the standardized score of the retriever for each candidate.

    All are 0 where a passage has no score, or all have the same.
    """
    scores = np.array([one.score for one in example.passages or ()], np.float64)
    spread = scores.std() if len(scores) else 0.0
    if not spread > 0:  # it is NaN if a score is None
        return np.zeros(len(example.candidates))
    return np.asarray((scores - scores.mean()) / spread)


def place_features(example: Example, spans: Sequence[Span]) -> FloatArray:
    """Returns log(1 + place), lead and relative log(1 + words) of the blocks with text, ``[B, 3]``.

    All are 0 unless the page is an article: a page of Wikipedia with ``MIN_HEADINGS`` different
    headings of sections, and not the passages of a retriever.
    """
    headings = section_headings(example)
    is_wiki = example.is_wiki and example.passages is None
    if not (is_wiki and spans and len(set(headings.values())) >= MIN_HEADINGS):
        return np.zeros((len(spans), 3))
    starts = np.array([span.start for span in spans])
    is_text = ~np.array(example.is_html, np.bool_)
    words = [is_text[span.start : span.end].sum() for span in spans]
    log_words = np.log1p(words)
    place = np.log1p(np.argsort(np.argsort(starts)))
    return np.column_stack([place, starts < min(headings), log_words - log_words.mean()])


def section_headings(example: Example) -> dict[int, str]:
    """Returns the text of the headings below the title (H2 to H6) by their first tokens."""
    if example.original is not None:
        return _headings_in_blocks(example, example.original.spelling)
    headings = dict[int, str]()
    start = None
    for i, token in enumerate(example.tokens):
        tag = example.is_html[i] and _HEADING.fullmatch(token.upper())
        if tag and not tag[1]:
            start = i
        elif tag and start is not None:
            headings[start] = " ".join(example.tokens[start + 1 : i])
            start = None
    return headings


def _headings_in_blocks(
    example: Example,
    spelling: Sequence[str],
) -> dict[int, str]:
    """Returns the headings of a document below its title by the first tokens of their blocks.

    They are lines at the beginning of a block; the title is such a line of the first one.
    """
    headings = dict[int, str]()
    for candidate in example.candidates:
        span = candidate.span
        words = [i for i in range(span.start, span.end) if not example.is_html[i]]
        ends = [n for n, i in enumerate(words) if spelling[i].endswith("\n")]
        if candidate.top_level and ends:
            headings[span.start] = " ".join(example.tokens[i] for i in words[: ends[-1] + 1])
    title = min(headings, default=None)
    return {start: text for start, text in headings.items() if start != title}


def blocks_in_windows(example: Example, token_map: IntArray) -> Blocks:
    """Returns the blocks of a page that have a word in a window; ``token_map`` is ``[W, L]``."""
    blocks = Blocks.of(example)
    return blocks.only(np.unique(blocks.of_token[token_map[token_map >= 0]]))


def lower_words(example: Example, span: Span) -> list[str]:
    """Returns the words of a span as ``nq.text.terms`` does, without the tags."""
    tokens = example.tokens
    html = example.is_html
    words = " ".join(tokens[t] for t in range(span.start, span.end) if not html[t])
    return terms(words.replace(" n't", "n't"))  # one word of a question, two of a page


def bm25(question: str, blocks: Iterable[Sequence[str]]) -> FloatArray:
    """Returns the BM25 score of each block of ``terms``; the blocks are read once.

    >>> bm25("Who wrote it?", [["she", "wrote", "it"], ["it", "rains"]]).round(2).tolist()
    [0.81, 0.2]
    """
    question_terms = set(terms(question))
    sizes = list[int]()
    counts: dict[str, Counter[int]] = {word: Counter() for word in sorted(question_terms)}
    for number, words in enumerate(blocks):
        sizes.append(len(words))
        for word in words:
            if word in question_terms:
                counts[word][number] += 1
    lengths = np.array(sizes, np.float64)
    total = np.zeros(len(sizes))
    norm = K * (1 - B + B * lengths / max(lengths.mean(), 1.0)) if sizes else lengths
    for count in counts.values():
        idf = np.log1p((len(sizes) - len(count) + 0.5) / (len(count) + 0.5))
        rows = np.array(list(count), np.int64)
        tf = np.array(list(count.values()), np.float64)
        total[rows] += idf * tf * (K + 1) / (tf + norm[rows])
    return total


def block_of_token(example: Example) -> IntArray:
    """Returns for each document token the first top-level candidate that contains it, ``[T]``.

    The value is -1 outside of all blocks, and in Wikipedia's notes, references and footers.
    """
    block = np.full(len(example.tokens), -1)
    candidates = list(enumerate(example.candidates))
    for index, candidate in reversed(candidates):
        if candidate.top_level:
            span = candidate.span
            inside = range(span.start, span.end)
            words = (example.tokens[i] for i in inside if not example.is_html[i])
            first = tuple(islice(words, max(map(len, BOILERPLATE))))
            boilerplate = example.is_wiki and any(first[: len(b)] == b for b in BOILERPLATE)
            block[span.start : span.end] = -1 if boilerplate else index
    return block


def part_starts(example: Example) -> IntArray:
    """Returns ``[T]`` 1 for each tag and for the first word of each line and sentence, else 0.

    A sentence ends with a full stop that precedes a capital letter and follows no abbreviation. A
    single letter is an initial, unless the page has it more often without a full stop (Kiss and
    Strunk 2006, Unsupervised Multilingual Sentence Boundary Detection).
    """
    tokens = example.tokens
    starts = np.array(example.is_html, np.int64)
    if example.original is not None:  # a heading is a line above its block
        for i, word in enumerate(example.original.spelling[:-1]):
            starts[i + 1] |= word.endswith("\n")
    letters = Counter(
        (token[0], "." in (token[1:], following))
        for token, following in pairwise(tokens)
        if token[1:] in ("", ".") and token.isupper() and token[0] not in "AI"
    )
    for i in range(2, len(tokens) - 2):
        token = tokens[i]
        following = tokens[i + 1]
        if token[-1:] not in (".", "?", "!") or len(token) > 2:  # U.S. is longer
            continue
        word = token[:-1]
        before = tokens[i - 1]
        if not word:
            word = before
            before = tokens[i - 2]
        ends = word not in ABBREVIATIONS and "." not in word
        if len(word) == 1 and word.isalpha():
            is_name = letters[word, True] >= letters[word, False] or not before.islower()
            ends = not is_name or (before == "in" and tokens[i + 2][:1].islower())
        elif token != ".":
            ends = word.islower()  # "Yahoo! Inc" is a name
        first = i + 2 if following in ("''", ")") else i + 1
        starts[first] |= ends and tokens[first][:1].isupper()
    return starts
