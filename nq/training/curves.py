"""The losses of a training, step by step."""

from __future__ import annotations

LOSS = "loss"
PARTS = ("hard_loss", "soft_loss")
"""What a training with a teacher minimizes: the losses by the labels and by the teacher."""

Curves = dict[str, list[float]]
"""The values of ``LOSS``, and with a teacher of ``PARTS``, of all steps."""
