"""Tests how a stream of bytes is cut into lines."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from nq.serving.lines import Lines

BYTES = st.binary(max_size=60) | st.lists(st.sampled_from([b"a", b"\n", b" ", b"\r"])).map(b"".join)


def cut(parts: list[bytes], max_bytes: int) -> list[bytes | str]:
    """Returns the lines of a stream; in place of errors their texts."""
    lines = Lines(max_bytes)
    found = [line for part in parts for line in lines.add(part)]
    found += lines.end()
    return [line if isinstance(line, bytes) else str(line) for line in found]


@given(BYTES, st.lists(st.integers(0, 60), max_size=6))
def test_lines_do_not_depend_on_the_parts(data: bytes, places: list[int]) -> None:
    ends = sorted({min(place, len(data)) for place in places} | {0, len(data)})
    parts = [data[a:b] for a, b in pairwise(ends)]
    expected = [line.strip() for line in data.split(b"\n")]
    if not data.endswith(b"\n") and data:
        assert cut(parts, 100) == expected
    else:
        assert cut(parts, 100) == expected[:-1]


@given(st.integers(1, 9), st.integers(1, 4))
def test_a_line_that_is_too_long_is_an_error_and_takes_no_memory(size: int, step: int) -> None:
    lines = Lines(5)
    data = b"x" * size + b"\nok\n"
    found = []
    for i in range(0, len(data), step):
        found += lines.add(data[i : i + step])
        assert sum(map(len, lines._parts)) <= 5
    first, second = found
    assert second == b"ok"
    if size <= 5:
        assert first == b"x" * size
    else:
        assert str(first).startswith(f"too large: a line of {size} bytes, the limit is 5")


def test_a_byte_order_mark_begins_the_first_line_only() -> None:
    mark = b"\xef\xbb\xbf"
    assert cut([mark[:1], mark[1:] + b"a\n" + mark + b"b"], 10) == [b"a", mark + b"b"]
