"""Tests of the converted graphs in the user's cache, with real engines and a tiny model."""

import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

import nq
from nq.extras import versions
from nq.inference import engine
from nq.inference.engine import CONVERTING, KEPT, FolderNetwork, graph_folder, load_graph
from nq.memo import DIGESTS
from nq.model.model import Model
from nq.storage import cache_folder
from tests.support.folders import flip
from tests.test_missing_packages import run_without

QUESTION, PAGE = "the lake", "the lake is deep\n\nthe river is long\n\nthe lake was old"
ASK = """
import json, sys, nq
answer = nq.load(sys.argv[1], profile=sys.argv[2]).ask(sys.argv[3], sys.argv[4])
imported = [name for name in ("keras", "tensorflow") if sys.modules.get(name)]
print(json.dumps(answer.to_dict() | {"imported": imported}))
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return cache_folder() / "graphs"


def network(folder: Path) -> FolderNetwork:
    return FolderNetwork(Model.open(folder).reader, "float32")


def kept(cache: Path) -> dict[str, bytes]:
    """Returns the files in the cache, those of unfinished conversions too."""
    files = [path for path in cache.rglob("*") if path.is_file()]
    return {path.relative_to(cache).as_posix(): path.read_bytes() for path in files}


def ask_without(packages: str, folder: Path, *arguments: object) -> dict[str, Any]:
    """Returns the answer of a process that lacks some packages."""
    done = run_without(packages, folder, "-c", ASK, *arguments, QUESTION, PAGE)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.slow
def test_no_process_needs_tensorflow(cache: Path, tiny_model: Path, tmp_path: Path) -> None:
    first, later = (ask_without(p, tmp_path, tiny_model, "openvino") for p in ("tensorflow", ""))
    assert len(list(cache.iterdir())) == 1
    assert first | {"imported": []} == later  # though both can be imported


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["openvino", "onnx"])
def test_the_second_process_needs_neither_tensorflow_nor_keras(
    profile: str, cache: Path, tiny_model: Path, tmp_path: Path
) -> None:
    expected = nq.load(tiny_model, profile="grappler").ask(QUESTION, PAGE).to_dict()
    nq.load(tiny_model, profile=profile).ask(QUESTION, PAGE)
    before = kept(cache)
    answer = ask_without("tensorflow keras", tmp_path, tiny_model, profile)
    assert answer.pop("imported") == []
    assert as_numbers(answer) == pytest.approx(as_numbers(expected), abs=1e-4)
    assert kept(cache) == before


def as_numbers(answer: object) -> dict[str, object]:
    """Returns the leaves of JSON by their paths."""
    if isinstance(answer, dict | list):
        pairs = answer.items() if isinstance(answer, dict) else enumerate(answer)
        return {f"{key}/{path}": x for key, one in pairs for path, x in as_numbers(one).items()}
    return {"": answer}


DAMAGES: list[Callable[[Path], object]] = [
    lambda folder: flip(folder / "model.bin", -9),
    lambda folder: (folder / "model.xml").rename(folder / "other.xml"),
    lambda folder: (folder / DIGESTS).write_text("{"),
    lambda folder: list(map(Path.unlink, folder.iterdir())),
]


@pytest.mark.slow
def test_a_damaged_graph_is_made_again(
    cache: Path, tiny_model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected = nq.load(tiny_model, profile="openvino").ask(QUESTION, PAGE)
    before = kept(cache)
    assert {Path(name).name for name in before} == {"model.xml", "model.bin", DIGESTS}
    folder = graph_folder(network(tiny_model), ["openvino"])
    for damage in DAMAGES:
        damage(folder)
        caplog.clear()
        assert nq.load(tiny_model, profile="openvino").ask(QUESTION, PAGE) == expected
        assert len(caplog.messages) == 1 and str(folder) in caplog.text
        assert kept(cache).keys() == before.keys()
        caplog.clear()
        nq.load(tiny_model, profile="openvino").ask(QUESTION, PAGE)
        assert caplog.text == ""


def test_no_graph_is_kept_of_a_model_that_changed(cache: Path, own_model: Path) -> None:
    """It would be found by the digest of the weights before."""
    given = network(own_model)
    _ = given.folder.digest
    settings = json.loads((own_model / "config.json").read_bytes())
    (own_model / "config.json").write_text(json.dumps(settings | {"layer_norm_eps": 0.5}))
    load_graph(given, [], lambda folder: (folder / "model").touch(), lambda folder: None)
    assert not kept(cache) and not graph_folder(given, []).exists()


def test_two_that_write_at_once_leave_one_graph(cache: Path, tiny_model: Path) -> None:
    together, given = Barrier(2), network(tiny_model)
    assert given.is_complete

    def write(folder: Path) -> None:
        together.wait(60)  # neither is finished
        (folder / "model").write_bytes(b"graph")

    def load(_: int) -> bytes:
        return load_graph(given, [], write, lambda folder: (folder / "model").read_bytes())

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(load, range(2))) == [b"graph"] * 2
    folder = graph_folder(given, [])
    assert {path.name for path in folder.iterdir()} == {"model", DIGESTS}
    assert list(cache.iterdir()) == [folder]
    assert load(0) == b"graph"  # the barrier would break


def test_a_conversion_is_told_before_and_after_it_and_once(
    cache: Path, tiny_model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    def write(folder: Path) -> None:
        assert caplog.messages == [CONVERTING]
        (folder / "model").write_bytes(b"graph")

    for _ in range(2):
        load_graph(network(tiny_model), [], write, lambda folder: None)
    _, kept_in = caplog.messages
    assert kept_in.startswith("the converted model is kept: ") and str(cache) in kept_in


@pytest.mark.parametrize("clock_was_set_back", [False, True])
def test_the_newest_graphs_stay(
    clock_was_set_back: bool, cache: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, folders = network(tiny_model), list[Path]()
    for number in range(KEPT + 2):
        monkeypatch.setattr(engine, "__version__", f"0.0.{number}")
        load_graph(given, [], lambda folder: (folder / "model").touch(), lambda folder: None)
        folders.append(graph_folder(given, []))
        assert folders[-1].exists() and len(list(cache.iterdir())) == min(number + 1, KEPT)
        seconds = time.time() + 1e6 if clock_was_set_back else number
        os.utime(folders[-1], (seconds, seconds))
    if not clock_was_set_back:
        assert [folder.exists() for folder in folders] == [False] * 2 + [True] * KEPT


def test_each_model_and_version_has_a_graph_of_its_own(
    tiny_model: Path, tiny_mpnet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def folder(model: Path = tiny_model, package: str = "openvino") -> Path:
        return graph_folder(network(model), [package])

    folders = [folder(), folder(tiny_mpnet), folder(package="onnx")]
    assert folders[0] == folder()
    for other in ("openvino", "keras"):
        with monkeypatch.context() as patch:
            others = {other: "0.0.1"}
            patch.setattr(engine, "versions", lambda names, o=others: versions(names) | o)
            folders.append(folder())
    monkeypatch.setattr(engine, "__version__", "0.0.1")
    folders.append(folder())
    assert len(set(folders)) == len(folders) == 6
