"""Tests that scorers around scorers keep the interface, and that examples share calls."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nq.config import DecisionConfig
from nq.inference.predictor import Predictor
from nq.inference.profile import Profile
from nq.inference.prune import PruningScorer
from nq.inference.rescore import RescoringScorer
from nq.inference.scorer import (
    COLUMNS,
    Scorer,
    concatenate,
    example_slices,
    feature_rows,
    score_examples,
    window_scores,
)
from nq.postprocess.decision import decide
from nq.postprocess.margin import decision_margin
from nq.postprocess.ranking import rank
from nq.records import READ, RESCORED, SCORE_COLUMNS, Columns, Example, WindowScores
from tests import tiny_models
from tests.inference.table_scorer import K, Pages, TableScorer, make_pages, pages, random_scores
from tests.inference.tiny_predictors import LENGTH, item_rows, items, new_predictor

MIXED = Profile.parse("mixed+rescore")
Wrap = Callable[[Scorer, Pages], Scorer]


def exact_table(some: Pages) -> WindowScores:
    """Returns scores that differ from those of the pages' own table."""
    return random_scores(some.rows["token_map"], seed=12345)


def rescoring(inner: Scorer, some: Pages, margin: float = math.inf) -> RescoringScorer:
    """Returns a scorer around ``inner`` that rescores decisions with smaller margins."""
    exact = TableScorer(exact_table(some))
    return RescoringScorer(inner, lambda: exact, MIXED, some.decision, {"mixed": margin})


def pruning(inner: Scorer, some: Pages) -> PruningScorer:
    return PruningScorer(inner, some.decision)


WRAPPERS: dict[str, Wrap] = {
    "none": lambda inner, some: inner,
    "prune": pruning,
    "rescore all": rescoring,
    "rescore some": lambda inner, some: rescoring(inner, some, 1.0),
    "rescore none": lambda inner, some: rescoring(inner, some, 0.0),
    "prune, rescore": lambda inner, some: rescoring(pruning(inner, some), some, 1.0),
    "rescore twice": lambda inner, some: rescoring(rescoring(inner, some), some, 1.0),
}
each_wrapper = pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS.keys())


def assert_same(actual: Columns, expected: Columns) -> None:
    assert actual.keys() == expected.keys()
    for name, column in actual.items():
        np.testing.assert_array_equal(column, expected[name], name)


# --- closed composition


@each_wrapper
@settings(max_examples=40)
@given(pages())
def test_a_wrapped_scorer_has_the_columns_of_a_scorer(wrap: Wrap, some: Pages) -> None:
    inner = TableScorer(some.table)
    completed: list[int] = []
    columns = wrap(inner, some).scores(some.rows, some.examples, completed.append)
    assert columns.keys() - {READ, RESCORED} == set(SCORE_COLUMNS)
    n = len(some.rows["numbers"])
    for name in SCORE_COLUMNS:
        expected = getattr(some.table, name)
        assert columns[name].dtype == expected.dtype and columns[name].shape == expected.shape
    for name in columns.keys() & {READ, RESCORED}:
        assert columns[name].dtype == np.bool_ and columns[name].shape == (n,)
    assert sum(completed) == n


@each_wrapper
def test_a_wrapped_scorer_has_the_attributes_of_a_scorer(wrap: Wrap) -> None:
    some = make_pages([1, 2], 1, False, DecisionConfig())
    inner = TableScorer(some.table, network=object(), precision="bfloat16", device="GPU")
    scorer = wrap(inner, some)
    for name in ("network", "counters"):
        assert getattr(scorer, name) is getattr(inner, name)
    for name in ("precision", "device", "batch_size"):
        assert getattr(scorer, name) == getattr(inner, name)
    assert scorer.part_batches >= inner.part_batches


