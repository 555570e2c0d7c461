"""Tests which folders are cleaned: unfinished and finished, old and new, in use or not."""

import os
from pathlib import Path
from typing import Any

import pytest

from nq.cleaning import RESULT, Item, clean
from nq.preprocess.shards import PREPARED
from nq.runs.folder import RUN
from nq.storage import LOCK, MARK, PART, Kind, hold, write_json
from nq.training import job
from nq.training.job import TRAINING
from tests.support.folders import held, write

PROGRESS = f"{job.STATE}/{job.PROGRESS}"
KILLED = "0123456789ab.tmp"
"""Ends the name of a file whose writer was killed."""
SHARD = "windows-00000.tfrecord"
FILES = ("manifest.json", "skipped.jsonl", SHARD)
PARTS = (
    *("windows-00000", "results-00000-of-00001", "workers.log"),
    "beam-temp-results-0f/ab-1.results",
)
SCORES = ("request.json", "part-000000-000000001.npz")
RESULTS = ("job.json", "predictions.json", "metrics.json", "skipped.jsonl", "kaggle.csv")


def make(folder: Path, kind: Kind, *names: str, size: int = 10) -> Path:
    """Makes a folder as a command leaves it."""
    with hold(folder, kind):
        for name in names:
            write(folder / name, "x" * size)
    return folder


def make_all(root: Path) -> None:
    """Makes a folder of each kind, as ``nq answer``, ``preprocess`` and ``train`` leave them."""
    make(root / "finished", RUN, *RESULTS, *(f"scores/{name}" for name in SCORES))
    make(
        root / "unfinished", RUN, *(f"unfinished/{name}" for name in SCORES), f"kaggle.csv.{KILLED}"
    )
    make(root / "by Beam", RUN, "mine", size=0)
    make(root / "by Beam" / ".unfinished-01ab", PART, *PARTS)
    (root / "by Beam" / "mine").rename(root / "by Beam" / LOCK)  # as of a killed process
    make(root / ".unfinished-02cd", PART, f"model-{'0' * 64}.zip")  # in a folder for --temp
    make(root / "windows-0123456789ab", PREPARED, *FILES)
    make(root / "for me", PREPARED, *FILES)
    make(root / "model", TRAINING, "unfinished/state/step-3.npz", PROGRESS)
    make(root / "model" / "unfinished" / "windows", PREPARED, *FILES)
    write_json(root / "model" / PROGRESS, {"step": 3, "total": 3})
    (root / "model" / "model.safetensors").write_bytes(b"x")
    make(root / ".unfinished-03ef", PART, "model/model.safetensors")  # of a conversion


