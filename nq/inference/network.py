"""A Keras model with its configuration, as engines and scorers pass it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cached_property

import keras

from nq.config import ModelConfig
from nq.model import joint
from nq.model.folder import load_config
from nq.model.shapes import check_length
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
    check_length(load_config(model.folder), model.windows.max_seq_length)
    tokenizer = load_tokenizer(model.folder, model.windows.compat)
    loaded = joint.load(model.folder, tokenizer, policy)
    report = loaded.report
    if report.warning():
        log.warning("%s", report.warning())
    if report.unexpected:
        log.info("tensors of the checkpoint without use: %s", ", ".join(report.unexpected))
    return Network(loaded.config, loaded.model)
