"""A Keras model with its configuration, as engines and scorers pass it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cached_property

import keras

from nq.config import ModelConfig
from nq.model import checkpoint, joint
from nq.model.spec import ModelSpec
from nq.preprocess.tokenizers.load import load_tokenizer

log = logging.getLogger(__name__)


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


def load_network(model: ModelSpec, policy: str) -> Network:
    """Loads the weights of a model folder.

    Args:
        model: whose tokenizer may have more ids than there are embeddings.
        policy: Keras dtype policy.
    """
    own = checkpoint.load_config(model.folder)
    checkpoint.read_tensors(model.folder).table(own)  # before anything of its size is built
    tokenizer = load_tokenizer(model.folder, model.windows.compat)
    config = checkpoint.with_room_for(own, tokenizer)
    joint.check_length(config, model.windows.max_seq_length)
    network = joint.build(config, dtype=policy, initialize=False)
    report = checkpoint.load(model.folder, network, config)
    if report.warning():
        log.warning("%s", report.warning())
    if report.unexpected:
        log.info("tensors of the checkpoint without use: %s", ", ".join(report.unexpected))
    return Network(config, network)
