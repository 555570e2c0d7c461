"""Tests how a stream of bytes is cut into lines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from nq.serving.streams import cut

BYTES = st.binary(max_size=60) | st.lists(st.sampled_from([b"a", b"\n", b" ", b"\r"])).map(b"".join)


def lines(parts: list[bytes], max_bytes: int) -> list[bytes | str]:
    """Returns the lines of a stream; in place of errors their texts."""

    async def stream() -> AsyncIterator[bytes]:
        for part in parts:
            yield part

    async def collect() -> list[bytes | ValueError]:
        return [line async for line in cut(stream(), max_bytes)]

    return [line if isinstance(line, bytes) else str(line) for line in asyncio.run(collect())]


@given(BYTES, st.lists(st.integers(0, 60), max_size=6))
def test_lines_do_not_depend_on_the_parts(data: bytes, places: list[int]) -> None:
    ends = sorted({min(place, len(data)) for place in places} | {0, len(data)})
    expected = [line.strip() for line in data.split(b"\n")]
    if data.endswith(b"\n") or not data:
        expected.pop()
    assert lines([data[a:b] for a, b in pairwise(ends)], 100) == expected


@given(st.integers(1, 9), st.integers(1, 4))
def test_a_line_that_is_too_long_is_an_error_in_its_place(size: int, step: int) -> None:
    data = b"x" * size + b"\nok\n"
    first, second = lines([data[i : i + step] for i in range(0, len(data), step)], 5)
    assert second == b"ok"
    if size <= 5:
        assert first == b"x" * size
    else:
        assert str(first).startswith(f"too large: a line of {size} bytes, the limit is 5")


def test_a_byte_order_mark_begins_the_first_line_only() -> None:
    mark = b"\xef\xbb\xbf"
    assert lines([mark[:1], mark[1:] + b"a\n" + mark + b"b"], 10) == [b"a", mark + b"b"]