def files(folder: Path) -> set[str]:
    """Returns the files below a folder, without marks."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != MARK)
    return {str(path.relative_to(folder)) for path in paths}


def state(folder: Path) -> dict[Path, Any]:
    """Returns every path below a folder with its inode, its time and its bytes."""
    return {
        path: (path.stat().st_ino, path.stat().st_mtime_ns, path.is_file() and path.read_bytes())
        for path in (folder, *folder.rglob("*"))
    }


def names(items: list[Item], root: Path, kept: bool = False) -> dict[str, str]:
    """Returns what was removed, or kept, by folder."""
    chosen = (item for item in items if bool(item.kept) == kept)
    return {str(item.folder.relative_to(root)): item.kept or item.what for item in chosen}


def test_what_can_be_made_again_is_removed(tmp_path: Path) -> None:
    make_all(tmp_path)
    items = clean([tmp_path])
    assert names(items, tmp_path) == {
        ".unfinished-02cd": "unfinished job",
        ".unfinished-03ef": "unfinished job",
        "by Beam": "unfinished run",
        "by Beam/.unfinished-01ab": "unfinished job",
        "model": "state of a finished training",
        "model/unfinished/windows": "prepared windows",
        "unfinished": "unfinished run",
        "windows-0123456789ab": "prepared windows",
    }
    assert names(items, tmp_path, kept=True) == {"finished": RESULT, "for me": RESULT}
    assert files(tmp_path) == {
        *(f"finished/{name}" for name in RESULTS),
        *(f"finished/scores/{name}" for name in SCORES),
        *(f"for me/{name}" for name in FILES),
        "model/model.safetensors",
    }
    assert {path.name for path in tmp_path.iterdir()} == {"finished", "for me", "model"}


@pytest.mark.parametrize(
    ("steps", "time"),
    [
        ({"step": 3, "total": 3}, 1),  # the model is of an earlier training
        ({"step": 2, "total": 3}, 2**33),  # so is this one, and the clock was set back
    ],
)
def test_the_state_of_an_unfinished_training_is_a_result(
    steps: dict[str, int], time: int, tmp_path: Path
) -> None:
    make(tmp_path / "x", TRAINING, "model.safetensors", PROGRESS)
    write_json(tmp_path / "x" / PROGRESS, steps)
    os.utime(tmp_path / "x" / "model.safetensors", (time, time))
    (item,) = clean([tmp_path])
    assert (item.what, item.kept) == ("state of an unfinished training", RESULT)
    clean([tmp_path], remove_results=True)
    assert files(tmp_path) == {"x/model.safetensors"}


def test_files_of_others_stay_and_keep_their_folder(tmp_path: Path) -> None:
    make_all(tmp_path)
    foreign = {
        "notes.txt",
        "unfinished/notes.txt",
        "windows-0123456789ab/windows-mine.tfrecord",
        "model/unfinished/mine.npz",
        "runs/job.json",
    }
    for name in foreign:
        write(tmp_path / name)
    clean([tmp_path], remove_results=True)
    assert files(tmp_path) == foreign | {"model/model.safetensors"}


def test_folders_without_a_mark_and_links_are_left_alone(tmp_path: Path) -> None:
    make_all(tmp_path / "elsewhere")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "runs" / "windows-0123456789ab").symlink_to(tmp_path / "elsewhere" / "for me")
    for name in (*FILES, "unfinished/request.json", "predictions.json", ".unfinished-abc/x"):
        write(tmp_path / "runs" / "mine" / name)
    before = state(tmp_path)
    roots = [tmp_path / "runs", tmp_path / "runs" / "mine"]
    assert clean(roots, remove_results=True) == []
    assert state(tmp_path) == before


@pytest.mark.parametrize(
    ("name", "kind", "busy"),
    [
        ("unfinished", RUN, {"unfinished", "windows-0123456789ab", "for me"}),
        ("windows-0123456789ab", PREPARED, {"windows-0123456789ab"}),
        ("model", TRAINING, {"model", "model/unfinished/windows"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_live_process_uses_is_kept_and_what_a_dead_one_left_is_not(
    name: str, kind: Kind, busy: set[str], tmp_path: Path
) -> None:
    make_all(tmp_path)
    with held(tmp_path / name, kind) as process:
        before = {folder: files(tmp_path / folder) for folder in busy}
        items = clean([tmp_path], remove_results=True)
        reason = f"in use by process {process.pid}"
        assert names(items, tmp_path, kept=True) == dict.fromkeys(busy, reason)
        assert {folder: files(tmp_path / folder) for folder in busy} == before
    assert (tmp_path / name / LOCK).is_file()
    items = clean([tmp_path], remove_results=True)
    assert not names(items, tmp_path, kept=True)
    assert files(tmp_path) == {"model/model.safetensors"}
    assert not (tmp_path / "model" / LOCK).exists()


def test_the_lock_of_a_killed_run_alone_is_removed(tmp_path: Path) -> None:
    with held(tmp_path / "run", RUN):
        pass
    assert {path.name for path in (tmp_path / "run").iterdir()} == {MARK, LOCK}
    (tmp_path / "run" / "windows").mkdir()
    (tmp_path / "run" / "windows" / LOCK).touch()  # as nq clean leaves it if it is killed
    removed = {"run": "unfinished run", "run/windows": "left by a killed command"}
    assert names(clean([tmp_path]), tmp_path) == removed
    assert not any(tmp_path.iterdir())
