"""The importance against a slow truth: the loss with one head or unit scaled, in float64."""

import dataclasses
import re
from collections.abc import Iterator

import numpy as np
import pytest
from scipy.special import log_softmax

from experiments.compression.importance import importance
from experiments.compression.structure import Importance
from nq.model.config import ModelConfig
from nq.records import FloatArray
from nq.training.windows import TrainingWindows
from tests.model.slow_bert import SlowBert
from tests.support import tiny_models

pytestmark = pytest.mark.extended

STEP = 1e-4

Tensors = dict[str, FloatArray]


def slow_loss(tensors: Tensors, shape: ModelConfig, windows: TrainingWindows, row: int) -> float:
    """Returns the mean cross entropy of start, end and type of one window without padding."""
    n = int(windows.n_pieces[row])
    segments = np.arange(n) >= windows.n_query[row]
    outputs = SlowBert(tensors, shape).logits(windows.input_ids[row], segments.astype(int), n)
    targets = (windows.start_positions, windows.end_positions, windows.answer_types)
    losses = [
        -log_softmax(values)[target[row]]
        for values, target in zip(outputs.values(), targets, strict=True)
    ]
    return float(np.mean(losses))


def masks(shape: ModelConfig) -> Iterator[tuple[str, int, int, str, slice]]:
    """Yields each head and unit: part, layer, number, and the columns that its output enters."""
    for i in range(shape.num_hidden_layers):
        layer = f"bert.encoder.layer.{i}"
        for head in range(shape.num_attention_heads):
            columns = slice(head * shape.head_width, (head + 1) * shape.head_width)
            yield "heads", i, head, f"{layer}.attention.output.dense.weight", columns
        for unit in range(shape.intermediate_size):
            yield "units", i, unit, f"{layer}.output.dense.weight", slice(unit, unit + 1)


def without_layer(tensors: Tensors, layer: int) -> Tensors:
    """Returns tensors without those of a layer; the layers above it have a number less."""

    def above(match: re.Match[str]) -> str:
        number = int(match[1])
        return f".layer.{number - (number > layer)}."

    kept = {name: x for name, x in tensors.items() if f".layer.{layer}." not in name}
    return {re.sub(r"\.layer\.(\d+)\.", above, name): x for name, x in kept.items()}


def slow_importance(shape: ModelConfig, windows: TrainingWindows) -> Importance:
    """Returns sums of absolute central differences, one mask and one window at a time."""
    tensors: Tensors = {
        name: x.astype(np.float64) for name, x in tiny_models.tensors(shape).items()
    }
    layers = shape.num_hidden_layers
    totals = {
        "heads": np.zeros((layers, shape.num_attention_heads)),
        "units": np.zeros((layers, shape.intermediate_size)),
        "layers": np.zeros(layers),
    }
    for part, layer, number, name, columns in masks(shape):
        for row in range(len(windows)):
            losses = []
            for mask in (1 + STEP, 1 - STEP):
                scaled = tensors[name].copy()
                scaled[:, columns] *= mask
                losses.append(slow_loss({**tensors, name: scaled}, shape, windows, row))
            totals[part][layer, number] += abs(losses[0] - losses[1]) / (2 * STEP)
    fewer = dataclasses.replace(shape, num_hidden_layers=layers - 1)
    for layer in range(layers):
        others = without_layer(tensors, layer)
        for row in range(len(windows)):
            change = slow_loss(others, fewer, windows, row) - slow_loss(
                tensors, shape, windows, row
            )
            totals["layers"][layer] += abs(change)
    return Importance(**totals)


def test_heads_units_and_layers_have_the_importance_of_the_slow_truth() -> None:
    shape = dataclasses.replace(tiny_models.FEWER_HEADS, intermediate_size=6, num_hidden_layers=3)
    windows = tiny_models.training_windows(5, 16)
    assert len(set(windows.n_pieces.tolist())) > 1, "no window is padded"
    actual = importance(tiny_models.model(shape=shape), shape, windows)
    expected = slow_importance(shape, windows)
    for name in ("heads", "units", "layers"):
        truth = getattr(expected, name)
        np.testing.assert_allclose(getattr(actual, name), truth, rtol=2e-3, atol=1e-5)
        assert truth.max() > 0.01
