"""Networks, engines that compute with them, and the engine that a profile names."""

from __future__ import annotations

import contextlib
import importlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from nq.inference.batches import Shape
from nq.inference.profile import Profile
from nq.inference.reduction import Reduction
from nq.inference.scorer import Rows
from nq.model.checkpoint import with_room_for
from nq.model.config import ModelConfig
from nq.model.folder import load_config
from nq.model.model_spec import ModelSpec
from nq.model.runtime import import_tensorflow
from nq.model.tensors import check_length
from nq.preprocess.tokenizers.load import load_tokenizer

if TYPE_CHECKING:
    import keras

    from nq.model.joint import LoadedModel

log = logging.getLogger(__name__)

Step = Callable[[Rows], Sequence[Any]]
"""Maps rows of one static shape to the columns of the reduction as arrays."""


@dataclass(eq=False, repr=False)
class Network:
    """A Keras model, made by ``joint.build``, with its configuration."""

    config: ModelConfig
    model: keras.Model

    @cached_property
    def unmasked(self) -> keras.Model:
        """The network with the same layers and no attention mask, for batches of full windows."""
        from nq.model import joint

        return joint.for_full_windows(self.model, self.config)


class FolderNetwork(Network):
    """The network of a model folder, under a Keras dtype policy.

    Its weights are loaded, and TensorFlow and Keras imported, when the model is first needed. The
    tokenizer of the folder may have more ids than there are embeddings: those of markers, which
    running text does not have. Its readers need no head for types either.
    """

    def __init__(self, model: ModelSpec, policy: str) -> None:
        self.folder, self._policy = model.folder, policy
        config = load_config(self.folder)
        check_length(config, model.windows.max_seq_length)
        self._needs_types = not model.windows.switches.running_text
        wide = with_room_for(config, load_tokenizer(self.folder, model.windows.compat))
        self.config = wide if self._needs_types else config

    @cached_property
    def _loaded(self) -> LoadedModel:
        import_tensorflow()
        from nq.model import joint

        loaded = joint.load_model(self.folder, dtype=self._policy, config=self.config)
        if warning := loaded.report.warning(self._needs_types):
            log.warning("%s", warning)
        if loaded.report.unexpected:
            log.info("unused tensors of the checkpoint: %s", ", ".join(loaded.report.unexpected))
        return loaded

    @property
    def model(self) -> keras.Model:
        """The Keras model."""
        return self._loaded.model

    @property
    def is_complete(self) -> bool:
        """Whether the folder has all weights of the model."""
        return not self._loaded.report.warning(self._needs_types)


@dataclass(frozen=True, eq=False)
class Computation:
    """What an engine computes: a network under the dtype policy of a profile, and a reduction.

    For ``calibration``, ``threads`` and ``adaptive`` see ``ScorerSpec``.
    """

    network: Network
    profile: Profile
    reduction: Reduction
    calibration: Rows = field(default_factory=dict)
    threads: int | None = None
    adaptive: bool = False


class Engine(Protocol):
    """Compiles and runs a computation.

    ``precision`` is the compute type of the matrix products, ``device`` is ``CPU`` or ``GPU``.
    With ``any_shape`` a new shape costs nothing where the computation is ``adaptive``.
    """

    precision: str
    device: str
    any_shape: bool

    def options(self) -> contextlib.AbstractContextManager[object]:
        """Returns the settings of the process under which steps are compiled and run."""

    def compiled(self, shape: Shape) -> Step:
        """Returns a compiled step for rows of exactly this shape; checks it against the profile."""


def make_engine(computation: Computation) -> Engine:
    """Returns the engine that the computation's profile names, if its packages are installed."""
    computation.profile.require()
    name = computation.profile.changes.engine
    engine: Engine = importlib.import_module(f"nq.inference.engines.{name}").Engine(computation)
    return engine


def with_reduction(compute: Callable[[Rows], dict[str, Any]], reduction: Reduction) -> Step:
    """Returns a compiled step followed by the reduction of its logits, which are arrays."""
    return lambda rows: reduction(compute(rows), rows["token_map"])


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppresses the log of all libraries up to warnings in the block."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
