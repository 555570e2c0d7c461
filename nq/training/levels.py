"""The levels of a model's weights: the lower ones may be trained more slowly, or not at all.

Level 0 has the embeddings and the relative biases, level i + 1 layer i of the encoder, and the
level above the last layer the heads.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import keras


def level(path: str, n_layers: int) -> int:
    """Returns the level of a layer or weight of a model by its path.

    >>> [level(p, 12) for p in ("embeddings/word_embeddings", "layer_3_qkv/kernel", "pooler/bias")]
    [0, 4, 13]
    """
    layer = re.match(r"layer_(\d+)_", path)
    if layer:
        return int(layer[1]) + 1
    return 0 if path.startswith(("embeddings", "relative_bias")) else n_layers + 1


def freeze(model: keras.Model, n_layers: int, frozen_layers: int) -> None:
    """Excludes the lowest layers and level 0 from training, nothing if ``frozen_layers`` is 0.

    Raises:
        ValueError: the model has fewer layers.
    """
    if frozen_layers > n_layers:
        raise ValueError(
            f"frozen_layers {frozen_layers} is beyond the model's {n_layers} layers; choose at "
            f"most {n_layers}"
        )
    for layer in model.layers:
        if frozen_layers and level(layer.name, n_layers) <= frozen_layers:
            layer.trainable = False


class LayerwiseAdamW(keras.optimizers.AdamW):
    """AdamW whose learning rate falls by a factor from each level to the one below it.

    Clark et al. 2020, https://arxiv.org/abs/2003.10555. The weight decay has the full rate.

    Args:
        n_layers: number of layers of the model.
        layer_decay: the factor.
        args, kwargs: of ``AdamW``.
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
