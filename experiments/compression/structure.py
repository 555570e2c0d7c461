"""Structured pruning: whole attention heads, feed-forward units and layers leave a model.

Every layer keeps the same numbers of heads and units, so that a pruned model is dense and has one
shape (``ModelConfig.head_size``). Which of them are kept, their importance tells
(``experiments.compression.importance``): in each layer the most important heads and units. Where
all layers share one table of attention biases with a column for each head (MPNet), they keep the
same heads: those with the largest sum over the layers. Layers go first, the least important ones.

Michel, Levy and Neubig 2019, https://arxiv.org/abs/1905.10650 (heads); Molchanov et al. 2017,
https://arxiv.org/abs/1611.06440 (units). Nothing here computes a model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from experiments import Values
from experiments.planning.models import count_weights
from nq.model.config import ModelConfig
from nq.records import FloatArray, IntArray

BIAS_TABLE = "relative_bias/bias_table"
COUNTS = {
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "ffn": "intermediate_size",
}
"""Maps the name of a count to that of its field in ``ModelConfig``."""
FORM = "heads=9,ffn=1152,layers=5, or some of the three"
FFN_STEP = 64
"""Matrix products whose sizes are multiples of it use all lanes of a processor."""


@dataclass(frozen=True, eq=False)
class Importance:
    """How much the loss depends on parts of the model, in numbers that are not negative.

    Heads are ``[layers, heads]``, units ``[layers, intermediate_size]``, layers ``[layers]``.
    """

    heads: FloatArray
    units: FloatArray
    layers: FloatArray


@dataclass(frozen=True, eq=False)
class Kept:
    """What a pruned model has of the model before; all numbers ascend and count from 0.

    Layers are ``[n]``; in each of them heads are ``[n, heads]``, feed-forward units
    ``[n, intermediate_size]``.
    """

    layers: IntArray
    heads: IntArray
    units: IntArray

    @classmethod
    def all_but(cls, config: ModelConfig, layer: int) -> Kept:
        """Returns all heads and units of all layers but one."""
        layers = np.delete(np.arange(config.num_hidden_layers), layer)
        heads, units = (
            np.tile(np.arange(n), (len(layers), 1))
            for n in (config.num_attention_heads, config.intermediate_size)
        )
        return cls(layers, heads, units)


def parse_counts(text: str) -> dict[str, int]:
    """Returns how many heads and feed-forward units of each layer, and how many layers, are kept.

    >>> parse_counts("ffn=1152,layers=5")
    {'ffn': 1152, 'layers': 5}
    """
    counts: dict[str, int] = {}
    for part in text.split(","):
        name, _, value = (word.strip() for word in part.partition("="))
        if name not in COUNTS:
            raise ValueError(f"{part!r:.80} is not a count: expected {FORM}")
        if name in counts:
            raise ValueError(f"{name} is given twice: expected {FORM}")
        try:
            counts[name] = int(value)
        except ValueError:
            raise ValueError(f"{name} is {value!r:.80}: expected a whole number") from None
        if counts[name] < 1:
            raise ValueError(f"{name} is {counts[name]}: at least 1 must be kept")
    ffn = counts.get("ffn", 0)
    if ffn % FFN_STEP:
        near = max(1, round(ffn / FFN_STEP)) * FFN_STEP
        raise ValueError(f"ffn is {ffn}: expected a multiple of {FFN_STEP}, such as {near}")
    return counts


def pruned_shape(config: ModelConfig, counts: Mapping[str, int]) -> ModelConfig:
    """Returns the shape of a model after pruning, which keeps ``counts`` of its parts.

    >>> pruned_shape(ModelConfig(), {"heads": 9}).head_width
    64
    """
    if config.num_hidden_groups:
        raise ValueError(
            f"{config.num_hidden_layers} layers share {config.num_hidden_groups} sets of weights "
            f"({config.model_type}): only a model whose layers have weights of their own is pruned"
        )
    if config.relative_attention or config.is_gated:
        raise ValueError(
            f"the layers of {config.model_type} are not those of BERT: only these are pruned"
        )
    before = {name: getattr(config, key) for name, key in COUNTS.items()}
    for name, count in counts.items():
        if count > before[name]:
            raise ValueError(
                f"{name} is {count}, the model has {before[name]}: choose {before[name]} or less"
            )
    after = {**before, **counts}
    if after == before:
        shown = ", ".join(f"{name} {before[name]}" for name in counts)
        raise ValueError(f"nothing is pruned: the model has {shown} already; choose less")
    numbers: Values = {COUNTS[name]: count for name, count in after.items()}
    return dataclasses.replace(config, head_size=config.head_width, **numbers)


def select(importance: Importance, before: ModelConfig, after: ModelConfig) -> Kept:
    """Returns what a pruned model of the shape ``after`` keeps: what is most important.

    >>> model = ModelConfig(hidden_size=4, num_attention_heads=2, num_hidden_layers=1)
    >>> importance = Importance(np.array([[1.0, 2.0]]), np.ones((1, 3072)), np.zeros(1))
    >>> select(importance, model, pruned_shape(model, {"heads": 1})).heads
    array([[1]])
    """
    layers = _largest(importance.layers, after.num_hidden_layers)
    heads = importance.heads[layers]
    if before.relative_attention_num_buckets:
        heads = np.broadcast_to(heads.sum(axis=0), heads.shape)
    return Kept(
        layers,
        _largest(heads, after.num_attention_heads),
        _largest(importance.units[layers], after.intermediate_size),
    )


def _largest(values: FloatArray, count: int) -> IntArray:
    """Returns the ascending numbers of the largest values along the last axis.

    >>> _largest(np.array([3.0, 1.0, 3.0, 4.0]), 2)
    array([0, 3])
    """
    order = np.argsort(-values, axis=-1, kind="stable")
    return np.sort(order[..., :count], axis=-1)


def prune_weights(
    weights: Mapping[str, FloatArray], before: ModelConfig, kept: Kept
) -> dict[str, FloatArray]:
    """Cuts the weights of a model to the shape of the pruned one; returns them by their paths."""
    pruned = {path: value for path, value in weights.items() if not path.startswith("layer_")}
    if BIAS_TABLE in pruned:
        pruned[BIAS_TABLE] = pruned[BIAS_TABLE][:, kept.heads[0]]
    size = before.num_attention_heads, before.head_width

    def of_heads(value: FloatArray, heads: IntArray) -> FloatArray:
        """Returns the columns of some heads, of query, key and value alike."""
        rows = value.shape[:-1]
        chosen: FloatArray = value.reshape(*rows, -1, *size)[..., heads, :].reshape(*rows, -1)
        return chosen

    for new, old in enumerate(kept.layers.tolist()):
        heads, units = kept.heads[new], kept.units[new]
        prefix = f"layer_{old}_"
        parts = {p.removeprefix(prefix): x for p, x in weights.items() if p.startswith(prefix)}
        parts |= {
            "qkv/kernel": of_heads(parts["qkv/kernel"], heads),
            "qkv/bias": of_heads(parts["qkv/bias"], heads),
            "attention_output/kernel": of_heads(parts["attention_output/kernel"].T, heads).T,
            "intermediate/kernel": parts["intermediate/kernel"][:, units],
            "intermediate/bias": parts["intermediate/bias"][units],
            "output/kernel": parts["output/kernel"][units],
        }
        pruned |= {f"layer_{new}_{part}": value for part, value in parts.items()}
    return pruned


@dataclass(frozen=True, eq=False)
class PruningRecord:
    """What was removed from the model ``source``, for the card and ``nq.json`` of the new one.

    Its importance was measured on training windows of the files ``data``; ``windows`` counts them.
    """

    source: str
    before: ModelConfig
    after: ModelConfig
    kept: Kept
    windows: int
    data: tuple[str, ...]

    def to_dict(self) -> Values:
        """Returns an object of the list ``removed_parts`` in ``nq.json``.

        Layers and heads count from 0; ``removed_heads`` has a list for each layer that is left.
        """
        before = self.before
        after = self.after
        kept = self.kept
        return {
            "source": self.source,
            "data": list(self.data),
            "windows": self.windows,
            **{name: [getattr(before, name), getattr(after, name)] for name in COUNTS.values()},
            "weights": [count_weights(before), count_weights(after)],
            "removed_layers": _others(kept.layers, before.num_hidden_layers),
            "removed_heads": [_others(row, before.num_attention_heads) for row in kept.heads],
        }

    def summary(self) -> str:
        """Returns one line on what is left."""
        layers, heads, units = (
            f"{getattr(self.after, name)} of {getattr(self.before, name)}"
            for name in COUNTS.values()
        )
        weights, all_weights = (count_weights(config) / 1e6 for config in (self.after, self.before))
        return (
            f"{layers} layers with {heads} heads and {units} feed-forward units each, "
            f"{weights:.1f} of {all_weights:.1f} million weights"
        )

    def card(self) -> str:
        """Returns the model card."""
        return f"""# {self.source}, pruned

`python -m experiments.compression.pruning` kept of `{self.source}`: {self.summary()}.
They are the most important ones on {self.windows} training windows of {", ".join(self.data)}.
`nq.json` has the layers and heads that are gone.

The decision in `nq.json` is that of `{self.source}`: `nq tune` fits it again.
`nq train --init` with this folder and `--teacher` with `{self.source}` recovers quality.
"""


def _others(kept: IntArray, count: int) -> list[int]:
    """Returns the numbers below ``count`` that are not among those kept."""
    return [int(number) for number in np.setdiff1d(np.arange(count), kept)]
