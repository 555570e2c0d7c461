"""Graphs for engines other than TensorFlow, converted once and kept in the user's cache.

A conversion needs TensorFlow and takes seconds; a process that finds the graph imports neither
TensorFlow nor Keras. The folder of a graph is a memo, named by a digest of all that it depends on,
with a part for each version of TensorFlow. The newest ``KEPT`` graphs stay.
"""

import logging
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from nq import __version__, storage
from nq.errors import DamagedError, Error
from nq.extras import installed
from nq.inference.engine import FolderNetwork, Network
from nq.memo import Memo
from nq.model.folder import weights_digest

log = logging.getLogger(__name__)

KEPT = 8
CODE = tuple(Path(__file__).parents[1] / name for name in ("inference/engines", "model"))

T = TypeVar("T")


def load_graph(
    network: Network,
    packages: Sequence[str],
    write: Callable[[Path], object],
    read: Callable[[Path], T],
) -> T:
    """Returns ``read(folder)`` of the cached graph, whose files ``write`` makes if there are none.

    Nothing is kept of a network that lacks weights, which its loading must report each time.
    """

    def written(folder: Path) -> T:
        write(folder)
        return read(folder)

    if isinstance(network, FolderNetwork):
        folder = graph_folder(network, packages)
        memo = Memo(folder.parent)
        try:
            if folder.exists():
                return read(memo.files(folder.name))
        except (OSError, DamagedError) as error:
            log.warning("the converted model is made again: %s", error)
            shutil.rmtree(folder, ignore_errors=True)
        if network.is_complete:
            try:
                graph = memo.write_files(folder.name, written)
            except (OSError, Error) as error:
                log.debug("the converted model cannot be kept: %s", error)
            else:
                _remove_old(folder)
                return graph
    with tempfile.TemporaryDirectory(prefix="nq-graph-") as name, storage.naming(Path(name)):
        return written(Path(name))


def graph_folder(network: FolderNetwork, packages: Sequence[str]) -> Path:
    """Returns the folder of a graph; without TensorFlow, one that any of its versions made."""
    code = [storage.sha256(path) for folder in CODE for path in sorted(folder.rglob("*.py"))]
    depends = [
        *(weights_digest(network.folder), network.config.to_dict(), code),
        *(__version__, [installed(name) for name in ("keras", *packages)]),
    ]
    folder = storage.cache_folder() / "graphs" / storage.digest_json(depends)[:32]
    earlier = sorted(path.name for path in folder.glob("tensorflow*"))
    name = installed("tensorflow-cpu") or installed("tensorflow") or [*earlier, "none"][0]
    return folder / name


def _remove_old(folder: Path) -> None:
    """Removes all graphs but the newest ``KEPT`` after a new one was written to a folder."""
    log.info("the converted model is kept in %s", folder)
    others = {*folder.parents[1].glob("*/tensorflow*")} - {folder}
    for old in sorted(others, key=lambda path: path.stat().st_mtime)[: 1 - KEPT]:
        shutil.rmtree(old)  # never the new one, which a clock set back makes the oldest
