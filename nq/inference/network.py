"""A Keras model with its configuration, as engines and scorers pass it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import keras

from nq.config import ModelConfig
from nq.model import joint


@dataclass(frozen=True, eq=False)
class Network:
    """A Keras model with its configuration.

    Args:
        config: shape of the encoder.
        model: made by ``joint.build``.
    """

    config: ModelConfig
    model: keras.Model

    @cached_property
    def unmasked(self) -> keras.Model:
        """The same layers without an attention mask, for batches of full windows."""
        return joint.for_full_windows(self.model, self.config)
