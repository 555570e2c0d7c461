"""The importance of attention heads, feed-forward units and layers: how the loss depends on each.

Let m multiply the output a of a head or unit in one window, and L be the loss of that window. To
first order the loss without the head or unit differs by dL/dm at m = 1. The importance is

I = sum over windows of |dL/dm| = sum over windows of |sum over pieces and columns of dL/da * a|

Michel, Levy and Neubig 2019, https://arxiv.org/abs/1905.10650, for heads; Molchanov et al. 2017,
https://arxiv.org/abs/1611.06440, for units. The output of a head is taken before the output
projection, the output of a unit after its activation. One backward pass computes all of them.

A layer is too large a change for the first order, and there are few layers. Its importance is
therefore the change itself: the sum over windows of |L without the layer - L|.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tqdm import tqdm

from experiments import Values
from experiments.compression.structure import Importance, Kept, prune_weights, pruned_shape
from nq.inference.reduction import LOGITS
from nq.model import joint
from nq.model.config import ModelConfig
from nq.records import MODEL_INPUTS, FloatArray, IntArray
from nq.training.distillation import EXCLUDED
from nq.training.windows import TrainingWindows

BATCH_SIZE = 8
LAYER_WINDOWS = 128
"""Windows that the importance of layers is measured on, evenly spaced among all."""
PARTS = ("attention", "intermediate")
"""Suffixes of the layers whose outputs have the outputs of heads and of units."""
INPUT_SPECS = {name: tf.TensorSpec((None, None), tf.int32) for name in MODEL_INPUTS}
TARGET_SPECS = {name: tf.TensorSpec((None,), tf.int32) for name in LOGITS}


def importance(
    model: keras.Model, config: ModelConfig, windows: TrainingWindows, of_layers: bool = True
) -> Importance:
    """Returns the importance of all heads, feed-forward units and layers of a model.

    The model is in float32, and no layers share weights. The importance of layers, which takes a
    forward pass for each, is 0 without ``of_layers``, and for a single layer.
    """
    step = _step(model, config)
    heads: Any = 0.0
    units: Any = 0.0
    with tqdm(desc="importance", unit=" windows", total=len(windows), disable=None) as bar:
        for rows in _batches(windows, np.arange(len(windows))):
            of_heads, of_units = step(*windows.batch(rows))
            heads, units = heads + of_heads.numpy(), units + of_units.numpy()
            bar.update(len(rows))
    layers: FloatArray = np.zeros(config.num_hidden_layers)
    if of_layers and len(layers) > 1:
        chosen = np.arange(len(windows))[:: -(-len(windows) // LAYER_WINDOWS)]
        shape = pruned_shape(config, {"layers": len(layers) - 1})
        smaller = joint.build(shape, initialize=False)
        weights = weights_of(model)
        losses = _losses(smaller)
        whole = _all_losses(_losses(model), windows, chosen)
        for layer in tqdm(range(len(layers)), desc="layers", disable=None):
            assign(smaller, prune_weights(weights, config, Kept.all_but(config, layer)))
            layers[layer] = np.abs(_all_losses(losses, windows, chosen) - whole).sum()
    if not all(np.isfinite(values).all() for values in (heads, units, layers)):
        raise ArithmeticError(
            "the gradients of the loss are not finite: the weights of the model are damaged, or "
            "too large"
        )
    return Importance(heads, units, layers)


def weights_of(model: keras.Model) -> dict[str, FloatArray]:
    """Returns the weights of a model by their paths."""
    return {weight.path: weight.numpy() for weight in model.weights}


def assign(model: keras.Model, weights: Mapping[str, FloatArray]) -> None:
    """Gives a model weights by their paths."""
    for weight in model.weights:
        weight.assign(weights[weight.path])


def _losses(model: keras.Model) -> Any:
    """Returns a function from a batch's inputs and targets to the losses of its windows."""

    def losses(inputs: Values, targets: Values) -> Any:
        return window_losses(model(inputs, training=False), inputs["input_mask"], targets)

    return tf.function(losses, [INPUT_SPECS, TARGET_SPECS], autograph=False)


def _all_losses(losses: Any, windows: TrainingWindows, chosen: IntArray) -> FloatArray:
    batches = _batches(windows, chosen)
    return np.concatenate([losses(*windows.batch(rows)).numpy() for rows in batches])


def _batches(windows: TrainingWindows, chosen: IntArray) -> Iterator[IntArray]:
    """Yields windows by their length, so that little is computed on padding."""
    order = chosen[np.argsort(windows.n_pieces[chosen], kind="stable")]
    for start in range(0, len(order), BATCH_SIZE):
        yield order[start : start + BATCH_SIZE]


def _step(model: keras.Model, config: ModelConfig) -> Any:
    """Returns a function from a batch's inputs and targets to ``[layers, n]`` for each of PARTS."""
    layers = range(config.num_hidden_layers)
    outputs = {
        f"layer_{i}_{part}": model.get_layer(f"layer_{i}_{part}").output
        for part in PARTS
        for i in layers
    }
    extended = keras.Model(model.input, {**model.output, **outputs})

    def step(inputs: Values, targets: Values) -> list[Any]:
        with tf.GradientTape() as tape:
            values = extended(inputs, training=False)
            loss = tf.reduce_sum(window_losses(values, inputs["input_mask"], targets))
        activations = [values[name] for name in outputs]
        products = map(tf.multiply, tape.gradient(loss, activations), activations)
        n_windows = tf.shape(inputs["input_ids"])[0]
        sums = []
        for size in (config.num_attention_heads, config.intermediate_size):
            of_layers = []
            for _ in layers:
                product = next(products)  # [B * L, size * columns]
                columns = product.shape[-1] // size
                of_windows = tf.reshape(product, (n_windows, -1, size, columns))
                of_windows = tf.reduce_sum(of_windows, axis=(1, 3))
                of_layers.append(tf.reduce_sum(tf.abs(of_windows), axis=0))
            sums.append(tf.stack(of_layers))
        return sums

    return tf.function(step, [INPUT_SPECS, TARGET_SPECS], autograph=False)


def window_losses(logits: Values, mask: Any, targets: Values) -> Any:
    """Returns the loss ``[B]`` of each window: the mean cross entropy of start, end and type.

    Unlike in ``nq.training.loop`` it leaves out padding, so that it does not depend on the other
    windows of a batch. ``mask`` is ``[B, L]``, and each of the targets ``[B]``.
    """
    start, end, types = (logits[name] for name in LOGITS)
    inside = [tf.where(mask > 0, values, EXCLUDED) for values in (start, end)]
    losses = [
        tf.nn.sparse_softmax_cross_entropy_with_logits(targets[name], values)
        for name, values in zip(LOGITS, (*inside, types), strict=True)
    ]
    return tf.add_n(losses) / len(losses)
