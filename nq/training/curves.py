"""The losses of a training, step by step, and its evaluations."""

from __future__ import annotations

LOSS = "loss"
PARTS = ("hard_loss", "soft_loss")
"""What a training with a teacher minimizes: the losses by the labels and by the teacher."""

Curves = dict[str, list[float]]
"""The values of ``LOSS``, and with a teacher of ``PARTS``, of all steps."""

STEP = "step"
MEASURED = ("micro_f1", "long_f1", "short_f1")
"""The figures of an evaluation on held-out questions."""

Figures = dict[str, float]
"""``STEP`` and ``MEASURED`` of an evaluation."""
