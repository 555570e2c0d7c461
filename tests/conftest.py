"""Tiny folders that tests share; see ``tests.support.tiny_models``."""

import dataclasses
import fcntl
import json
import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from nq.commands import terminal
from nq.commands.main import console
from tests.support import tiny_models
from tests.support.chromium import Browser, browser
from tests.support.terminal_output import without_progress

# Triton compiles for GPUs; importing it after TensorFlow's XLA has compiled crashes the process,
# since both bring an LLVM of their own. Without it torch works as well on a CPU.
sys.modules["triton"] = None  # type: ignore[assignment]

IS_WORKER = "PYTEST_XDIST_WORKER" in os.environ

# No test is timed; continuous integration draws the same examples each time.
hypothesis.settings.register_profile(
    "nq", deadline=None, derandomize="CI" in os.environ, print_blob=True, max_examples=25
)
hypothesis.settings.register_profile(
    "extended", hypothesis.settings.get_profile("nq"), max_examples=300
)
hypothesis.settings.load_profile("nq")


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """Names bytes by their argument: compressed files hold the time at which they were made."""
    return argname if isinstance(val, bytes) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts files with slow tests first, so that none of them begins when the others have ended."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


class Commands:
    """Runs commands of ``nq`` in this process.

    Attributes:
        err: what the last command wrote to stderr.
    """

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.err, self._capsys = "", capsys

    def out(self, *arguments: object, code: int = 0) -> str:
        """Returns what a command prints; it must end with an exit code."""
        self._capsys.readouterr()
        actual = console(list(map(str, arguments)))
        out, self.err = self._capsys.readouterr()
        assert actual == code, self.err
        return out

    def json(self, *arguments: object) -> Any:
        """Returns the JSON value that a command prints."""
        return json.loads(self.out(*arguments, "--json"))

    def error(self, *arguments: object, code: int = 1) -> str:
        """Returns the only line of a command that fails."""
        assert self.out(*arguments, code=code) == ""
        (line,) = without_progress(self.err).splitlines()
        assert line.startswith(("nq: error: ", f"nq {arguments[0]}: error: "))
        return line


@pytest.fixture
def commands(capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(capsys)


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """A command that a test runs in this process sets up logging; the next test has its own.

    A fixture of a wider scope may have run one before.
    """
    ours, root = logging.getLogger("nq"), logging.getLogger()

    def reset() -> None:
        root.handlers[:] = [h for h in root.handlers if type(h).__module__ != terminal.__name__]
        root.setLevel(logging.WARNING)
        ours.setLevel(logging.NOTSET)

    reset()
    yield
    reset()


@pytest.fixture(scope="session", autouse=True)
def cache_home(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Gives all processes of the pytest run one cache of their own."""
    base = tmp_path_factory.getbasetemp()
    os.environ["XDG_CACHE_HOME"] = str((base.parent if IS_WORKER else base) / "cache")


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A tab of a Chromium that the tests of a file share."""
    with browser(tmp_path_factory.mktemp("profile")) as running:
        yield running


OncePerRun = Callable[[str, Callable[[Path], None]], Path]


@pytest.fixture(scope="session")
def once_per_run(tmp_path_factory: pytest.TempPathFactory) -> OncePerRun:
    """Returns a function that makes a folder once for all processes of the pytest run.

    It takes a name and what fills the new folder; tests read the folder, or copy it.
    """
    base = tmp_path_factory.getbasetemp()
    if IS_WORKER:
        base = base.parent

    def folder(name: str, fill: Callable[[Path], None]) -> Path:
        path = base / f"once-{name}"
        with path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                unfinished = path.with_suffix(".unfinished")
                unfinished.mkdir()
                fill(unfinished)
                unfinished.rename(path)
        return path

    return folder


@pytest.fixture(scope="session")
def tiny_vocab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ``vocab.txt`` of letters, a few words and the markers by name."""
    return tiny_models.write_vocab(tmp_path_factory.mktemp("tiny-vocab") / "vocab.txt")


@pytest.fixture(scope="session")
def tiny_model(tiny_vocab: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete model folder; read it, do not write into it."""
    folder = tmp_path_factory.mktemp("tiny-model")
    model, shape = tiny_models.model(), tiny_models.SHAPE
    return tiny_models.save(folder, model, shape, tiny_vocab, max_seq_length=32, doc_stride=8)


@pytest.fixture(scope="session")
def converted_model(tiny_model: Path) -> Path:
    """The tiny model, whose graph for OpenVINO is in the cache of the pytest run.

    A process that answers with it under ``openvino`` needs no TensorFlow and tells no conversion.
    """
    import nq

    with nq.load(tiny_model, profile="openvino") as reader:
        reader.ask("the lake", "the lake is deep")
    return tiny_model


@pytest.fixture
def own_model(tiny_model: Path, tmp_path: Path) -> Path:
    """A copy of the tiny model to write into."""
    return Path(shutil.copytree(tiny_model, tmp_path / "model"))


@pytest.fixture(scope="session")
def tiny_mpnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete model folder of another family, vocabulary and window length."""
    from nq.model import joint

    path = tmp_path_factory.mktemp("mpnet-vocab") / "vocab.txt"
    vocab = tiny_models.write_vocab(path, tiny_models.MPNET_VOCABULARY)
    folder, shape = tmp_path_factory.mktemp("tiny-mpnet"), tiny_models.MPNET
    model = joint.build(shape, seed=5)
    return tiny_models.save(folder, model, shape, vocab, max_seq_length=24, doc_stride=7)


@pytest.fixture(scope="session")
def tiny_ranker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete model folder of a dual encoder; read it, do not write into it."""
    from nq.model import joint

    path = tmp_path_factory.mktemp("ranker-vocab") / "vocab.txt"
    vocab = tiny_models.write_vocab(path, tiny_models.MPNET_VOCABULARY)
    shape = dataclasses.replace(tiny_models.MPNET, pooling="mean")
    model = joint.build(shape, seed=5)
    folder = tmp_path_factory.mktemp("tiny-ranker")
    return tiny_models.save(folder, model, shape, vocab, max_seq_length=24)


@pytest.fixture(scope="session")
def tiny_pair(tiny_model: Path, tiny_mpnet: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both tiny models, the second one as the reader; do not write into it."""
    from nq.model.model import Model

    model = Model.open(tiny_mpnet, ranker=tiny_model)
    return model.copy(tmp_path_factory.mktemp("tiny-pair") / "pair")
