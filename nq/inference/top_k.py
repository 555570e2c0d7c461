"""logits -> what leaves the device: the k best positions of each window, [CLS] and types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from keras import ops


@dataclass(frozen=True)
class Selection:
    """Which positions may start or end an answer, and how many leave the device.

    Args:
        k: positions for the start and for the end.
        text_only: only positions of document text; else any but [CLS], as the original.
    """

    k: int
    text_only: bool

    def __call__(self, logits: dict[str, Any], token_map: Any) -> tuple[Any, ...]:
        """The columns of ``WindowScores``, in order, of one batch.

        Args:
            logits: what the model gives.
            token_map: int ``[B, L]``.
        """
        start, end = logits["start_logits"], logits["end_logits"]
        length = token_map.shape[1]
        allowed = token_map >= 0 if self.text_only else ops.arange(length) > 0
        k = min(self.k, length)
        return (
            *best_positions(start, allowed, token_map, k),
            *best_positions(end, allowed, token_map, k),
            ops.stack([start[:, 0], end[:, 0]], axis=1),
            logits["type_logits"],
        )


def best_positions(logits: Any, allowed: Any, token_map: Any, k: int) -> tuple[Any, Any, Any]:
    """The k best allowed positions of each row: document token, position, logit.

    Where fewer are allowed, the document token of the rest is -1. Equal logits: the
    earlier position first.
    """
    lowest = float(np.finfo(np.float32).min)
    masked = ops.where(allowed, logits, lowest)
    value, pos = ops.top_k(masked, k)
    doc = ops.take_along_axis(token_map, pos, axis=1)
    return ops.where(value > lowest, doc, -1), pos, value
