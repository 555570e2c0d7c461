"""Tests which windows a reader computes, and the scores of a cascade."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.config import CascadeDecision, CascadeWeights
from nq.formats.fields import RecordError
from nq.inference.cascade import (
    WINDOWS_PER_BLOCK,
    CascadeScorer,
    SelectedWindows,
    max_context_windows,
    rank_blocks,
    select,
)
from nq.inference.rescore import RescoringScorer
from nq.inference.scorer import Rows, Steps, concatenate, example_scores, no_value
from nq.postprocess.blocks import Blocks, blocks_in_windows
from nq.postprocess.ranking import decision_margin, rank
from nq.preprocess.features import window_ranges
from nq.records import (
    READER_WINDOW,
    SCORE_COLUMNS,
    Candidate,
    CascadeScores,
    Columns,
    Example,
    Features,
    IntArray,
    Span,
    WindowScores,
)
from tests.inference.table_scorer import (
    LENGTH,
    K,
    Pages,
    TableScorer,
    page_token_map,
    pages,
    random_scores,
)
from tests.postprocess import synthetic_pages

READER_LENGTH = 20
each_width = st.integers(1, 2 * K)


@dataclass(eq=False)
class ReaderScorer(TableScorer):
    """A scorer that looks up the scores of windows by their first piece."""

    def steps(self, rows: Rows, examples: Sequence[Example]) -> Steps:
        return super().steps({"numbers": rows["input_ids"]}, examples)


def reader_token_map(seed: int, token_map: IntArray) -> IntArray:
    """Returns other windows of the words in a token map, with other pieces."""
    draw = np.random.default_rng([seed, 1])
    words = np.array(list(dict.fromkeys(token_map[token_map >= 0].tolist())), int)
    pieces = np.repeat(words, draw.integers(1, 3, len(words)))
    spans = window_ranges(len(pieces), READER_LENGTH - 3, int(draw.integers(3, READER_LENGTH)))
    result = np.full((max(1, len(spans)), READER_LENGTH), -1)
    for row, (start, end) in zip(result, spans, strict=False):
        row[2 : 2 + end - start] = pieces[start:end]
    return result


@dataclass(frozen=True, eq=False, repr=False)  # its text would have all arrays
class TwoModels:
    """Pages with the windows and scores of two models.

    Args:
        pages: with those of the ranker.
        maps: token map of the reader, of each page.
        table: scores of all windows of the reader, page after page.
        decision: of both models.
    """

    pages: Pages
    maps: Sequence[IntArray]
    table: WindowScores
    decision: CascadeDecision

    def features(self, example: Example) -> Features:
        """Returns the reader's windows; their first piece is their row in the table."""
        n = [e is example for e in self.pages.examples].index(True)
        token_map, first = self.maps[n], sum(map(len, self.maps[:n]))
        numbers = np.arange(len(token_map))
        ids = np.broadcast_to(first + numbers[:, None], token_map.shape)
        return Features(example.example_id, ids, ids, ids, token_map, numbers, len(numbers))

    def scorer(self) -> CascadeScorer:
        ranker, reader = TableScorer(self.pages.table), ReaderScorer(self.table)
        return CascadeScorer(ranker, reader, self.features, self.decision)

    def with_scores(self, seed: int) -> TwoModels:
        """Returns the same pages with other scores of both models."""
        of_ranker = random_scores(self.pages.rows["token_map"], seed)
        width = self.table.start_doc.shape[1]
        of_reader = random_scores(np.concatenate(self.maps), seed + 1, k=width)
        return replace(self, pages=replace(self.pages, table=of_ranker), table=of_reader)

    def selection(self, number: int) -> SelectedWindows:
        """Returns what the reader computes of a page."""
        example, page = self.pages.examples[number], self.pages.slices[number]
        blocks, scores = blocks_in_windows(example, self.maps[number]), self.pages.scores_of(page)
        return select(example, scores, self.maps[number], self.decision, blocks)


