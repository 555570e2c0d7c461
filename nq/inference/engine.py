"""A network, what an engine computes with it, and the choice of the engine that a profile names."""

from __future__ import annotations

import contextlib
import importlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import keras
import tensorflow as tf

from nq.config import ModelConfig
from nq.inference.batches import Shape
from nq.inference.profile import Profile
from nq.inference.reduction import Reduction
from nq.inference.scorer import Rows
from nq.model import joint
from nq.model.folder import load_config
from nq.model.shapes import check_length
from nq.model.spec import ModelSpec
from nq.preprocess.tokenizers.load import load_tokenizer

log = logging.getLogger(__name__)

Step = Callable[[Rows], Sequence[Any]]
"""Maps rows of one static shape to the columns of the reduction as arrays."""


@dataclass(frozen=True, eq=False)
class Network:
    """A Keras model, made by ``joint.build``, with its configuration."""

    config: ModelConfig
    model: keras.Model

    @cached_property
    def unmasked(self) -> keras.Model:
        """The same layers without an attention mask, for batches of full windows."""
        return joint.for_full_windows(self.model, self.config)


def load_network(model: ModelSpec, policy: str) -> Network:
    """Loads the weights of a model folder under a Keras dtype policy.

    The tokenizer of the folder may have more ids than there are embeddings.
    """
    check_length(load_config(model.folder), model.windows.max_seq_length)
    tokenizer = load_tokenizer(model.folder, model.windows.compat)
    loaded = joint.load(model.folder, tokenizer, policy)
    if warning := loaded.report.warning():
        log.warning("%s", warning)
    if loaded.report.unexpected:
        log.info("unused tensors of the checkpoint: %s", ", ".join(loaded.report.unexpected))
    return Network(loaded.config, loaded.model)


@dataclass(frozen=True, eq=False)
class Computation:
    """What an engine computes: a network under the dtype policy of a profile, and a reduction.

    For ``calibration`` and ``threads`` see ``ScorerSpec``.
    """

    network: Network
    profile: Profile
    reduction: Reduction
    calibration: Rows = field(default_factory=dict)
    threads: int | None = None


class Engine(Protocol):
    """Compiles and runs a computation."""

    precision: str
    """Compute type of the matrix products."""
    device: str
    """``CPU`` or ``GPU``."""

    def compiled(self, shape: Shape) -> Step:
        """Returns a step for rows of exactly this shape, which is what the profile requires."""


def make_engine(computation: Computation) -> Engine:
    """Returns the engine that the computation's profile names, if its packages are installed."""
    computation.profile.require()
    name = computation.profile.changes.engine
    engine: Engine = importlib.import_module(f"nq.inference.engines.{name}").Engine(computation)
    return engine


def with_reduction(
    compute: Callable[[Rows], Mapping[str, Any]], reduction: Reduction, shape: Shape
) -> Step:
    """Returns a step that computes logits outside of TensorFlow and reduces them in it."""
    lengths = {"start_logits": [shape.length], "end_logits": [shape.length], "type_logits": [5]}
    signature = (
        {name: tf.TensorSpec((shape.batch_size, *size)) for name, size in lengths.items()},
        tf.TensorSpec((shape.batch_size, shape.length), tf.int32),
    )
    reduce = tf.function(reduction, signature).get_concrete_function()

    def step(rows: Rows) -> list[Any]:
        logits = {name: tf.constant(x) for name, x in compute(rows).items()}
        return [column.numpy() for column in reduce(logits, tf.constant(rows["token_map"]))]

    return step


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppresses the log of all libraries up to warnings in the block."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
