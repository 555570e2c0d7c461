"""Tests files that are written whole, their checksums, locks, and which folders may be written."""

import json
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nq import storage
from nq.cleaning import clean
from nq.errors import DamagedError, Error
from nq.runs.folder import RUN
from nq.storage import LOCK, MARK, PART, UNFINISHED, check_folder, hold
from nq.training.job import TRAINING
from tests.support.child_processes import python, started
from tests.support.folders import held, tree, write

VALUES = {"step": 3, "losses": [0.1, float("inf"), 2.5e-9], "name": "ü\udcff", "none": None}
ARRAYS: dict[str, np.ndarray[Any, Any]] = {
    "a": np.arange(7, dtype=np.int32),
    "b": np.array([[1.5, np.nan]], np.float32),
}
# --- atomic files and checksums -----------------------------------------------------------------


def test_a_file_is_written_whole_or_keeps_its_content_and_never_through_a_link(
    tmp_path: Path,
) -> None:
    target = write(tmp_path / "target")
    (tmp_path / "a.json").symlink_to(target)
    os.link(target, tmp_path / "b.json")
    for name in ("a.json", "b.json"):
        with storage.atomic_write(tmp_path / name) as file:
            file.write(b"new")
        with pytest.raises(ValueError, match="stop"), storage.atomic_write(tmp_path / name) as file:
            file.write(b"newer")
            raise ValueError("stop")
    assert tree(tmp_path) == {"target": b"mine", "a.json": b"new", "b.json": b"new"}


@pytest.mark.parametrize(
    ("write", "read", "values", "limit"),
    [
        (storage.write_json, storage.read_json, VALUES, 10),  # white space
        (storage.write_arrays, storage.read_arrays, ARRAYS, 1),
    ],
    ids=["json", "arrays"],
)
def test_damage_is_found_or_changes_nothing(
    write: Callable[[Path, Any], None],
    read: Callable[[Path], Any],
    values: Any,
    limit: int,
    tmp_path: Path,
) -> None:
    """A bit of each byte is flipped, and the file is cut at each length."""
    path = tmp_path / "values"
    write(path, values)
    assert repr(read(path)) == repr(values)
    data, harmless = path.read_bytes(), 0
    copies = [data[:length] for length in range(len(data))]
    for position, byte in enumerate(data):
        flipped = bytes([byte ^ 1 << position % 8])
        copies.append(data[:position] + flipped + data[position + 1 :])
    for copy in copies:
        path.write_bytes(copy)
        try:
            assert repr(read(path)) == repr(values)
            harmless += 1
        except DamagedError as error:
            assert str(error).startswith(f"{path} ")
    assert harmless < limit


def test_an_object_of_another_format_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "values.json"
    with monkeypatch.context() as patch:
        patch.setattr(storage, "FORMAT_NUMBER", storage.FORMAT_NUMBER + 1)
        storage.write_json(path, VALUES)
    assert json.loads(path.read_bytes()).keys() == {*VALUES, "format", "sha256"}
    with pytest.raises(DamagedError, match=f"{path} .*version"):
        storage.read_json(path)


# --- which folders and files may be written -----------------------------------------------------


def test_a_free_folder_is_marked_and_then_known(tmp_path: Path) -> None:
    write(tmp_path / "empty" / ".gitignore")
    for name in ("new", "empty"):
        folder = tmp_path / name
        for _ in range(2):
            with hold(folder, RUN):
                write(folder / "kept")
            assert storage.read_json(folder / MARK) == {"kind": RUN.name, "what": RUN.what}
            assert set(tree(folder)) - {".gitignore"} == {MARK, "kept"}


def test_a_held_folder_that_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    with pytest.raises(Error, match=f"{folder} .*removed"), hold(folder, RUN):
        shutil.rmtree(folder)
        (folder / "job.json").write_text("{}")
    assert not folder.exists()
    with hold(folder, RUN):
        shutil.rmtree(folder)
        write(folder / "job.json")
    check_folder(folder, RUN)  # it is marked again


