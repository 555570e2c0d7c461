"""Tests that a flipped bit or a cut anywhere in a file with a checksum is found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nq import checksums
from nq.errors import DamagedError

VALUES = {"step": 3, "losses": [0.1, float("inf"), 2.5e-9], "name": "ü\udcff", "none": None}
ARRAYS: dict[str, np.ndarray[Any, Any]] = {
    "a": np.arange(7, dtype=np.int32),
    "b": np.array([[1.5, np.nan]], np.float32),
}


def assert_arrays(arrays: dict[str, np.ndarray[Any, Any]]) -> None:
    assert arrays.keys() == ARRAYS.keys()
    for name, array in arrays.items():
        assert array.dtype == ARRAYS[name].dtype
        np.testing.assert_array_equal(array, ARRAYS[name])


def damaged_copies(path: Path) -> list[bytes]:
    """Returns the content with a bit of each byte flipped, and cut at each length."""
    data = path.read_bytes()
    copies = [data[:length] for length in range(len(data))]
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1 << position % 8
        copies.append(bytes(flipped))
    return copies


def test_a_json_object_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "values.json"
    checksums.write_json(path, VALUES)
    assert checksums.read_json(path) == VALUES
    assert json.loads(path.read_bytes()).keys() == {*VALUES, "sha256"}


def test_damage_to_a_json_object_is_found_or_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "values.json"
    checksums.write_json(path, VALUES)
    harmless = 0
    for data in damaged_copies(path):
        path.write_bytes(data)
        try:
            values = checksums.read_json(path)
        except DamagedError as error:
            assert str(error).startswith(f"{path} is damaged: ")
            continue
        harmless += 1
        assert {name: values[name] for name in VALUES} == VALUES
    assert 0 < harmless < 20  # white space, and the name of the checksum


@pytest.mark.parametrize("text", ["", "[]", "3", "{", '{"a": 1, "sha256": "0"}', "\xff"])
def test_what_is_no_json_object_is_damaged(tmp_path: Path, text: str) -> None:
    path = tmp_path / "values.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(DamagedError, match="is damaged"):
        checksums.read_json(path)


def test_a_json_object_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    path = tmp_path / "values.json"
    path.write_text('{"a": 1}', encoding="utf-8")
    assert checksums.read_json(path) == {"a": 1}
    with pytest.raises(FileNotFoundError):
        checksums.read_json(tmp_path / "missing.json")


def test_arrays_are_read_as_they_were_written_and_by_numpy_too(tmp_path: Path) -> None:
    path = tmp_path / "arrays.npz"
    checksums.write_arrays(path, ARRAYS)
    assert_arrays(checksums.read_arrays(path))
    with np.load(path) as arrays:
        assert_arrays(dict(arrays))
    assert [p.name for p in tmp_path.iterdir()] == ["arrays.npz"]


def test_damage_to_arrays_is_found_or_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "arrays.npz"
    checksums.write_arrays(path, ARRAYS)
    size = path.stat().st_size
    harmless = 0
    for data in damaged_copies(path):
        path.write_bytes(data)
        try:
            arrays = checksums.read_arrays(path)
        except DamagedError as error:
            assert str(error).startswith(f"{path} is damaged: ")
            continue
        harmless += 1
        assert_arrays(arrays)
    assert harmless < 60 < size  # the checksum is cut off, or its length or first word differ


def test_damage_to_arrays_of_an_earlier_version_is_one_kind_of_error(tmp_path: Path) -> None:
    path = tmp_path / "arrays.npz"
    np.savez(path, allow_pickle=False, **ARRAYS)
    assert_arrays(checksums.read_arrays(path))
    for data in damaged_copies(path):
        path.write_bytes(data)
        try:
            checksums.read_arrays(path)
        except DamagedError as error:
            assert str(error).startswith(f"{path} is damaged: ")


def test_a_failed_write_leaves_the_former_arrays(tmp_path: Path) -> None:
    path = tmp_path / "arrays.npz"
    checksums.write_arrays(path, ARRAYS)
    with pytest.raises(ValueError, match="allow_pickle"):
        checksums.write_arrays(path, {"a": np.array([object()])})
    assert_arrays(checksums.read_arrays(path))
    assert [p.name for p in tmp_path.iterdir()] == ["arrays.npz"]
