"""Tests of the pairs of positions against a search over all k * k * W of them."""

import numpy as np
import scipy.special
from hypothesis import given
from hypothesis import strategies as st

from nq.postprocess.spans import Pairs, pairs, softmax
from nq.records import WindowScores
from tests.postprocess import synthetic_pages

seeds = st.integers(0, 2**32 - 1)
Scored = tuple[float, int, int, int, int, int]
"""Score, window, start and end position, first and last document token."""


def brute_force(
    scores: WindowScores, max_pieces: int | None, min_pieces: int, k: int
) -> list[Scored]:
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
                spans.append((score, window, start, end, first, last))
    return sorted(spans, key=lambda s: (-s[0], *s[1:4]))


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
    scores = synthetic_pages.window_scores(synthetic_pages.logits(seed, ties), 8, bool(seed % 2))
    actual = pairs(scores, max_pieces, min_pieces, k if k < 9 else None)
    columns = (getattr(actual, name).tolist() for name in Pairs.__slots__)
    assert list(zip(*columns, strict=True)) == brute_force(
        scores, max_pieces, min_pieces, min(k, 8)
    )


@given(st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=40), st.sampled_from([16, 32, 64]))
def test_softmax_is_that_of_scipy(values: list[float], bits: int) -> None:
    x = np.array(values, f"float{bits}")
    np.testing.assert_array_equal(softmax(x), scipy.special.softmax(x))
