"""Tests the files that hold examples and their windows."""

import tempfile
from itertools import chain
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from nq.formats.tfrecord import frame, raw_records
from nq.preprocess.store import (
    DEAD_LETTERS,
    StoredExample,
    examples_file,
    write_examples,
)
from nq.records import DeadLetter, Source

examples = st.lists(st.lists(st.binary(max_size=9), max_size=4), max_size=12)


@given(examples, st.integers(1, 200), st.integers(0, 2))
def test_shards_have_all_examples_in_order(
    windows: list[list[bytes]], max_bytes: int, first_file: int
) -> None:
    elements = [
        StoredExample(
            Source(i, "a", 3), frame(bytes([i])), b"".join(map(frame, one)), len(one), i % 2
        )
        for i, one in enumerate(windows)
    ]
    bad = DeadLetter(Source(0, "a", 1), "bad", "x")
    with tempfile.TemporaryDirectory() as name:
        counts = write_examples([bad, *elements], Path(name), first_file, max_bytes)
        assert (counts["examples"], counts["dead_letters"]) == (len(windows), 1)
        assert counts["windows"] == sum(map(len, windows))
        assert counts["unread_blocks"] == counts["truncated_pages"] == len(windows) // 2
        paths = sorted(Path(name).glob("windows*"))
        prefix = f"windows-{first_file}" if first_file else "windows"
        expected = [f"{prefix}-{i:05d}-of-{len(paths):05d}.tfrecord" for i in range(len(paths))]
        assert [path.name for path in paths] == expected and paths
        shards = [list(raw_records(path)) for path in paths]
        assert list(chain(*shards)) == list(chain(*windows))
        assert all(path.stat().st_size >= max_bytes for path in paths[:-1])
        ends = {sum(map(len, windows[:n])) for n in range(len(windows) + 1)}
        assert {sum(map(len, shards[:n])) for n in range(len(shards) + 1)} <= ends
        examples = [list(raw_records(examples_file(path))) for path in paths]
        assert list(chain(*examples)) == [bytes([i]) for i in range(len(windows))]
        assert len(Path(name, DEAD_LETTERS).read_text().splitlines()) == 1
