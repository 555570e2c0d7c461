"""The size of a model, computed from its config."""

import math
import os

from nq.model.config import ModelConfig
from nq.model.families import layout_of
from nq.model.names import Shape, weight_table


def weight_shapes(config: ModelConfig) -> dict[str, Shape]:
    """Returns the shape of each weight of a model, by the weight's path."""
    return {path: weight.shape for path, weight in weight_table(config, layout_of(config)).items()}


def count_weights(config: ModelConfig) -> int:
    """Returns the number of weights of a model, its heads for answers included."""
    return sum(map(math.prod, weight_shapes(config).values()))


def check_length(config: ModelConfig, length: int) -> None:
    """Checks that a model has positions for windows of ``length`` pieces."""
    most = config.positions
    if length > most:
        raise ValueError(f"max_seq_length {length} is beyond the model's {most} positions")


def check_memory(config: ModelConfig) -> None:
    """Checks that the weights of a model, 16 bits each, fit into the memory of this machine."""
    needed = 2 * count_weights(config)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        raise ValueError(
            f"the weights of config.json take {needed >> 30} GB at least, this machine has "
            f"{memory >> 30} GB: choose a smaller model"
        )
