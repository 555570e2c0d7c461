"""Tests files that are written whole, and locks that one process holds at a time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nq.errors import Error
from nq.files import atomic_write, exclusive_lock, lock_holder

ROOT = Path(__file__).parents[1]
HOLDS = (
    "import pathlib, sys; from nq.files import exclusive_lock\n"
    "with exclusive_lock(pathlib.Path(sys.argv[1]), 'another run'): print(flush=True); input()"
)
PATIENCE_S = 60


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock ``tmp_path / "folder" / "lock"``."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(tmp_path / "folder" / "lock")],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "\n"
        yield process
        process.kill()


def test_the_error_names_the_process_that_holds_the_lock(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    lock = tmp_path / "folder" / "lock"
    message = rf"another run writes to .*folder \(process {holder.pid}\); wait for it"
    for _ in range(2):
        with pytest.raises(Error, match=message), exclusive_lock(lock, "another run"):
            pass
    assert lock_holder(lock) == f"process {holder.pid}"


def test_the_lock_of_a_killed_process_is_free(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    lock = tmp_path / "folder" / "lock"
    holder.kill()
    holder.wait()
    assert lock.is_file()
    assert lock_holder(lock) == ""
    with exclusive_lock(lock, "another run"):
        assert lock.read_text() == f"{os.getpid()}\n"
        assert lock_holder(lock) == f"process {os.getpid()}"


def test_asking_for_the_holder_creates_nothing(tmp_path: Path) -> None:
    assert lock_holder(tmp_path / "folder" / "lock") == ""
    (tmp_path / "lock").symlink_to(tmp_path / "nowhere")
    assert lock_holder(tmp_path / "lock") == ""
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


@pytest.mark.parametrize("target", ["nowhere", "nowhere/at/all", "link"])
def test_a_folder_that_is_a_dangling_link_ends(tmp_path: Path, target: str) -> None:
    (tmp_path / "link").symlink_to(tmp_path / target)
    for folder in (tmp_path / "link", tmp_path / "link" / "below"):
        done = subprocess.run(
            [sys.executable, "-c", HOLDS, str(folder / "lock")],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1].startswith(("FileNotFoundError", "OSError"))
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


def test_a_lock_that_is_a_link_leaves_the_target_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("mine")
    for name in ("target", "nowhere"):
        (tmp_path / "lock").symlink_to(tmp_path / name)
        with pytest.raises(OSError, match="lock"), exclusive_lock(tmp_path / "lock", "another"):
            pass
        (tmp_path / "lock").unlink()
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("target", "mine")]


def test_a_file_is_written_whole_or_keeps_its_content(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with atomic_write(path) as file:
        file.write(b"first")
    with pytest.raises(ValueError, match="stop"), atomic_write(path) as file:
        file.write(b"second")
        raise ValueError("stop")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("a.json", b"first")]


def test_a_file_is_never_written_through_a_link(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    for name in ("a.json", "a.json.tmp"):
        (tmp_path / name).symlink_to(target)
    os.link(target, tmp_path / "b.json.tmp")
    for name in ("a.json", "b.json"):
        with atomic_write(tmp_path / name) as file:
            file.write(b"new")
        assert (tmp_path / name).read_text() == "new"
        assert not (tmp_path / name).is_symlink()
    assert target.read_text() == "mine"
