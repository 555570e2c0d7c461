"""Tests that no command harms files of the user: in its output folder, or as its input."""

import contextlib
import logging.handlers  # noqa: F401 - a process without privileges may not read the library
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import nq.commands.compare
import nq.lab.measure  # noqa: F401 - as above
from nq.bundle import bundled_model, bundled_sample
from nq.commands.main import console
from nq.preprocess.shards import PREPARED
from nq.runs.folder import RUN
from nq.storage import MARK, Kind, hold
from nq.training.job import TRAINING
from tests.conftest import Commands
from tests.support.folders import tree, write
from tests.support.nq_records import simplified, write_lines

NOBODY = 65534
SAMPLE, MODEL = str(bundled_sample()), str(bundled_model())
WRITERS = {
    "answer --output": ["answer", "--data", SAMPLE, "--output"],
    "answer --root": ["answer", "--data", SAMPLE, "--root"],
    "preprocess": ["preprocess", "--data", SAMPLE, "--output"],
    "train": ["train", "--data", SAMPLE, "--init", MODEL, "--output"],
    "convert": ["convert", MODEL],
    "compare": ["compare", "--data", SAMPLE, "--output"],
}
"""Commands, up to the folder that they write to."""


@pytest.mark.slow
def test_files_of_others_survive_every_run(tiny_model: Path, tmp_path: Path) -> None:
    out, cache = tmp_path / "out", tmp_path / "cache"
    command = ["answer", "--data", SAMPLE, "--model", str(tiny_model), "--output", str(out)]
    command += ["--no-track", "--json"]
    everything = ["--limit", "3", "--keep-scores", "--formats", "kaggle,nbest,squad"]
    assert console([*command, *everything]) == 0
    (windows,) = out.glob("windows-*")
    foreign = {
        *("notes.txt", "half.tmp", "windows-mine.tfrecord", "training/mine.npz"),
        f"{windows.name}/windows-mine.tfrecord",
    }
    for name in foreign:
        write(out / name)
    mine = {name: content for name, content in tree(out).items() if name in foreign}
    assert console([*command, "--limit", "2"]) == 0
    assert console([*command, *everything]) == 0
    assert console([*command, "--limit", "2"]) == 0
    assert mine.items() <= tree(out).items()
    assert not (out / "scores").exists()
    assert not list(out.glob("*.csv"))
    assert console(["clean", str(out), "--runs"]) == 0
    left = {name for name, content in tree(out).items() if content is not None}
    assert {name for name in left if Path(name).name != MARK} == foreign
    assert not cache.exists()


@pytest.mark.parametrize(
    ("name", "kind", "arguments"),
    [
        ("job.json", RUN, ["answer", "--data"]),
        ("windows-00000.tfrecord", PREPARED, ["preprocess", "--data"]),
        ("README.md", TRAINING, ["train", "--data", SAMPLE, "--init", MODEL, "--card"]),
    ],
)
def test_an_input_that_would_be_overwritten_is_refused(
    name: str, kind: Kind, arguments: list[str], tmp_path: Path, commands: Commands
) -> None:
    with hold(tmp_path, kind):
        data = write_lines(tmp_path / name, [simplified()])
    before = tree(tmp_path)
    error = commands.error(*arguments, data, "--output", tmp_path)
    assert error.count(str(data)) == 2
    assert tree(tmp_path) == before


@contextlib.contextmanager
def without_privileges() -> Iterator[None]:
    """Makes this process that of another user if it is root's, who may write everywhere."""
    if os.getuid():
        yield
        return
    os.setresuid(NOBODY, NOBODY, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


@pytest.fixture
def read_only(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a model folder, both not writable, which every user can read."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        monkeypatch.chdir(folder)
        model = Path(shutil.copytree(tiny_model, folder / "model"))
        for path in (model, folder):
            path.chmod(0o555)
        yield folder
        for path in (folder, model):
            path.chmod(0o755)


@pytest.mark.parametrize("command", WRITERS.values(), ids=WRITERS)
def test_a_read_only_folder_is_one_line_before_the_work(
    command: list[str], read_only: Path, commands: Commands
) -> None:
    with without_privileges():
        error = commands.error(*command, f"{read_only}/out/new")
    assert str(read_only) in error
