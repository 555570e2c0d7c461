"""What a pruning removed, for those who get the model: in its card, and in ``nq.json``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from nq.config import ModelConfig
from nq.model.pruning import Kept
from nq.model.shapes import weight_shapes
from nq.records import IntArray

COUNTS = ("num_hidden_layers", "num_attention_heads", "intermediate_size")


@dataclass(frozen=True, eq=False)
class PruningRecord:
    """What was removed from a model, and by which data.

    Args:
        source: name of the folder of the model before.
        before, after: shapes of the model before and of the pruned model.
        kept: what the pruned model has of the model before.
        windows: training windows that the importance was measured on.
        data: names of the files of these windows.
    """

    source: str
    before: ModelConfig
    after: ModelConfig
    kept: Kept
    windows: int
    data: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Returns an object of the list ``pruning`` in ``nq.json``.

        Layers and heads count from 0; ``removed_heads`` has a list for each layer that is left.
        """
        before, after, kept = self.before, self.after, self.kept
        return {
            "source": self.source,
            "data": list(self.data),
            "windows": self.windows,
            **{name: [getattr(before, name), getattr(after, name)] for name in COUNTS},
            "weights": [count_weights(before), count_weights(after)],
            "removed_layers": _others(kept.layers, before.num_hidden_layers),
            "removed_heads": [_others(row, before.num_attention_heads) for row in kept.heads],
        }

    def summary(self) -> str:
        """Returns one line on what is left."""
        layers, heads, units = (
            f"{getattr(self.after, name)} of {getattr(self.before, name)}" for name in COUNTS
        )
        weights, all_weights = (count_weights(config) / 1e6 for config in (self.after, self.before))
        return (
            f"{layers} layers with {heads} heads and {units} feed-forward units each, "
            f"{weights:.1f} of {all_weights:.1f} million weights"
        )

    def section(self) -> str:
        """Returns the section of the model card."""
        rows = zip(self.kept.layers, self.kept.heads, strict=True)
        table = "\n".join(
            f"| {new} | {old} | {' '.join(map(str, heads))} |"
            for new, (old, heads) in enumerate(rows)
        )
        return f"""## Pruning

`nq convert --prune` kept of `{self.source}`: {self.summary()}.
They are the most important ones on {self.windows} training windows of {", ".join(self.data)}.
Layers and heads count from 0:

| layer | layer of `{self.source}` | heads kept, of {self.before.num_attention_heads} |
|---|---|---|
{table}

The decision in `nq.json` is that of `{self.source}`: `nq tune` fits it again.
`nq train --init` with this folder and `--teacher` with `{self.source}` recovers quality.
"""


def _others(kept: IntArray, count: int) -> list[int]:
    """Returns the numbers below ``count`` that are not among those kept."""
    return [int(number) for number in np.setdiff1d(np.arange(count), kept)]


def count_weights(config: ModelConfig) -> int:
    """Returns the number of weights of a model, its heads for answers included."""
    return sum(map(math.prod, weight_shapes(config).values()))
