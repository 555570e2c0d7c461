"""The optimizer and the losses of a training.

The loss is BERT-Joint's: the mean of the cross entropies of start, end and type. A teacher adds
another one (``nq.training.distillation``).

The weights of a model have levels: level 0 has the embeddings and the relative biases, level i + 1
layer i of the encoder, and the level above the last layer the heads. The lower ones may be trained
more slowly, or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from nq.config import TrainConfig
from nq.inference.reduction import LOGITS
from nq.training.distillation import Distillation


class WarmupThenDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Rises linearly to ``peak`` in ``warmup`` steps and falls linearly to 0 at step ``total``."""

    def __init__(self, peak: float, warmup: int, total: int) -> None:
        self.peak, self.warmup, self.total = peak, warmup, total

    def __call__(self, step: Any) -> Any:
        step = ops.cast(step, "float32") + 1.0
        rising = step / max(1, self.warmup)
        falling = (self.total - step) / max(1, self.total - self.warmup)
        return self.peak * ops.maximum(0.0, ops.minimum(rising, falling))

    def get_config(self) -> dict[str, Any]:
        return {"peak": self.peak, "warmup": self.warmup, "total": self.total}


def level(path: str, n_layers: int) -> int:
    """Returns the level of a layer or weight of a model by its path.

    >>> [level(p, 12) for p in ("embeddings/word_embeddings", "layer_3_qkv/kernel", "pooler/bias")]
    [0, 4, 13]
    """
    layer = re.match(r"layer_(\d+)_", path)
    if layer:
        return int(layer[1]) + 1
    return 0 if path.startswith(("embeddings", "relative_bias")) else n_layers + 1


class LayerwiseAdamW(keras.optimizers.AdamW):
    """AdamW whose learning rate falls by a factor from each level to the one below it.

    Clark et al. 2020, https://arxiv.org/abs/2003.10555. The weight decay has the full rate.
    """

    def __init__(self, n_layers: int, layer_decay: float, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.n_layers, self.layer_decay = n_layers, layer_decay

    def build(self, variables: Sequence[Any]) -> None:
        super().build(variables)
        top = self.n_layers + 1
        levels = [level(variable.path, self.n_layers) for variable in variables]
        self._factors = [self.layer_decay ** (top - n) for n in levels]

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        factor = self._factors[self._get_variable_index(variable)]
        super().update_step(gradient, variable, learning_rate * factor)


def compile_for_training(
    model: keras.Model,
    config: TrainConfig,
    total_steps: int,
    distillation: Distillation | None = None,
) -> None:
    """Compiles a model with AdamW, warm-up and decay to 0, and the mean of the losses.

    With a teacher the model is one of ``Distillation.student``.
    """
    n_layers = model.get_layer("embeddings").config.layer_sets
    if config.frozen_layers > n_layers:
        raise ValueError(
            f"frozen_layers {config.frozen_layers} is beyond the model's {n_layers} layers; choose "
            f"at most {n_layers}"
        )
    for layer in model.layers:
        if config.frozen_layers and level(layer.name, n_layers) <= config.frozen_layers:
            layer.trainable = False
    schedule = WarmupThenDecay(config.learning_rate, int(total_steps * config.warmup), total_steps)
    options = {"weight_decay": config.weight_decay, "global_clipnorm": 1.0, "epsilon": 1e-6}
    if config.layer_decay < 1:
        optimizer = LayerwiseAdamW(n_layers, config.layer_decay, schedule, **options)
    else:
        optimizer = keras.optimizers.AdamW(schedule, **options)
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    if config.precision == "float16":  # without loss scaling small gradients underflow
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    losses = {n: keras.losses.SparseCategoricalCrossentropy(from_logits=True) for n in LOGITS}
    weights = {n: 1 / len(LOGITS) for n in LOGITS}
    if distillation:
        losses, weights = losses | distillation.losses(), distillation.weights(weights)
    model.compile(optimizer=optimizer, loss=losses, loss_weights=weights, jit_compile=False)