@st.composite
def two_models(draw: st.DrawFn, max_pages: int = 3) -> TwoModels:
    some = draw(pages(1, max_pages))
    some.rows["example_keys"] = np.concatenate(
        [np.full((page.stop - page.start, 2), (0, n)) for n, page in enumerate(some.slices)]
    )
    maps = [
        reader_token_map(int(example.example_id), some.rows["token_map"][page])
        for example, page in zip(some.examples, some.slices, strict=True)
    ]
    table = random_scores(np.concatenate(maps), draw(st.integers(0, 999)), k=draw(each_width))
    weights = CascadeWeights(
        evidence=0.3, short_evidence=0.4, block_score=draw(st.sampled_from([0.0, 0.5]))
    )
    read = draw(st.integers(1, 6))
    decision = CascadeDecision(weights=weights, read_blocks=read, first=some.decision)
    return TwoModels(some, maps, table, decision)


def slow_context(token_map: IntArray, window: int, token: int) -> int:
    """Returns the largest context of a token in a window."""
    words = [pos for pos, t in enumerate(token_map[window].tolist()) if t >= 0]
    places = [pos for pos, t in enumerate(token_map[window].tolist()) if t == token]
    return max(min(pos - words[0], words[-1] - pos) for pos in places)


@given(st.integers(0, 2**32 - 1))
def test_a_word_is_read_in_the_first_window_with_the_most_context(seed: int) -> None:
    token_map = page_token_map(np.random.default_rng(seed))
    actual = max_context_windows(token_map)
    assert len(actual) == token_map.max(initial=-1) + 1
    for token, window in enumerate(actual.tolist()):
        holding = np.flatnonzero((token_map == token).any(axis=1)).tolist()
        if not holding:
            assert window == -1
            continue
        assert window == max(holding, key=lambda w: (slow_context(token_map, w, token), -w))


def words_by_block(example: Example, token_map: IntArray) -> dict[int, set[int]]:
    """Returns the words of each block that are in the windows."""
    blocks, words = Blocks.of(example), dict[int, set[int]]()
    for token in set(token_map[token_map >= 0].tolist()):
        if blocks.of_token[token] in blocks.candidates:
            words.setdefault(int(blocks.of_token[token]), set()).add(token)
    return words


@given(two_models(max_pages=1))
def test_blocks_are_read_if_they_are_among_the_best_or_all_their_words_are(two: TwoModels) -> None:
    example, token_map, limit = two.pages.examples[0], two.maps[0], two.decision.read_blocks
    blocks = blocks_in_windows(example, token_map)
    windows, ranges = two.selection(0)
    present = words_by_block(example, token_map)
    assert set(blocks.candidates.tolist()) == present.keys()
    best = rank_blocks(example, two.pages.table, two.pages.decision, blocks, limit)
    of_word = max_context_windows(token_map)
    if len(present) <= limit:
        assert windows.tolist() == list(range(len(token_map)))
    else:
        assert len(best) == limit and len(windows) <= WINDOWS_PER_BLOCK * limit
    for block, starts in best.items():  # of each its best span
        own = {of_word[token] for token in present[block]}
        assert next((w for w in of_word[starts] if w in own), windows[0]) in windows
    computed = set(token_map[windows].ravel().tolist())
    expected = {c for c, words in present.items() if words <= computed or c in best}
    read = {c for first, end in ranges.tolist() for c in range(first, end)}
    assert expected <= read
    words = list(dict.fromkeys(token_map[token_map >= 0].tolist()))
    if words == sorted(words):  # contexts are in the order of the page
        assert read & present.keys() == expected


def test_of_a_long_block_the_windows_with_the_best_spans_are_read() -> None:
    tokens = np.arange(60)
    best_first = tokens[[55, 45, 35, 25, 15]]  # single words, in windows 5 to 1
    start = np.full((1, 61), -9.0)
    start[0, 1 + best_first] = range(5, 0, -1)
    doc = np.append(-1, tokens)[None]
    logits = synthetic_pages.Logits(start, start, np.ones((1, 5)), doc)
    scores = synthetic_pages.window_scores(logits, 5, text_only=True)
    candidates = [Candidate(Span(0, 58), True), Candidate(Span(58, 60), True)]
    example = Example(7, "who", ["a"] * 60, [False] * 60, candidates)
    token_map = tokens.reshape(6, 10)
    decision = CascadeDecision(read_blocks=1)
    blocks = blocks_in_windows(example, token_map)
    windows, _ = select(example, scores, token_map, decision, blocks)
    assert windows.tolist() == [2, 3, 4, 5]


