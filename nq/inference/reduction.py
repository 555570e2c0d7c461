"""Reductions of a batch's logits on the device: to the top k positions, or none.

Reductions take tensors, in the graph of TensorFlow, and the arrays of other engines.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from nq.records import SCORE_COLUMNS, VECTORS

LOGITS = ("start_logits", "end_logits", "type_logits")


@dataclass(frozen=True)
class AllLogits:
    """Keeps all logits; start and end logits are padded with 0 to ``length`` positions."""

    columns: ClassVar[tuple[str, ...]] = LOGITS
    length: int

    def __call__(self, logits: dict[str, Any], token_map: Any) -> tuple[Any, ...]:
        """Returns the score columns of one batch; see ``TopK``."""
        ops = _ops(token_map)
        missing = [[0, 0], [0, self.length - token_map.shape[1]]]
        start, end = (ops.pad(logits[name], missing) for name in LOGITS[:2])
        return start, end, logits["type_logits"]


@dataclass(frozen=True)
class TopK:
    """Reduces the logits of a batch to ``WindowScores``: the k best starts and the k best ends.

    With ``text_only`` they are positions of document text; else any but [CLS], as the original.
    """

    columns: ClassVar[tuple[str, ...]] = SCORE_COLUMNS
    k: int
    text_only: bool

    def __call__(self, logits: dict[str, Any], token_map: Any) -> tuple[Any, ...]:
        """Returns the score columns; ``token_map`` is ``[B, L]``, -1 for no document token."""
        ops = _ops(token_map)
        start = logits["start_logits"]
        end = logits["end_logits"]
        length = token_map.shape[1]
        allowed = token_map >= 0 if self.text_only else ops.arange(length) > 0
        k = min(self.k, length)
        return (
            *top_positions(start, allowed, token_map, k),
            *top_positions(end, allowed, token_map, k),
            ops.stack([start[:, 0], end[:, 0]], axis=1),
            logits["type_logits"],
        )


@dataclass(frozen=True)
class Vectors:
    """Keeps the vector of each text, the output of a dual encoder."""

    columns: ClassVar[tuple[str, ...]] = (VECTORS,)

    def __call__(self, outputs: dict[str, Any], token_map: Any) -> tuple[Any, ...]:
        """Returns the column of one batch, ``[B, hidden]``."""
        return (outputs[VECTORS],)


Reduction = TopK | AllLogits | Vectors


def top_positions(logits: Any, allowed: Any, token_map: Any, k: int) -> tuple[Any, Any, Any]:
    """Returns the k best allowed positions of each row as document token, position and logit.

    Where fewer are allowed, the document token of the others is -1. Of equal logits the earlier
    position comes first. ``allowed`` is ``[L]`` or ``[B, L]``, the three results are ``[B, k]``.
    """
    ops = _ops(token_map)
    lowest = float(np.finfo(np.float32).min)
    candidates = ops.where(allowed, logits, lowest)
    if ops is np:
        descending = np.where(np.isnan(candidates), -np.inf, -candidates)  # NaN is seen later
        pos = np.argsort(descending, axis=1, kind="stable")[:, :k]
        value = np.take_along_axis(candidates, pos, axis=1)
    else:
        value, pos = ops.top_k(candidates, k)
    doc = ops.take_along_axis(token_map, pos, axis=1)
    return ops.where(value > lowest, doc, -1), pos, value


def _ops(array: Any) -> Any:
    """Returns the module that computes with an array: NumPy, or that of Keras for a tensor."""
    if isinstance(array, np.ndarray):
        return np
    from keras import ops

    return ops
