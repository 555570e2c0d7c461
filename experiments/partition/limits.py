"""Into how many parts a model can be divided."""

from __future__ import annotations

from experiments.partition.group import slices
from nq.model.config import ModelConfig


def even_cuts(config: ModelConfig, stages: int) -> tuple[int, ...]:
    """Returns the cuts between stages of as equal numbers of layers as possible.

    Raises:
        ValueError: the model has fewer layers than there are stages.

    >>> even_cuts(ModelConfig(num_hidden_layers=6), 2), even_cuts(ModelConfig(), 5)
    ((3,), (3, 6, 8, 10))
    """
    layers = config.num_hidden_layers
    if stages > layers:
        raise ValueError(
            f"a model of {layers} layers cannot be cut into {stages} stages: expected at most as "
            "many stages as layers; give fewer --stages"
        )
    return tuple(part.start for part in slices(0, layers, stages)[1:])


def check_devices(config: ModelConfig, devices: int) -> None:
    """Checks that the layers of a model can be divided.

    Raises:
        ValueError: the heads or the units cannot be divided evenly, or the heads share a bias.
    """
    for what, count in (
        ("attention heads", config.num_attention_heads),
        ("units of the intermediate layer", config.intermediate_size),
    ):
        if count % devices:
            raise ValueError(
                f"{count} {what} cannot be divided among {devices} devices: expected a number of "
                f"devices that divides {count}"
            )
    if config.relative_attention_num_buckets and devices > 1:
        raise ValueError(
            "the model has attention biases by distance, which are not divided here: expected a "
            "model without them, such as a BERT"
        )
