"""Loss over several windows of one page.

A softmax over each window alone never asks that the right window of a page beats the others, which
is what the decision needs. One over a group of them does: Clark and Gardner 2018,
https://arxiv.org/abs/1710.10723, section 3.3.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

WRONG = -1e9


class SharedSoftmax(keras.losses.Loss):
    """Mean of two cross entropies: in each window, and over all positions of a group of windows.

    The second leaves out the first position, which stands for "not in this window"; any right
    position of the group will do, and a group without one does not count.
    """

    def __init__(self, group: int, name: str = "shared_softmax") -> None:
        super().__init__(name)
        self.group = group

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """Loss ``[B]`` of each window, from positions ``[B]`` and logits ``[B, L]``."""
        alone = ops.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)
        places = ops.arange(1, ops.shape(y_pred)[1], dtype=y_true.dtype)
        is_right = ops.expand_dims(y_true, 1) == places
        logits, groups = y_pred[:, 1:], ops.shape(y_pred)[0] // self.group
        right_logits = ops.where(is_right, logits, WRONG)
        everything, right = (
            ops.logsumexp(ops.reshape(x, (groups, -1)), axis=1) for x in (logits, right_logits)
        )
        found = ops.any(ops.reshape(is_right, (groups, -1)), axis=1)
        together = ops.where(found, everything - right, 0.0)
        return (alone + ops.repeat(together, self.group)) / 2

    def get_config(self) -> dict[str, Any]:
        return {"group": self.group, "name": self.name}
