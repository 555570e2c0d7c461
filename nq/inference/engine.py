"""Networks, engines that compute with them, and the graphs that engines keep.

Graphs for engines other than TensorFlow are made once, which takes seconds, and kept in the user's
cache. A process that finds the graph imports neither TensorFlow nor Keras. The cache is a memo with
a part for each graph, named by a digest of all that the graph depends on. The newest ``KEPT`` stay.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from nq import __version__, storage
from nq.errors import DamagedError, Error
from nq.extras import versions
from nq.inference.batches import Shape
from nq.inference.profile import Profile
from nq.inference.reduction import Reduction
from nq.inference.scorer import Rows
from nq.memo import Memo, keep_newest
from nq.model import checkpoint
from nq.model.config import ModelConfig
from nq.model.folder import ModelFolder
from nq.model.model import ModelPart
from nq.model.runtime import import_tensorflow
from nq.text import format_bytes

if TYPE_CHECKING:
    import keras

log = logging.getLogger(__name__)

KEPT = 8
CONVERTING = (
    "converting the model, once for each model and engine: some seconds for a small model, up to "
    "a minute for a large one …"
)

T = TypeVar("T")

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

    @contextlib.contextmanager
    def stored(self) -> Iterator[ModelFolder]:
        """Yields a folder with the weights of the network, which exists in the block."""
        with tempfile.TemporaryDirectory(prefix="nq-graph-") as name:
            checkpoint.save_weights(Path(name), self.model, self.config)
            yield ModelFolder(Path(name))


class FolderNetwork(Network):
    """The network of a model folder, under a Keras dtype policy.

    Its weights are loaded, and TensorFlow and Keras imported, when the Keras model is first needed.
    The tokenizer of the folder may have more ids than there are embeddings: those of markers, which
    running text does not have. Its readers need no head for types either.
    """

    def __init__(self, model: ModelPart, policy: str) -> None:
        self.folder = model.files
        self._policy = policy
        config = model.config
        self._needs_types = not model.windows.switches.running_text
        wide = checkpoint.with_room_for(config, model.tokenizer)
        self.config = wide if self._needs_types else config

    @cached_property
    def model(self) -> keras.Model:
        """The Keras model; of missing weights, which are random, a warning is logged."""
        _ = self.is_complete
        import_tensorflow()
        from nq.model import joint

        return joint.load_model(self.folder, dtype=self._policy, config=self.config).model

    @cached_property
    def is_complete(self) -> bool:
        """Whether the folder has all weights of the model, without which a warning is logged."""
        report = checkpoint.LoadReport.of(self.folder.tensors(), self.config)
        if warning := report.warning(self._needs_types):
            log.warning("%s", warning)
        if report.unexpected:
            log.info("unused tensors of the checkpoint: %s", ", ".join(report.unexpected))
        return not warning

    @contextlib.contextmanager
    def stored(self) -> Iterator[ModelFolder]:
        """Yields the folder of the model."""
        yield self.folder


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


def load_graph(
    network: Network,
    packages: Sequence[str],
    write: Callable[[Path], object],
    read: Callable[[Path], T],
) -> T:
    """Returns ``read(folder)`` of the cached graph, whose files ``write`` makes if there are none.

    Nothing is kept of a network that lacks weights, which its loading must report each time, nor of
    a folder that has changed since its digest, by which a graph is found, was read.
    """

    def written(folder: Path) -> T:
        write(folder)
        return read(folder)

    if isinstance(network, FolderNetwork):
        model = network.folder

        def checked(folder: Path) -> T:
            graph = written(folder)
            model.check_same()
            return graph

        folder = graph_folder(network, packages)
        memo = Memo(folder.parent)
        try:
            if folder.exists():
                return read(memo.files(folder.name))
        except (OSError, DamagedError) as error:
            log.warning("the converted model is made again: %s", error)
            shutil.rmtree(folder, ignore_errors=True)
        if network.is_complete:
            log.info("%s", CONVERTING)
            try:
                graph = memo.write_files(folder.name, checked)
            except (OSError, Error) as error:
                log.debug("the converted model cannot be kept: %s", error)
            else:
                size = format_bytes(sum(path.stat().st_size for path in folder.iterdir()))
                log.info("the converted model is kept: %s in %s", size, folder)
                keep_newest(folder, "[!.]*", KEPT)
                return graph
    with tempfile.TemporaryDirectory(prefix="nq-graph-") as name, storage.naming(Path(name)):
        return written(Path(name))


def code_digests(*packages: str) -> list[str]:
    """Returns the SHA-256 of each module in packages of this one."""
    folders = [Path(__file__).parents[1] / name for name in packages]
    paths = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    return [storage.sha256(path) for path in paths]


def graph_folder(network: FolderNetwork, packages: Sequence[str]) -> Path:
    """Returns the folder of the graph that versions of packages make of a network."""
    depends = [
        network.folder.digest,
        network.config.to_dict(),
        code_digests("inference/engines", "model"),
        __version__,
        versions(("keras", *packages)),
    ]
    return storage.cache_folder() / "graphs" / storage.digest_json(depends)[:32]
