"""The shared softmax against sums written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

from nq.model.loss import SharedSoftmax
from nq.records import FloatArray, IntArray


def log_sum(values: list[float]) -> float:
    return math.log(sum(map(math.exp, values)))


def written_out(positions: IntArray, logits: FloatArray, group: int) -> list[float]:
    """The mean of both cross entropies for each window, one position after the other."""
    found = []
    for window in range(len(logits)):
        alone = log_sum(logits[window].tolist()) - logits[window, positions[window]]
        first = window // group * group
        everything, right = list[float](), list[float]()
        for other in range(first, first + group):
            everything += logits[other, 1:].tolist()
            right += [logits[other, positions[other]]] if positions[other] else []
        found.append((alone + (log_sum(everything) - log_sum(right) if right else 0.0)) / 2)
    return found


@given(st.integers(1, 4), st.integers(1, 3), st.integers(2, 9), st.integers(0, 999))
def test_it_is_the_mean_of_both_cross_entropies(
    group: int, groups: int, length: int, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    logits = draw.normal(0, 3, (groups * group, length)).astype(np.float32)
    positions = np.where(
        draw.random(len(logits)) < 0.5, draw.integers(0, length, len(logits)), 0
    ).astype(np.int32)
    found = SharedSoftmax(group).call(ops.convert_to_tensor(positions), ops.array(logits))
    assert np.asarray(found).tolist() == pytest.approx(
        written_out(positions, logits, group), rel=1e-4, abs=1e-5
    )


def test_a_better_score_in_another_window_of_the_page_costs() -> None:
    """Which the softmax of each window alone does not see."""
    positions = ops.array([2, 0], dtype="int32")
    calm = np.array([[0, 0, 9, 0], [30, 0, 0, 0]], np.float32)
    rival = np.array([[0, 0, 9, 0], [30, 20, 0, 0]], np.float32)
    alone, shared = SharedSoftmax(1), SharedSoftmax(2)
    loss = {
        (loss.group, i): float(ops.mean(loss(positions, ops.array(logits))))
        for loss in (alone, shared)
        for i, logits in enumerate((calm, rival))
    }
    assert loss[1, 1] - loss[1, 0] < 0.001
    assert loss[2, 1] - loss[2, 0] > 5