@pytest.mark.slow
@each_wrapper
@settings(max_examples=40)
@given(pages(2, 4), st.randoms())
def test_the_order_of_examples_is_that_of_the_rows(wrap: Wrap, some: Pages, random: Any) -> None:
    expected = wrap(TableScorer(some.table), some).scores(some.rows, some.examples)
    order = random.sample(range(len(some.slices)), len(some.slices))
    rows = concatenate([some.rows_of(some.slices[i]) for i in order])
    scorer = wrap(TableScorer(some.table), some)
    columns = scorer.scores(rows, [some.examples[i] for i in order])
    pages = [{n: x[some.slices[i]] for n, x in expected.items()} for i in order]
    assert_same(columns, concatenate(pages))


@given(pages(), st.floats(0, 5))
def test_rescored_windows_have_the_exact_scores_and_the_others_those_of_the_inner_scorer(
    some: Pages, margin: float
) -> None:
    inner = TableScorer(some.table)
    columns = rescoring(inner, some, margin).scores(some.rows, some.examples)
    exact = exact_table(some)
    for name in SCORE_COLUMNS:
        rescored = columns[RESCORED].reshape(-1, *[1] * (columns[name].ndim - 1))
        expected = np.where(rescored, getattr(exact, name), getattr(some.table, name))
        np.testing.assert_array_equal(columns[name], expected, name)
    weights = some.decision.weights
    close = margin * max(weights.evidence, weights.short_evidence)
    for example, page in zip(some.examples, some.slices, strict=True):
        scores = WindowScores(**{n: getattr(some.table, n)[page] for n in SCORE_COLUMNS})
        is_close = decision_margin(rank(example, scores, some.decision)) < close
        assert set(columns[RESCORED][page].tolist()) == {is_close}


@pytest.mark.parametrize("inner", [WRAPPERS["none"], WRAPPERS["prune"]], ids=["none", "prune"])
@settings(max_examples=60)
@given(pages())
def test_rescoring_everything_decides_as_the_exact_scorer(inner: Wrap, some: Pages) -> None:
    scorer = rescoring(inner(TableScorer(some.table), some), some)
    columns = scorer.scores(some.rows, some.examples)
    exact = TableScorer(exact_table(some)).scores(some.rows)
    for example, page in zip(some.examples, some.slices, strict=True):
        actual, expected = window_scores(columns, page), window_scores(exact, page)
        if not columns[RESCORED][page].any():  # without evidence the margin is infinite
            assert len(rank(example, actual, some.decision).evidence.blocks) == 0
            continue
        for name in SCORE_COLUMNS:
            np.testing.assert_array_equal(getattr(actual, name), getattr(expected, name))
        decision = decide(example, actual, some.decision)
        assert decision.prediction == decide(example, expected, some.decision).prediction


@given(pages())
def test_the_exact_scorer_is_made_once_and_only_for_a_close_decision(some: Pages) -> None:
    made: list[TableScorer] = []

    def make_exact() -> TableScorer:
        made.append(TableScorer(exact_table(some)))
        return made[-1]

    for margin, expected in ((0.0, 0), (math.inf, 1)):
        made.clear()
        scorer = RescoringScorer(
            TableScorer(some.table), make_exact, MIXED, some.decision, {"mixed": margin}
        )
        for _ in range(2):
            columns = scorer.scores(some.rows, some.examples)
        assert len(made) == (expected if columns[RESCORED].any() else 0)


# --- several examples in one call


def windows_of(some: Pages) -> Iterator[tuple[Example, Columns]]:
    for example, page in zip(some.examples, some.slices, strict=True):
        yield example, some.rows_of(page)


@pytest.mark.slow
@each_wrapper
@settings(max_examples=40)
@given(pages(1, 6), st.integers(1, 40))
def test_scores_do_not_depend_on_the_number_of_examples_in_a_call(
    wrap: Wrap, some: Pages, batch_size: int
) -> None:
    expected = wrap(TableScorer(some.table), some).scores(some.rows, some.examples)
    scorer = wrap(TableScorer(some.table, batch_size), some)
    completed: list[int] = []
    scored = list(score_examples(scorer, windows_of(some), completed.append))
    assert [example for example, _ in scored] == list(some.examples)
    assert sum(completed) == len(some.rows["numbers"])
    for (_, actual), page in zip(scored, some.slices, strict=True):
        for name in SCORE_COLUMNS:
            np.testing.assert_array_equal(getattr(actual, name), expected[name][page], name)


