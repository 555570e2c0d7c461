"""Tests the shards of windows: whole examples, in order, whatever their size."""

from __future__ import annotations

import re
import tempfile
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.formats.tfrecord import frame, read_records
from nq.preprocess.shards import ShardWriter

examples = st.lists(st.lists(st.binary(max_size=9), max_size=4), max_size=12)


@given(examples, st.integers(1, 200), st.integers(0, 2))
def test_shards_have_all_examples_in_order(
    windows: list[list[bytes]], max_bytes: int, first_file: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        with ShardWriter(Path(name), first_file, max_bytes) as writer:
            for example in windows:
                writer.write(b"".join(map(frame, example)))
        paths = sorted(Path(name).iterdir())
        prefix = f"windows-{first_file}" if first_file else "windows"
        expected = [f"{prefix}-{i:05d}-of-{len(paths):05d}.tfrecord" for i in range(len(paths))]
        assert [path.name for path in paths] == expected and paths
        shards = [list(read_records(path)) for path in paths]
        assert list(chain(*shards)) == list(chain(*windows))
        assert all(path.stat().st_size >= max_bytes for path in paths[:-1])
        ends = {sum(map(len, windows[:n])) for n in range(len(windows) + 1)}
        assert {sum(map(len, shards[:n])) for n in range(len(shards) + 1)} <= ends


def test_a_failed_job_gives_no_final_names(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), ShardWriter(tmp_path) as writer:
        writer.write(frame(b"window"))
        writer.write(bytes([1 // 0]))
    assert not [p for p in tmp_path.iterdir() if re.search("of-0000[1-9]", p.name)]
