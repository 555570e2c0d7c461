"""TFRecord files against TensorFlow's own writer and reader."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nq.errors import Error
from nq.formats.tfrecord_file import read_record_at, read_records, record_offsets, write_records

RECORDS = [b"", b"a", b"\x00" * 5, b"window" * 1000]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.lists(st.binary(max_size=300), max_size=8))
def test_files_are_tensorflows(tmp_path: Path, records: list[bytes]) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    write_records(ours, iter(records))
    with tf.io.TFRecordWriter(str(theirs)) as writer:
        for record in records:
            writer.write(record)
    assert ours.read_bytes() == theirs.read_bytes()
    assert [record.numpy() for record in tf.data.TFRecordDataset(str(ours))] == records
    assert list(read_records(theirs)) == records


def test_records_are_read_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "records"
    write_records(path, RECORDS)
    offsets = record_offsets(path)
    order = random.Random(1).sample(range(len(RECORDS)), len(RECORDS))
    with path.open("rb") as file:
        assert [read_record_at(file, *offsets[i]) for i in order] == [RECORDS[i] for i in order]


@pytest.mark.parametrize("size", [1, 11, 12, 13, 15, 20, 40])
def test_a_file_that_is_cut_off(tmp_path: Path, size: int) -> None:
    path = tmp_path / "records"
    write_records(path, [b"window" * 10])
    path.write_bytes(path.read_bytes()[:size])
    for read in (read_records, record_offsets):
        with pytest.raises(Error, match=r"records is cut off or damaged near byte .* checksums$"):
            list(read(path))


@pytest.mark.parametrize("byte", [0, 9, 14, 73])
def test_a_changed_byte_is_noticed(tmp_path: Path, byte: int) -> None:
    path = tmp_path / "records"
    write_records(path, [b"window" * 10])
    offset = record_offsets(path)[0]
    data = bytearray(path.read_bytes())
    data[byte] ^= 1
    path.write_bytes(data)
    with pytest.raises(Error, match="is cut off or damaged"):
        list(read_records(path))
    if byte > 11:  # the data or its checksum, not the header
        with path.open("rb") as file, pytest.raises(Error, match="is cut off or damaged"):
            read_record_at(file, *offset)
