"""Vectors in a file: found again, checked, and never in the way where a disk fails."""

import logging
import os
import random
import sqlite3
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.inference import vector_file
from nq.inference.vector_file import KEPT, VectorFile
from tests.support.full_disk import small_files


def some_vectors(n: int, units: int = 8, seed: int = 0) -> dict[bytes, bytes]:
    draw = random.Random(seed)
    return {draw.randbytes(16): draw.randbytes(2 * units) for _ in range(n)}


def test_values_are_found_again(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "a.sqlite"
    vectors = some_vectors(1200)
    file = VectorFile(path)
    assert file.find(vectors) == {}
    assert not path.exists()
    file.add(vectors)
    other = some_vectors(3, seed=1)
    for one in (file, VectorFile(path)):
        assert one.find([*vectors, *other]) == vectors
    file.add(other)
    assert VectorFile(path).find(other) == other


@given(st.data())
def test_a_flipped_bit_is_never_read_as_a_vector(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("flipped") / "a.sqlite"
    vectors = some_vectors(40)
    VectorFile(path).add(vectors)
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    file = VectorFile(path)
    found = file.find(vectors)
    assert found.items() <= vectors.items()
    file.add(vectors)
    assert VectorFile(path).find(vectors) == vectors


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\0" + bytes(5000)])
def test_a_damaged_file_is_made_again_with_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    path = tmp_path / "a.sqlite"
    vectors = some_vectors(5)
    path.write_bytes(content)
    file = VectorFile(path)
    assert file.find(vectors) == {}
    file.add(vectors)
    assert VectorFile(path).find(vectors) == vectors
    assert len(caplog.records) == int(content != b"")
    if content:
        assert str(path) in caplog.text and "made again" in caplog.text


def test_a_full_disk_is_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "nq")
    vectors = some_vectors(3000, units=384)
    with small_files(200_000):
        file = VectorFile(tmp_path / "a.sqlite")
        file.add(vectors)
        file.add(some_vectors(3, seed=1))
        found = file.find(vectors)
    assert found.items() <= vectors.items()
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert "are not kept" in caplog.text


def test_a_file_that_may_only_be_read_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "nq")
    path = tmp_path / "a.sqlite"
    vectors = some_vectors(5)
    VectorFile(path).add(vectors)
    opened = sqlite3.connect(f"file:{path}?mode=ro", uri=True, check_same_thread=False)
    file = VectorFile(path)
    file._connection = opened  # root may write everywhere, so the mode of the file says nothing
    assert file.find(vectors) == vectors
    file.add(some_vectors(1, seed=1))
    assert file.find(vectors) == vectors
    assert "are not kept" in caplog.text
    nowhere = VectorFile(Path(os.devnull) / "a.sqlite")
    nowhere.add(vectors)
    assert nowhere.find(vectors) == {}


def test_threads_and_processes_write_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    parts = [some_vectors(50, seed=seed) for seed in range(6)]
    shared = VectorFile(path)
    files = [shared, shared, *(VectorFile(path) for _ in parts[2:])]
    threads = [
        threading.Thread(target=file.add, args=(part,))
        for file, part in zip(files, parts, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for part in parts:
        assert VectorFile(path).find(part) == part


def test_the_size_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_file, "LIMIT_MB", 1)
    path = tmp_path / "a.sqlite"
    file = VectorFile(path)
    parts = [some_vectors(200, units=384, seed=seed) for seed in range(20)]
    for part in parts:
        file.add(part)
    assert file.find(parts[-1]) == parts[-1]
    assert not file.find(parts[0])
    assert path.stat().st_size < 3 << 20
    for number in range(KEPT + 3):
        VectorFile(tmp_path / f"{number}.sqlite").add(some_vectors(1))
    assert len(list(tmp_path.glob("*.sqlite"))) == KEPT
