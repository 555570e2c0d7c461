"""The source's perceptron in NumPy, without a framework whose overhead would be measured instead.

Layers are ``x @ kernel + bias`` with ReLU between them; a training step is one of stochastic
gradient descent on the mean cross-entropy.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from nq.records import FloatArray, IntArray

SIZES, BATCH = (784, 512, 512, 10), 32
RATE = np.float32(0.01)

Layers = list[tuple[FloatArray, FloatArray]]
"""Kernel ``[in, out]`` and bias ``[out]`` of each layer."""


def weights(seed: int = 0) -> Layers:
    """Returns the initial weights."""
    draw = np.random.default_rng(seed)
    return [
        (draw.normal(0, (2 / n) ** 0.5, (n, m)).astype(np.float32), np.zeros(m, np.float32))
        for n, m in itertools.pairwise(SIZES)
    ]


def forward(layers: Layers, x: FloatArray, ends: bool = True) -> list[FloatArray]:
    """Returns the input ``[B, in]`` of the first of some layers and the output of each layer.

    ``ends`` tells whether the last one is the network's last, which has no ReLU.
    """
    outputs = [x]
    for number, (kernel, bias) in enumerate(layers, 1):
        y = outputs[-1] @ kernel + bias
        outputs.append(y if ends and number == len(layers) else np.maximum(y, 0))
    return outputs


def loss_gradient(logits: FloatArray, labels: IntArray) -> FloatArray:
    """Returns the gradient of the batch's mean cross-entropy with respect to some rows' logits."""
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    gradient = shifted / shifted.sum(axis=1, keepdims=True)
    gradient[np.arange(len(labels)), labels] -= 1
    return np.asarray(gradient / BATCH, np.float32)


def backward(
    layers: Layers, outputs: Sequence[FloatArray], gradient: FloatArray, first: bool, ends: bool
) -> tuple[Layers, FloatArray]:
    """Returns the gradients of the layers of ``forward``, and that of their input.

    For the input of the network's ``first`` layer none is computed.
    """
    gradients: Layers = []
    for number in reversed(range(len(layers))):
        if not (ends and number == len(layers) - 1):
            gradient = gradient * (outputs[number + 1] > 0)
        gradients.append((outputs[number].T @ gradient, gradient.sum(axis=0)))
        if number or not first:
            gradient = gradient @ layers[number][0].T
    return gradients[::-1], gradient


def update(layers: Layers, gradients: Layers) -> None:
    """Moves the weights against their gradients, in place."""
    for values, changes in zip(layers, gradients, strict=True):
        for value, change in zip(values, changes, strict=True):
            value -= RATE * change  # noqa: PLW2901 - the array, in place


def add(total: Layers, gradients: Layers) -> Layers:
    """Returns the sum of gradients; ``total`` is empty at first."""
    if not total:
        return gradients
    return [(a + c, b + d) for (a, b), (c, d) in zip(total, gradients, strict=True)]


def weight_count() -> int:
    """Returns the number of weights."""
    return sum(n * m + m for n, m in itertools.pairwise(SIZES))
