"""Tests that pruning computes the windows of the blocks that rank best, and no others."""

from dataclasses import replace
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nq.config import DecisionConfig, RankingWeights
from nq.inference.prune import PRIOR, PruningScorer, best_positions, with_any
from nq.inference.scorer import window_scores
from nq.postprocess.blocks import Blocks
from nq.postprocess.decision import decide
from nq.postprocess.spans import pairs
from nq.records import READ, SCORE_COLUMNS, Example, IntArray, Passage
from tests.inference.table_scorer import Pages, TableScorer, pages

each_number_of_blocks = st.integers(1, 12)


def pruning(some: Pages, n_blocks: int) -> PruningScorer:
    return PruningScorer(TableScorer(some.table), DecisionConfig(prune_blocks=n_blocks))


def blocks_of_windows(example: Example, token_map: IntArray) -> list[set[int]]:
    """Returns the candidate indices of the blocks that each window has a token of."""
    of_token = Blocks.of(example).of_token
    return [{int(of_token[t]) for t in row.tolist() if t >= 0} - {-1} for row in token_map]


@given(pages(), each_number_of_blocks)
def test_windows_of_the_best_blocks_are_computed_and_no_others(some: Pages, n_blocks: int) -> None:
    columns = pruning(some, n_blocks).scores(some.rows, some.examples)
    for example, page in zip(some.examples, some.slices, strict=True):
        blocks = Blocks.of(example)
        in_windows = blocks_of_windows(example, some.rows_of(page)["token_map"])
        scores = dict(zip(blocks.candidates.tolist(), blocks.prior(PRIOR), strict=True))
        in_page = set().union(*in_windows)
        best = set(sorted(in_page, key=lambda block: (-scores[block], block))[:n_blocks])
        expected = [bool(inside & best) for inside in in_windows]
        if not in_page:
            expected[0] = True
        assert columns[READ][page].tolist() == expected


@given(pages(), each_number_of_blocks, st.floats(-3, 3), st.randoms())
def test_of_passages_the_retriever_ranks_or_its_score_and_bm25_do(
    some: Pages, n_blocks: int, weight: float, random: Random
) -> None:
    weights = RankingWeights(bm25=0.3, retriever=weight)
    decision = DecisionConfig(prune_blocks=n_blocks, weights=weights)
    for page_of_text, page in zip(some.examples, some.slices, strict=True):
        token_map = some.rows_of(page)["token_map"]
        n = len(page_of_text.candidates)
        passages = tuple(Passage(None, "", 1 + i, random.uniform(0, 90)) for i in range(n))
        example = replace(page_of_text, passages=passages)
        blocks = Blocks.of(example)
        order = blocks.candidates.tolist()
        if weight:
            utility = dict(zip(order, blocks.prior(weights).tolist(), strict=True))
            order.sort(key=lambda block: (-utility[block], block))
        in_windows = blocks_of_windows(example, token_map)
        best = [block for block in order if block in set().union(*in_windows)][:n_blocks]
        expected = [bool(inside & {*best}) for inside in in_windows]
        computed = with_any(best_positions(example, token_map, decision)).tolist()
        assert computed == expected if best else sum(computed) == 1


@given(pages(), each_number_of_blocks)
def test_computed_windows_have_their_scores_and_others_none(some: Pages, n_blocks: int) -> None:
    scorer = pruning(some, n_blocks)
    columns = scorer.scores(some.rows, some.examples)
    computed = columns[READ]
    assert scorer.counters.computed_windows == computed.sum()
    for name in SCORE_COLUMNS:
        expected = getattr(some.table, name)[computed]
        np.testing.assert_array_equal(columns[name][computed], expected, name)
    assert len(pairs(window_scores(columns, ~computed))) == 0


@given(pages())
def test_the_decision_is_that_of_all_windows_where_all_blocks_are_read(some: Pages) -> None:
    columns = pruning(some, 1000).scores(some.rows, some.examples)
    for example, page in zip(some.examples, some.slices, strict=True):
        pruned, whole = (
            decide(example, scores, some.decision).prediction
            for scores in (window_scores(columns, page), some.scores_of(page))
        )
        assert pruned == whole