@given(two_models())
def test_a_cascade_has_the_scores_of_both_models(two: TwoModels) -> None:
    scorer, completed = two.scorer(), list[int]()
    columns = scorer.scores(two.pages.rows, two.pages.examples, completed.append)
    is_read = columns[READER_WINDOW] >= 0
    firsts = np.cumsum([0, *map(len, two.maps)])
    selections = [two.selection(n) for n in range(len(two.maps))]
    rows = np.concatenate([first + s[0] for first, s in zip(firsts, selections, strict=False)])
    for name in SCORE_COLUMNS:
        of_reader = getattr(two.table, name)[rows]
        for read, expected in ((~is_read, getattr(two.pages.table, name)), (is_read, of_reader)):
            width = expected.shape[1]
            np.testing.assert_array_equal(columns[name][read, :width], expected)
            assert (columns[name][read, width:] == no_value(name)).all()
    numbers = np.concatenate([selection[0] for selection in selections])
    assert columns[READER_WINDOW][is_read].tolist() == numbers.tolist()
    assert sum(completed) == len(two.pages.rows["numbers"])
    assert scorer.reader.counters.computed_windows == len(rows)
    for n, page in enumerate(two.pages.slices):
        keys = columns["example_keys"] == (0, n)
        ids = columns["window_ids"][keys.all(axis=1)]
        total = page.stop - page.start + len(two.selection(n)[0])
        assert ids.tolist() == [[i, total] for i in range(total)]


def _of_page(table: Columns, number: int) -> Columns:
    """Returns the rows of a page."""
    rows = (table["example_keys"] == (0, number)).all(axis=1)
    return {name: column[rows] for name, column in table.items()}


@given(two_models(), st.sampled_from([0.0, 0.5, math.inf]))
def test_close_decisions_are_those_of_an_exact_cascade(two: TwoModels, margin: float) -> None:
    """The exact cascade may read other windows, so the tables differ in length."""
    exact = two.with_scores(77)
    scorer = RescoringScorer(two.scorer(), exact.scorer, two.decision, margin)
    columns = scorer.scores(two.pages.rows, two.pages.examples)
    plain, again = (one.scorer().scores(two.pages.rows, two.pages.examples) for one in (two, exact))
    parts = list[Columns]()
    for n in range(len(two.maps)):
        (rescored,) = set(_of_page(columns, n)["rescored"].tolist())
        pages = [_of_page(table, n) for table in (plain, again)]
        ranking = rank(two.pages.examples[n], example_scores(pages[0]), two.decision)
        assert rescored == (decision_margin(ranking) < two.decision.evidence_weight * margin)
        parts.append(pages[rescored])
    expected = concatenate(parts)
    np.testing.assert_equal({name: columns[name] for name in expected}, expected)
    assert not columns["rescored"].any() or margin > 0


TOKEN_MAP = np.array([[-1, -1, 1, 2, 3, 4, *[-1] * (LENGTH - 6)]])
EXAMPLE = Example(7, "who", ["<P>", "a", "b", "c", "d"], [True] + [False] * 4, ())
NUMBERS = np.zeros((1, LENGTH), int)
ROWS = {"token_map": TOKEN_MAP, "window_ids": np.array([[0, 1]]), "numbers": NUMBERS}


def test_a_page_that_the_reader_cannot_read_has_no_evidence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def too_long(example: Example) -> Features:
        raise RecordError("windows 9000: expected at most 8192")

    inner = TableScorer(random_scores(TOKEN_MAP, 1))
    scorer = CascadeScorer(inner, ReaderScorer(inner.table), too_long, CascadeDecision())
    columns = scorer.scores(ROWS, [EXAMPLE])
    assert "example 7: windows 9000" in caplog.text
    scores = example_scores(columns)
    assert isinstance(scores, CascadeScores)
    assert (len(scores.ranker), len(scores.reader), len(scores.read)) == (1, 0, 0)