@given(pages(1, 6), st.integers(1, 40), st.integers(1, 3))
def test_a_call_has_whole_examples_and_at_least_so_many_batches(
    some: Pages, batch_size: int, part_batches: int
) -> None:
    scorer = TableScorer(some.table, batch_size, part_batches)
    list(score_examples(scorer, windows_of(some)))
    assert np.concatenate(scorer.calls).tolist() == some.rows["numbers"][:, 0].tolist()
    ends = {page.stop for page in some.slices}
    enough = batch_size * part_batches
    for i, call in enumerate(scorer.calls):
        assert call[-1] + 1 in ends
        last_page = next(page for page in some.slices if page.stop == call[-1] + 1)
        assert len(call) - (last_page.stop - last_page.start) < enough
        assert len(call) >= enough or i == len(scorer.calls) - 1


def test_examples_are_read_only_when_they_are_needed() -> None:
    read: list[int] = []
    table = random_scores(np.full((6, 14), -1), seed=1)
    examples = [Example(number, "who", ["w"], [False], ()) for number in range(6)]

    def windows() -> Iterator[tuple[Example, Columns]]:
        for number, example in enumerate(examples):
            read.append(number)
            yield example, {"numbers": np.array([[number]]), "window_ids": np.array([[0, 1]])}

    scored = score_examples(TableScorer(table, batch_size=2, part_batches=1), windows())
    assert read == []
    assert [next(scored)[0].example_id for _ in range(2)] == [0, 1] and read == [0, 1]
    assert next(scored)[0].example_id == 2 and read == [0, 1, 2, 3]
    assert len(list(scored)) == 3


def test_no_examples_have_no_scores() -> None:
    table = random_scores(np.full((1, 14), -1), seed=1)
    assert list(score_examples(TableScorer(table), iter(()))) == []


@pytest.mark.parametrize("part_batches", [1, 2, 100])
def test_the_predictor_has_equal_scores_in_calls_of_any_size(
    predictor: Predictor, part_batches: int
) -> None:
    all_items = items(3, 1, 9, 2, 5)
    expected = predictor.scores(item_rows(all_items))
    windows = (
        (Example(source.line, "who", ["w"], [False], ()), item_rows([(source, features)]))
        for source, features in all_items
    )
    predictor.part_batches = part_batches
    scored = list(score_examples(predictor, windows))
    assert [len(scores) for _, scores in scored] == [3, 1, 9, 2, 5]
    for name in SCORE_COLUMNS:
        actual = np.concatenate([getattr(scores, name) for _, scores in scored])
        np.testing.assert_allclose(actual, expected[name], atol=1e-6)


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    return new_predictor()


# --- rows


def test_feature_rows_have_the_windows_of_one_example_with_their_numbers() -> None:
    features = tiny_models.features(1, 3, LENGTH)
    rows = feature_rows(features)
    assert rows.keys() == {*COLUMNS, "window_ids"}
    for name in COLUMNS:
        np.testing.assert_array_equal(rows[name], getattr(features, name))
    assert rows["window_ids"].tolist() == [[0, 3], [1, 3], [2, 3]]


@given(st.lists(st.integers(1, 9), max_size=6))
def test_slices_are_the_windows_of_each_example(n_windows: list[int]) -> None:
    ids = [(window, n) for n in n_windows for window in range(n)]
    slices = example_slices({"window_ids": np.array(ids, np.int32).reshape(-1, 2)})
    assert [page.stop - page.start for page in slices] == n_windows
    assert [page.start for page in slices] == np.cumsum([0, *n_windows])[:-1].tolist()


def test_window_scores_are_those_of_the_selected_rows() -> None:
    table = random_scores(np.full((4, 14), -1), seed=1)
    columns = {name: getattr(table, name) for name in SCORE_COLUMNS}
    assert len(window_scores(columns)) == 4
    scores = window_scores({**columns, READ: np.ones(4, np.bool_)}, slice(1, 3))
    assert scores.start_pos.shape == (2, K)
    np.testing.assert_array_equal(scores.type_logits, table.type_logits[1:3])
