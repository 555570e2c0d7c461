"""Tests of the pairs of positions against a search over all k * k * W of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nq.postprocess.spans import Pairs, pairs
from nq.records import ScoredSpan, Span, WindowScores
from tests.postprocess import synthetic_pages

seeds = st.integers(0, 2**32 - 1)


def brute_force(
    scores: WindowScores, max_pieces: int | None, min_pieces: int, k: int
) -> list[ScoredSpan]:
    """Returns every start with every end of its window, best first."""
    spans = []
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
                spans.append(ScoredSpan(Span(first, last + 1), score, window, start, end))
    return sorted(spans, key=lambda s: (-s.score, s.window, s.start_pos, s.end_pos))


def scored_spans(all_pairs: Pairs) -> list[ScoredSpan]:
    return [all_pairs.scored_span(i) for i in range(len(all_pairs))]


def random_scores(seed: int, ties: bool, text_only: bool = True) -> WindowScores:
    return synthetic_pages.window_scores(synthetic_pages.logits(seed, ties), 8, text_only)


@settings(max_examples=150)
@given(
    seed=seeds,
    ties=st.booleans(),
    max_pieces=st.none() | st.integers(1, 12),
    min_pieces=st.integers(1, 3),
    k=st.integers(1, 9),
)
def test_pairs_are_those_of_brute_force_in_the_same_order(
    seed: int, ties: bool, max_pieces: int | None, min_pieces: int, k: int
) -> None:
    scores = random_scores(seed, ties, text_only=bool(seed % 2))
    actual = pairs(scores, max_pieces, min_pieces, k if k < 9 else None)
    assert scored_spans(actual) == brute_force(scores, max_pieces, min_pieces, min(k, 8))


@settings(max_examples=30)
@given(seed=seeds, order=st.permutations(range(8)))
def test_the_order_of_the_kept_positions_does_not_matter(seed: int, order: list[int]) -> None:
    scores = random_scores(seed, ties=True)
    columns = {name: getattr(scores, name) for name in WindowScores.__slots__}
    shuffled = WindowScores(
        **{n: c[:, order] if n.startswith(("start", "end")) else c for n, c in columns.items()}
    )
    assert scored_spans(pairs(scores)) == scored_spans(pairs(shuffled))


@pytest.mark.parametrize("text_only", [True, False])
def test_positions_outside_of_the_text_are_never_paired(text_only: bool) -> None:
    logits = synthetic_pages.logits(3, ties=False, n_windows=2)
    logits.doc[:] = -1
    assert len(pairs(synthetic_pages.window_scores(logits, 8, text_only))) == 0


def test_an_example_without_windows_has_no_pairs() -> None:
    logits = synthetic_pages.logits(1, ties=False, n_windows=0)
    assert len(pairs(synthetic_pages.window_scores(logits, 8, text_only=True))) == 0


def test_scores_are_added_in_the_given_type() -> None:
    logits = synthetic_pages.logits(5, ties=False)
    logits.start[:, 0] = 1e8
    scores = synthetic_pages.window_scores(logits, 8, text_only=True)
    assert pairs(scores).score.dtype == np.float64
    single = pairs(scores, dtype=np.float32)
    assert single.score.dtype == np.float32
    assert not np.array_equal(np.sort(single.score), np.sort(pairs(scores).score))


@pytest.mark.parametrize("keep", [[2, 0], [True, False, True]])
def test_pairs_are_selected_by_index_or_mask(keep: list[int]) -> None:
    first = pairs(random_scores(9, ties=False)).where([0, 1, 2])
    expected = [first.scored_span(i) for i in np.arange(3)[keep].tolist()]
    assert scored_spans(first.where(keep)) == expected