@pytest.mark.parametrize("name", ["job.json", "unfinished/x", MARK])
def test_a_folder_of_others_is_refused_and_not_touched(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    write(folder / name)
    write(folder / "other.txt")
    before = tree(tmp_path)
    with (
        pytest.raises(Error, match=rf"{folder} .*other\.txt"),
        hold(folder, RUN),
    ):
        pass
    assert tree(tmp_path) == before


@pytest.mark.parametrize("damage", ["", "[1]", '{"kind": ["training"]}'])
def test_a_folder_of_another_kind_or_with_a_damaged_mark_is_refused(
    damage: str, tmp_path: Path
) -> None:
    with hold(tmp_path, TRAINING):
        write(tmp_path / "model.safetensors")
    with pytest.raises(Error, match=TRAINING.what):
        check_folder(tmp_path, RUN)
    write(tmp_path / MARK, damage)
    with pytest.raises(Error, match=r"model\.safetensors"):
        check_folder(tmp_path, TRAINING)


def test_an_input_that_would_be_overwritten_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with hold(folder, RUN):
        written = write(folder / "job.json")
    link, same = write(tmp_path / "1" / "link"), write(tmp_path / "2" / "same")
    for path in (link, same):
        path.unlink()
    link.symlink_to(written)
    os.link(written, same)
    before = tree(tmp_path)
    for source in (written, link, same):
        for given in (source, source.parent):
            with pytest.raises(Error, match=f"{source} .*{written}"):
                check_folder(folder, RUN, [given])
    assert tree(tmp_path) == before


def test_an_output_file(tmp_path: Path) -> None:
    source = write(tmp_path / "input")
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "folder").mkdir()
    os.link(source, tmp_path / "same")
    storage.check_output_file(tmp_path / "folder" / "new", [source])
    storage.check_output_file(source)
    os.mkfifo(tmp_path / "pipe")
    page = write(tmp_path / "page", f"<!DOCTYPE html>{storage.PAGE_MARK.decode()}")
    for own in (page, write(tmp_path / "empty", ""), tmp_path / "new"):
        storage.check_output_file(own, [source], storage.PAGE_MARK)
    for name in ("input", "pipe"):
        with pytest.raises(Error, match=str(tmp_path / name)):
            storage.check_output_file(tmp_path / name, mark=storage.PAGE_MARK)
    for name, named in (("link", "link"), ("folder", "folder"), ("same", "input")):
        with pytest.raises(Error, match=str(tmp_path / named)):
            storage.check_output_file(tmp_path / name, [source])


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    with storage.unfinished(tmp_path) as killed:
        write(killed / "progress" / ("0" * 32))
        killed.rename(tmp_path / f"{UNFINISHED}killed")
    (tmp_path / f"{UNFINISHED}0").mkdir()  # killed before it had a mark
    (tmp_path / f"{UNFINISHED}0" / f"{MARK}.0123456789ab.tmp").touch()
    write(tmp_path / f"{UNFINISHED}mine" / "diary.txt")
    with held(tmp_path / f"{UNFINISHED}live", PART), storage.unfinished(tmp_path) as part:
        assert {path.name for path in tmp_path.iterdir()} == {
            *(part.name, f"{UNFINISHED}mine", f"{UNFINISHED}live"),
        }
    assert not part.exists()
    assert (tmp_path / f"{UNFINISHED}mine" / "diary.txt").is_file()


KILLED = """
import itertools, os, signal, sys
from pathlib import Path
from nq import storage

STEPS = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir")

def count(event, arguments):
    global steps
    steps -= event in STEPS
    if steps < 0:
        os.kill(os.getpid(), signal.SIGKILL)

for number in itertools.count():
    folder = Path(sys.argv[1], str(number))
    folder.mkdir()
    if not (child := os.fork()):
        steps = number
        sys.addaudithook(count)
        with storage.unfinished(folder) as part:
            (part / "results").mkdir()
            (part / "results" / "file").touch()
        os._exit(0)
    if os.waitpid(child, 0)[1] == 0:
        break
"""


@pytest.mark.parametrize("by", ["nq clean", "the next job"])
def test_a_job_may_be_killed_before_each_of_its_steps(by: str, tmp_path: Path) -> None:
    killed = python("-c", KILLED, tmp_path)
    assert killed.returncode == 0, killed.stderr
    folders = list(tmp_path.iterdir())
    assert {path.parent for path in tmp_path.glob(f"*/{UNFINISHED}*")} < set(folders)
    if by == "nq clean":
        clean([tmp_path])
    for folder in folders if by == "the next job" else ():
        with storage.unfinished(folder):
            pass
    assert set(tmp_path.rglob("*")) == set(folders)


# --- one command at a time ----------------------------------------------------------------------


def test_a_lock_is_held_until_its_process_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    with held(folder, RUN) as process:
        for _ in range(2):
            with pytest.raises(Error, match=f"process {process.pid} .*{folder}"), hold(folder, RUN):
                pass
        assert storage.lock_holder(folder / LOCK) == f"process {process.pid}"
    assert (folder / LOCK).is_file()
    assert storage.lock_holder(folder / LOCK) == ""
    with hold(folder, RUN):
        assert storage.lock_holder(folder / LOCK) == f"process {os.getpid()}"


def test_a_marked_folder_is_held_and_another_one_is_not(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    holders = []
    for _ in range(2):
        with storage.hold_marked(folder):
            holders.append(storage.lock_holder(folder / LOCK))
        with hold(folder, RUN):
            write(folder / "mine")
        before = tree(folder)
    assert holders == ["", f"process {os.getpid()}"]
    assert tree(folder) == before
    with held(folder, RUN) as other, pytest.raises(Error, match=f"process {other.pid} "):
        storage.hold_marked(folder).__enter__()


def test_an_empty_folder_goes_with_its_lock(tmp_path: Path) -> None:
    with hold(tmp_path / "run", RUN), hold(tmp_path / "other", RUN):
        (tmp_path / "other" / "kept").touch()
    assert set(tree(tmp_path)) == {"other", "other/kept", f"other/{MARK}"}
    with pytest.raises(FileNotFoundError, match="of the block"), hold(tmp_path / "run", RUN):
        raise FileNotFoundError("of the block")
    assert not (tmp_path / "run").exists()


def test_of_many_commands_one_at_a_time_has_the_folder(tmp_path: Path) -> None:
    inside, counts, refused = list[int](), list[int](), list[int]()

    def run(number: int) -> None:
        for _ in range(100):
            try:
                with hold(tmp_path / "run", RUN):
                    inside.append(number)
                    counts.append(len(inside))
                    inside.pop()
            except Error:
                refused.append(number)

    with ThreadPoolExecutor() as pool:
        list(pool.map(run, range(4)))
    assert max(counts) == 1 and len(counts) + len(refused) == 400
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_folder_may_come_and_go_while_its_rights_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    code = "import os, sys\nwhile True: os.mkdir(sys.argv[1]); os.rmdir(sys.argv[1])"
    with started("-c", code, path):
        while not path.exists():
            pass
        for _ in range(60_000):  # of which 8 failed when the rights were asked for by path
            storage.check_writable(path)
