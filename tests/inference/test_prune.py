"""Tests that pruning computes the windows that may change an answer, and each only once."""

import math
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nq.config import DecisionConfig, RankingWeights
from nq.inference import prune
from nq.inference.prune import LEVELS, PruningScorer, covering_windows, tokens_in_windows
from nq.postprocess.blocks import Blocks
from nq.postprocess.decision import decide
from nq.postprocess.ranking import decision_margin, rank
from nq.postprocess.spans import pairs
from nq.records import (
    READ,
    SCORE_COLUMNS,
    Candidate,
    Columns,
    Example,
    IntArray,
    Span,
    WindowScores,
)
from tests.inference.table_scorer import Pages, TableScorer, pages
from tests.postprocess import synthetic_pages


def prune_pages(some: Pages, near: float = prune.NEAR) -> tuple[Columns, IntArray, TableScorer]:
    """Returns the columns, the ascending numbers of computed windows, and the inner scorer."""
    inner = TableScorer(some.table)
    scorer = PruningScorer(inner, some.decision, near)
    columns = scorer.scores(some.rows, some.examples)
    return columns, np.flatnonzero(columns[READ]), inner


def window_scores(columns: Columns, numbers: IntArray) -> WindowScores:
    return WindowScores(**{name: columns[name][numbers] for name in SCORE_COLUMNS})


def blocks_in_windows(example: Example, token_map: IntArray) -> list[set[int]]:
    """Returns the candidate indices of the blocks that each window contains a token of."""
    of_token = Blocks.of(example).of_token
    return [{int(of_token[t]) for t in row.tolist() if t >= 0} - {-1} for row in token_map]


@given(pages(1, 1))
def test_covering_windows_contain_all_text(some: Pages) -> None:
    contains = tokens_in_windows(some.rows["token_map"])
    chosen = covering_windows(contains)
    assert len(chosen) >= min(1, len(contains))
    assert chosen.tolist() == sorted(set(chosen.tolist()))
    np.testing.assert_array_equal(contains[chosen].any(axis=0), contains.any(axis=0))
    assert len(chosen) <= 1 or contains[chosen].any(axis=1).all()


@given(pages())
def test_each_page_alone_has_the_scores_of_its_computed_windows_and_no_others(some: Pages) -> None:
    columns, computed, inner = prune_pages(some)
    assert all(len(call) and call == sorted(call) for call in inner.calls)
    assert sorted(np.concatenate(inner.calls).tolist()) == computed.tolist()
    assert inner.counters.computed_windows == len(computed)
    for name in SCORE_COLUMNS:
        expected = getattr(some.table, name)
        np.testing.assert_array_equal(columns[name][computed], expected[computed], name)
        assert columns[name].dtype == expected.dtype and columns[name].shape == expected.shape
    others = np.flatnonzero(~columns[READ])
    assert (columns["start_doc"][others] == -1).all() and (columns["end_doc"][others] == -1).all()
    assert len(pairs(window_scores(columns, others))) == 0
    for example, page in zip(some.examples, some.slices, strict=True):
        single = replace(some, examples=[example], slices=[page], rows=some.rows_of(page))
        for name, column in prune_pages(single)[0].items():
            np.testing.assert_array_equal(column, columns[name][page], name)


@given(pages(), st.one_of(st.floats(0, 10), st.just(math.inf)))
def test_windows_that_may_change_the_answer_are_computed(some: Pages, near: float) -> None:
    columns, all_computed, _ = prune_pages(some, near)
    weights = some.decision.weights
    for example, page in zip(some.examples, some.slices, strict=True):
        computed = [n for n in range(page.start, page.stop) if n in all_computed]
        ranking = rank(example, window_scores(columns, np.array(computed)), some.decision)
        best = max([weights.null, *ranking.utility.tolist()])
        blocks = zip(ranking.evidence.blocks.tolist(), ranking.utility, strict=True)
        close = {block for block, utility in blocks if utility > best - near}
        page_blocks = Blocks.of(example)
        undecided = len(page_blocks.candidates) and not len(ranking.utility)
        margin = -math.inf if undecided else decision_margin(ranking)
        far = next((far for far, enough in LEVELS if margin >= enough), None)
        if far is None:
            assert len(computed) == page.stop - page.start
            continue
        bounds = page_blocks.prior(weights) + weights.max_evidence
        bound = dict(zip(page_blocks.candidates.tolist(), bounds, strict=True))
        token_map = some.rows["token_map"][page]
        covering = covering_windows(tokens_in_windows(token_map)).tolist()
        for number, inside in enumerate(blocks_in_windows(example, token_map)):
            if page.start + number in computed:
                continue
            assert not inside & close
            if number in covering:
                assert all(bound[block] < best - far for block in inside)


def test_a_page_with_a_clear_decision_is_not_computed_further() -> None:
    n = 40
    token_map = np.arange(n * 4).reshape(n, 4)
    candidates = [Candidate(Span(4 * i, 4 * i + 4), True) for i in range(n)]
    about = ["<P>", "who", "word", "word"]
    tokens = [*about, *["<P>", "word", "word", "word"] * (n - 2), *about]
    example = Example(1, "who", tokens, [t[0] == "<" for t in tokens], candidates)
    start = np.full((n, 4), -9.0, np.float32)
    start[0, 1] = 9.0
    types = np.zeros((n, 5), np.float32)
    doc = np.where(np.arange(4) == 0, -1, token_map)
    logits = synthetic_pages.Logits(start, start, types, doc)
    scores = synthetic_pages.window_scores(logits, 2, text_only=True)
    weights = RankingWeights(evidence=0.5, bm25=3.0, max_evidence=10.0)
    decision = DecisionConfig(weights=weights, long_threshold=0.5, short_threshold=0.1)
    numbers = np.arange(n)
    ids = np.column_stack([numbers, np.full(n, n)])
    rows = {"token_map": doc, "window_ids": ids, "numbers": numbers[:, None]}
    columns, computed, _ = prune_pages(Pages([example], [slice(0, n)], rows, scores, decision))
    assert computed.tolist() == [0, 1, 2, n - 1]  # those of the question's word first
    pruned = decide(example, window_scores(columns, numbers), decision).prediction
    whole = decide(example, scores, decision).prediction
    assert (pruned.long, pruned.shorts, pruned.yes_no) == (whole.long, whole.shorts, whole.yes_no)
