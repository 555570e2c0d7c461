"""The top k positions of each window: the part of the logits that leaves the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from keras import ops

from nq.records import SCORE_COLUMNS


@dataclass(frozen=True)
class TopK:
    """Reduces the logits of a batch to the columns of ``WindowScores``.

    Args:
        k: number of positions kept for the start and for the end.
        text_only: keep only positions of document text; else any but [CLS], as the original.
    """

    columns: ClassVar[tuple[str, ...]] = SCORE_COLUMNS
    k: int
    text_only: bool

    def __call__(self, logits: dict[str, Any], token_map: Any) -> tuple[Any, ...]:
        """Returns the columns of ``WindowScores``, in order, for one batch.

        Args:
            logits: ``start_logits`` and ``end_logits`` ``[B, L]``, ``type_logits`` ``[B, 5]``.
            token_map: int ``[B, L]`` document token of each position, -1 for none.
        """
        start, end = logits["start_logits"], logits["end_logits"]
        length = token_map.shape[1]
        allowed = token_map >= 0 if self.text_only else ops.arange(length) > 0
        k = min(self.k, length)
        return (
            *top_positions(start, allowed, token_map, k),
            *top_positions(end, allowed, token_map, k),
            ops.stack([start[:, 0], end[:, 0]], axis=1),
            logits["type_logits"],
        )


def top_positions(logits: Any, allowed: Any, token_map: Any, k: int) -> tuple[Any, Any, Any]:
    """Returns the k best allowed positions of each row as document token, position and logit.

    Where fewer are allowed, the document token of the others is -1. Of equal logits the earlier
    position comes first.

    Args:
        logits: ``[B, L]``.
        allowed: bool ``[L]`` or ``[B, L]``.
        token_map: int ``[B, L]``.
        k: at most ``L``.

    Returns:
        Three tensors ``[B, k]``.
    """
    lowest = float(np.finfo(np.float32).min)
    masked = ops.where(allowed, logits, lowest)
    value, pos = ops.top_k(masked, k)
    doc = ops.take_along_axis(token_map, pos, axis=1)
    return ops.where(value > lowest, doc, -1), pos, value
