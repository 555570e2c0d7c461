"""The losses of a student, against a slow computation, and what they make of its weights."""

import dataclasses
from functools import cache

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import log_softmax

from nq.inference.reduction import LOGITS
from nq.records import UNLABELLED, AnswerType, FloatArray, IntArray
from nq.training.distillation import Distillation, SoftCrossEntropy
from nq.training.job import LOSS, PARTS, DistillationConfig
from nq.training.loop import compile_for_training
from tests.training.test_loop import CONFIG, LENGTH, WINDOWS, untrained

N = len(WINDOWS)
PADDING = np.arange(LENGTH) >= WINDOWS.n_pieces[:, None]
SHORT = dataclasses.replace(CONFIG, epochs=5, dropout=0.0)
YES_AND_NO = np.bincount(WINDOWS.answer_types)[[AnswerType.YES, AnswerType.NO]]
WEIGHTS = [1.0, *(YES_AND_NO.sum() / 2 / YES_AND_NO), 1.0, 1.0]
"""Of the loss of each type: yes and no weigh as if they were equally many."""


@cache
def teacher() -> dict[str, FloatArray]:
    """Returns the logits of a random, decided teacher for all windows, those of padding as -inf."""
    model = untrained(dataclasses.replace(CONFIG, seed=1))
    outputs = model(WINDOWS.batch(np.arange(N))[0])
    logits: dict[str, FloatArray] = {n: 3 * np.asarray(outputs[n], np.float64) for n in LOGITS}
    for name in LOGITS[:2]:
        logits[name][PADDING] = -np.inf
    return logits


def distillation(
    weight: float = 0.5, temperature: float = 2.0, heads: tuple[str, ...] = LOGITS
) -> Distillation:
    known = {name: log_softmax(teacher()[name], axis=1) for name in heads}
    return Distillation(DistillationConfig(weight, temperature), known)


def slow_cross_entropy(teacher: FloatArray, student: FloatArray, temperature: float) -> float:
    """The soft loss of one row, one position at a time, without those of the teacher's -inf."""
    kept = [i for i, value in enumerate(teacher) if value > -np.inf]
    p, q = ([float(np.exp(x[i] / temperature)) for i in kept] for x in (teacher, student))
    total = 0.0
    for one, other in zip(p, q, strict=True):
        total -= one / sum(p) * np.log(other / sum(q))
    return total * temperature**2


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_the_soft_loss_and_its_gradient_against_a_slow_truth(temperature: float) -> None:
    draw = np.random.default_rng(int(10 * temperature))
    student = draw.normal(0, 3, (4, 9)).astype(np.float32)
    known = log_softmax(draw.normal(0, 3, (4, 9)), axis=1).astype(np.float32)
    known[0, 5:] = known[1, 2] = known[3, 1:] = -np.inf
    variable = tf.Variable(student)
    with tf.GradientTape() as tape:
        losses = SoftCrossEntropy(temperature).call(tf.constant(known), variable)
    expected = [slow_cross_entropy(*rows, temperature) for rows in zip(known, student, strict=True)]
    np.testing.assert_allclose(losses, expected, rtol=1e-5, atol=1e-6)
    gradient = np.asarray(tape.gradient(losses, variable))
    assert (gradient[known == -np.inf] == 0).all()
    step = 1e-3 * draw.normal(size=student.shape)  # against differences of the slow truth
    change = sum(
        slow_cross_entropy(a, b + h, temperature) - slow_cross_entropy(a, b - h, temperature)
        for a, b, h in zip(known, student.astype(float), step, strict=True)
    )
    assert float(np.sum(gradient * step)) == pytest.approx(change / 2, rel=1e-3, abs=1e-8)


def slow_losses(model: keras.Model, settings: Distillation, rows: IntArray) -> dict[str, float]:
    """All losses of a step, one window at a time; padding has a part in those of the labels."""
    known, raw = teacher(), model(WINDOWS.batch(rows)[0])
    hard, soft = [], []
    for i, row in enumerate(rows):
        for name, column in zip(
            LOGITS, ("start_positions", "end_positions", "answer_types"), strict=True
        ):
            logits = np.asarray(raw[name], np.float64)[i]
            label = getattr(WINDOWS, column)[row]
            weight = WEIGHTS[label] if name == LOGITS[2] else 1.0
            hard.append(-weight * log_softmax(logits)[label])
            if name in settings.teacher:
                own = known[name][row]
                soft.append(slow_cross_entropy(own, logits, settings.config.temperature))
    means = float(np.mean(hard)), float(np.mean(soft))
    share = settings.config.teacher_weight
    total = (1 - share) * means[0] + share * means[1]
    return {LOSS: total, **dict(zip(PARTS, means, strict=True))}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("weight", "temperature", "heads"), [(0.3, 1.0, LOGITS), (0.5, 4.0, LOGITS[:2])]
)
def test_the_losses_of_a_step_against_a_slow_truth(
    weight: float, temperature: float, heads: tuple[str, ...]
) -> None:
    settings, rows = distillation(weight, temperature, heads), np.arange(16)
    model = untrained(SHORT)
    expected = slow_losses(model, settings, rows)
    student = settings.student(model)
    compile_for_training(student, SHORT, 10, WINDOWS.answer_types, settings)
    logs = student.train_on_batch(*settings.batch(WINDOWS, rows), return_dict=True)
    actual = {LOSS: logs["loss"], **settings.curves(logs)}
    assert actual == pytest.approx(expected, rel=2e-3)


def test_windows_without_labels_are_taught_by_the_teacher_alone() -> None:
    unlabelled = np.arange(N) % 4 < 3
    types = np.where(unlabelled, UNLABELLED, WINDOWS.answer_types).astype(np.int32)
    windows = dataclasses.replace(WINDOWS, answer_types=types)
    _, targets, shares = distillation().batch(windows, np.arange(N))
    assert (targets["type_logits"] >= 0).all()
    for name, share in shares.items():
        np.testing.assert_array_equal(share, ~unlabelled if name in LOGITS else np.ones(N))
