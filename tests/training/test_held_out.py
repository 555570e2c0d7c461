"""Evaluations during a training: the best weights are kept, whatever comes after them."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest

from nq.training.held_out import Evaluations
from nq.training.job import STEP, Figures


def evaluations(file: Path, scores: list[float]) -> tuple[Evaluations, list[tuple[int, bool]]]:
    """Returns evaluations of a model whose only weight is the step, with these scores."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    reports: list[tuple[int, bool]] = []
    left = iter(scores)

    def measure() -> Figures:
        score = next(left)
        return {"micro_f1": score, "long_f1": score / 2, "short_f1": 0.0}

    def report(figures: Figures, is_best: bool) -> None:
        reports.append((int(figures[STEP]), is_best))

    return Evaluations(measure, 10, model, file, report), reports


def train(tested: Evaluations, first: int, last: int, total: int = 35) -> None:
    for step in range(first, last + 1):
        tested.model.set_weights([np.full((1, 1), step, np.float32)])
        tested.after(step, total)


def weight(tested: Evaluations) -> float:
    return float(tested.model.get_weights()[0][0, 0])


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        ([0.1, 0.4, 0.3, 0.2], 20),
        ([0.4, 0.4, 0.4, 0.4], 10),
    ],
)
def test_the_weights_of_the_first_best_evaluation_are_kept(
    scores: list[float], best: int, tmp_path: Path
) -> None:
    tested, reports = evaluations(tmp_path / "best.npz", scores)
    train(tested, 1, 35)
    assert [step for step, _ in reports] == [10, 20, 30, 35]
    assert max(step for step, is_best in reports if is_best) == best
    tested.assign_best()
    assert weight(tested) == tested.best[STEP] == best


def test_a_resumed_training_repeats_later_evaluations(tmp_path: Path) -> None:
    """Killed behind step 20, the best one, with the state of step 12."""
    before, _ = evaluations(tmp_path / "best.npz", [0.1, 0.4])
    train(before, 1, 21)
    after, _ = evaluations(tmp_path / "best.npz", [0.4, 0.2])
    after.done = before.done[:1]
    train(after, 13, 30, 30)
    after.assign_best()
    assert weight(after) == 20


def test_a_damaged_file_leaves_the_last_weights(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tested, _ = evaluations(tmp_path / "best.npz", [0.4, 0.2])
    train(tested, 1, 20, 20)
    tested.file.write_bytes(b"PK\x03\x04 damaged")
    tested.assign_best()
    assert weight(tested) == 20
    assert "the model has the weights of the last step instead" in caplog.text
