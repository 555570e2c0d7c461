"""Pairs of positions: equal to all k * k * W of them tried one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nq.postprocess.spans import pairs
from nq.records import ScoredSpan, Span, WindowScores
from tests.postprocess import synthetic_pages

seeds = st.integers(0, 2**32 - 1)


def brute_force(
    scores: WindowScores, max_pieces: int | None, min_pieces: int, k: int
) -> list[ScoredSpan]:
    """Every start with every end of its window, best first."""
    found = []
    for window in range(len(scores)):
        cls_start, cls_end = scores.cls_logit[window].tolist()
        for i in range(k):
            for j in range(k):
                start, end = int(scores.start_pos[window, i]), int(scores.end_pos[window, j])
                first, last = int(scores.start_doc[window, i]), int(scores.end_doc[window, j])
                length = end - start + 1
                if first < 0 or last < first or length < min_pieces:
                    continue
                if max_pieces is not None and length > max_pieces:
                    continue
                score = float(scores.start_logit[window, i]) + float(scores.end_logit[window, j])
                score -= cls_start + cls_end
                found.append(ScoredSpan(Span(first, last + 1), score, window, start, end))
    return sorted(found, key=lambda a: (-a.score, a.window, a.start_pos, a.end_pos))


@settings(deadline=None, max_examples=150)
@given(
    seed=seeds,
    ties=st.booleans(),
    max_pieces=st.none() | st.integers(1, 12),
    min_pieces=st.integers(1, 3),
    k=st.integers(1, 9),
)
def test_pairs_are_those_that_brute_force_finds_in_the_same_order(
    seed: int, ties: bool, max_pieces: int | None, min_pieces: int, k: int
) -> None:
    scores = synthetic_pages.window_scores(
        synthetic_pages.logits(seed, ties), 8, text_only=bool(seed % 2)
    )
    found = pairs(scores, max_pieces, min_pieces, k if k < 9 else None)
    expected = brute_force(scores, max_pieces, min_pieces, min(k, 8))
    assert [found.scored_span(i) for i in range(len(found))] == expected


@settings(deadline=None, max_examples=30)
@given(seed=seeds, order=st.permutations(range(8)))
def test_the_order_of_the_kept_positions_does_not_matter(seed: int, order: list[int]) -> None:
    scores = synthetic_pages.window_scores(
        synthetic_pages.logits(seed, ties=True), 8, text_only=True
    )
    columns = {name: getattr(scores, name) for name in WindowScores.__slots__}
    shuffled = WindowScores(
        **{n: c[:, order] if n.startswith(("start", "end")) else c for n, c in columns.items()}
    )
    one, two = pairs(scores), pairs(shuffled)
    assert [one.answer(i) for i in range(len(one))] == [two.answer(i) for i in range(len(two))]


def test_positions_that_stand_for_nothing_never_pair() -> None:
    found = synthetic_pages.logits(3, ties=False, n_windows=2)
    nothing = synthetic_pages.Logits(
        found.start, found.end, found.types, np.full_like(found.doc, -1)
    )
    for text_only in (True, False):
        assert len(pairs(synthetic_pages.window_scores(nothing, 8, text_only))) == 0


def test_an_example_without_windows_has_no_pairs() -> None:
    found = pairs(
        synthetic_pages.window_scores(
            synthetic_pages.logits(1, ties=False, n_windows=0), 8, text_only=True
        )
    )
    assert len(found) == 0


def test_the_sum_is_taken_in_the_type_that_was_asked_for() -> None:
    found = synthetic_pages.logits(5, ties=False)
    found.start[:, 0] = 1e8
    scores = synthetic_pages.window_scores(found, 8, text_only=True)
    assert pairs(scores).score.dtype == np.float64
    single = pairs(scores, dtype=np.float32)
    assert single.score.dtype == np.float32
    assert not np.array_equal(np.sort(single.score), np.sort(pairs(scores).score))


@pytest.mark.parametrize("keep", [[2, 0], [True, False, True]])
def test_some_pairs_can_be_kept_by_index_or_mask(keep: list[int]) -> None:
    found = pairs(
        synthetic_pages.window_scores(synthetic_pages.logits(9, ties=False), 8, text_only=True)
    ).where([0, 1, 2])
    kept = found.where(keep)
    chosen = np.arange(3)[keep].tolist()
    assert [kept.answer(i) for i in range(len(kept))] == [found.scored_span(i) for i in chosen]
