"""Tests that scorers around scorers keep the interface, and that examples share calls."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.config import DecisionConfig
from nq.inference.prune import PruningScorer
from nq.inference.rescore import RescoringScorer
from nq.inference.scorer import Scorer, concatenate, score_examples
from nq.postprocess.ranking import decision_margin, rank
from nq.records import READ, RESCORED, SCORE_COLUMNS, Windowed, WindowScores
from tests.inference.table_scorer import Pages, TableScorer, pages, random_scores

Wrap = Callable[[Scorer, Pages], Scorer]


def exact_table(some: Pages) -> WindowScores:
    """Returns scores that differ from those of the pages' own table."""
    return random_scores(some.rows["token_map"], seed=12345)


def rescoring(
    inner: Scorer,
    some: Pages,
    margin: float = math.inf,
    make_exact: Callable[[], Scorer] | None = None,
) -> RescoringScorer:
    """Returns a scorer around ``inner`` that rescores decisions with smaller margins."""
    exact = make_exact or (lambda: TableScorer(exact_table(some)))
    return RescoringScorer(inner, exact, some.decision, margin)


def pruning(inner: Scorer, some: Pages) -> PruningScorer:
    """Returns a scorer around ``inner`` that reads few blocks."""
    return PruningScorer(inner, DecisionConfig(prune_blocks=3))


WRAPPERS: dict[str, Wrap] = {
    "none": lambda inner, some: inner,
    "prune": pruning,
    "rescore some": lambda inner, some: rescoring(inner, some, 1.0),
    "prune, rescore": lambda inner, some: rescoring(pruning(inner, some), some, 1.0),
    "rescore twice": lambda inner, some: rescoring(rescoring(inner, some), some, 1.0),
}
each_wrapper = pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS.keys())


def windows_of(some: Pages) -> Iterator[Windowed]:
    for example, page in zip(some.examples, some.slices, strict=True):
        yield Windowed(example, some.rows_of(page))


@each_wrapper
@given(pages(1, 6), st.integers(1, 40), st.randoms())
def test_a_wrapped_scorer_has_the_columns_of_a_scorer_in_any_order_and_calls_of_any_size(
    wrap: Wrap, some: Pages, batch_size: int, random: Any
) -> None:
    completed: list[int] = []
    inner = TableScorer(some.table)
    expected = wrap(inner, some).scores(some.rows, some.examples, completed.append)
    n = len(some.rows["numbers"])
    assert sum(completed) == n
    assert expected.keys() - {READ, RESCORED} == set(SCORE_COLUMNS)
    for name, column in expected.items():
        like = getattr(some.table, name, np.zeros(n, np.bool_))
        assert (column.dtype, column.shape) == (like.dtype, like.shape)
    order = random.sample(range(len(some.slices)), len(some.slices))
    rows = concatenate([some.rows_of(some.slices[i]) for i in order])
    scorer = wrap(TableScorer(some.table), some)
    columns = scorer.scores(rows, [some.examples[i] for i in order])
    of_pages = [{n: x[some.slices[i]] for n, x in expected.items()} for i in order]
    np.testing.assert_equal(columns, concatenate(of_pages))
    completed.clear()
    scorer = wrap(TableScorer(some.table, batch_size), some)
    scored = list(score_examples(scorer, windows_of(some), completed.append))
    assert [one.example for one in scored] == list(some.examples)
    assert sum(completed) == n
    np.testing.assert_equal(concatenate([one.columns for one in scored]), expected)


@given(pages(), st.floats(0, 5))
def test_rescored_windows_have_the_exact_scores_and_the_others_those_of_the_inner_scorer(
    some: Pages, margin: float
) -> None:
    made: list[TableScorer] = []

    def make_exact() -> TableScorer:
        made.append(TableScorer(exact_table(some)))
        return made[-1]

    scorer = rescoring(TableScorer(some.table), some, margin, make_exact)
    for _ in range(2):
        columns = scorer.scores(some.rows, some.examples)
    assert len(made) == columns[RESCORED].any()
    for name in SCORE_COLUMNS:
        rescored = columns[RESCORED].reshape(-1, *[1] * (columns[name].ndim - 1))
        expected = np.where(rescored, getattr(exact_table(some), name), getattr(some.table, name))
        np.testing.assert_array_equal(columns[name], expected, name)
    weights = some.decision.weights
    close = margin * max(weights.evidence, weights.short_evidence)
    for example, page in zip(some.examples, some.slices, strict=True):
        ranking = rank(example, some.scores_of(page), some.decision)
        assert set(columns[RESCORED][page].tolist()) == {decision_margin(ranking) < close}


@given(pages(1, 6), st.integers(1, 40), st.integers(1, 3))
def test_a_call_has_whole_examples_and_at_least_so_many_batches(
    some: Pages, batch_size: int, part_batches: int
) -> None:
    scorer = TableScorer(some.table, batch_size, part_batches)
    assert list(score_examples(scorer, iter(()))) == []
    list(score_examples(scorer, windows_of(some)))
    assert np.concatenate(scorer.calls).tolist() == some.rows["numbers"][:, 0].tolist()
    ends = {page.stop for page in some.slices}
    enough = batch_size * part_batches
    for i, call in enumerate(scorer.calls):
        assert call[-1] + 1 in ends
        last_page = next(page for page in some.slices if page.stop == call[-1] + 1)
        assert len(call) - (last_page.stop - last_page.start) < enough
        assert len(call) >= enough or i == len(scorer.calls) - 1
