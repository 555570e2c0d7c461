"""Tests that the records of workers come in the order of the input, whatever files they are in."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.beam.merge import check_shards, encode, merged
from nq.errors import DamagedError
from nq.formats.tfrecord import frame
from nq.records import DeadLetter, ExampleKey, Source

keys = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 40)), unique=True, max_size=40)


def letter(key: ExampleKey) -> DeadLetter:
    return DeadLetter(Source(key[0], "a", key[1]), "bad", "x" * (key[1] % 3))


def write(path: Path, keys: list[ExampleKey]) -> Path:
    path.write_bytes(b"".join(frame(encode(letter(key))) for key in keys))
    return path


@given(keys, st.data())
def test_records_come_in_order_from_files_in_any_order(
    keys: list[ExampleKey], draw: st.DataObject
) -> None:
    shards = draw.draw(st.lists(st.integers(0, 4), min_size=len(keys), max_size=len(keys)))
    with tempfile.TemporaryDirectory() as name:
        paths = []
        for shard in range(5):
            own = [key for key, other in zip(keys, shards, strict=True) if other == shard]
            paths.append(write(Path(name, str(shard)), own))
        assert list(merged(paths)) == [letter(key) for key in sorted(keys)]


def test_repeated_records_and_damage_are_found(tmp_path: Path) -> None:
    paths = [write(tmp_path / name, [(0, 1), (0, 2)]) for name in "ab"]
    with pytest.raises(DamagedError, match=r"line 1\b.* file 0\b"):
        list(merged(paths))
    paths[0].write_bytes(paths[0].read_bytes()[:-1])
    with pytest.raises(DamagedError, match=str(paths[0])):
        list(merged(paths[:1]))


def test_all_files_of_a_sink_must_be_there() -> None:
    names = [f"answers-0000{n}-of-00003" for n in range(3)]
    check_shards(names)
    for missing in (names[:2], names[1:], [], [*names[:2], "answers-00002-of-00004"]):
        with pytest.raises(DamagedError):
            check_shards(missing)
