"""The model as engines get it: its layers once, wired with and without a mask."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import keras

from nq.config import ModelConfig
from nq.model import joint


@dataclass(frozen=True, eq=False)
class Network:
    """A model with its shape.

    Args:
        config: shape of the encoder.
        model: as ``joint.build`` makes it.
    """

    config: ModelConfig
    model: keras.Model

    @cached_property
    def full(self) -> keras.Model:
        """The same weights without a mask, for windows that are full."""
        return joint.for_full_windows(self.model, self.config)

    def wired(self, full: bool) -> keras.Model:
        """The model for windows that are all full, or for any."""
        return self.full if full else self.model
