"""A model is opened once: how often its files are read, and what notices that they have changed."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

import nq
from nq.bundle import bundled_pair
from nq.config import WindowConfig
from nq.errors import Error
from nq.model.folder import ModelSettings, save_settings
from tests.support.child_processes import python

COUNTER = """
import collections, json, os, sys
opened = collections.Counter()

def count(event, arguments):
    if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
        path = os.fsdecode(arguments[0])
        if path.startswith(sys.argv[1] + os.sep):
            opened[os.path.relpath(path, sys.argv[1])] += 1

sys.addaudithook(count)
import nq
"""
"""Counts the files in the folder of the bundled models that a process opens."""
ASK = "nq.load(profile='openvino').ask('who built it?', 'Ada Brenn built it.')"
RUN = "nq.run(nq.bundled_sample(), limit=3, profile='openvino')"


@pytest.mark.slow
@pytest.mark.parametrize("use", [ASK, RUN])
def test_each_file_is_opened_a_few_times(use: str, tmp_path: Path) -> None:
    code = f"{COUNTER}{use}\nprint(json.dumps(opened))"
    cache = str(tmp_path / "cache")
    done = python("-c", code, bundled_pair(), folder=tmp_path, XDG_CACHE_HOME=cache)
    opened = json.loads(done.stdout.splitlines()[-1])
    names = ("config.json", "model.safetensors", "nq.json", "vocab.txt")
    expected = {f"{model}/{name}" for model in ("ranker", "small") for name in names}
    assert expected | {"nq.json"} <= opened.keys()
    # to load it, when its graph is kept, and at the end of a run; model and tokenizer have one
    # file together
    assert max(opened.values()) <= 6 and sum(opened.values()) <= 37, opened


def append(name: str, text: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes() + text)


def widen(folder: Path) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"layer_norm_eps": 0.5}))


CHANGES: dict[str, Callable[[Path], object]] = {
    "shape": widen,
    "settings": lambda folder: save_settings(folder, ModelSettings(WindowConfig(doc_stride=7))),
    "weights": append("model.safetensors", b"\0"),
    "vocabulary": append("vocab.txt", b"zebra\n"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_noticed(own_model: Path, change: str) -> None:
    model, same = nq.Model.open(own_model), nq.Model.open(own_model)
    _ = model.tokenizer.digest
    same.check_same()
    CHANGES[change](own_model)
    with pytest.raises((Error, ValueError), match=str(own_model)):
        model.check_same()


@pytest.mark.parametrize("change", ["weights", "vocabulary"])
def test_another_process_finds_the_same_files(own_model: Path, change: str) -> None:
    own = nq.Model.open(own_model)
    save_settings(own_model, ModelSettings(own.windows))  # without digests of the weights
    model = nq.Model.open(own_model)
    sent = pickle.dumps((model, model.tokenizer))
    arrived, tokenizer = pickle.loads(sent)
    assert arrived == model and arrived.reader.files is not model.reader.files
    assert (arrived.key, tokenizer.digest) == (model.key, model.tokenizer.digest)
    CHANGES[change](own_model)
    with pytest.raises(Error, match=str(own_model)):
        _ = pickle.loads(sent)[0].reader.digest
