"""The lines of a body that comes in parts."""

from __future__ import annotations

from nq.formats.lines import BOM


class Lines:
    """Cuts a stream of bytes into lines, without those that are too long.

    Args:
        max_bytes: of a line.

    >>> lines = Lines(5)
    >>> list(lines.add(b"one\\ntw")), list(lines.add(b"o\\n")), list(lines.end())
    ([b'one'], [b'two'], [])
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._parts, self._size, self._is_first = list[bytes](), 0, True

    def add(self, data: bytes) -> list[bytes | ValueError]:
        """Returns the lines that end in ``data``, stripped; an error for one that is too long."""
        *ends, rest = data.split(b"\n")
        lines = []
        for end in ends:
            self._append(end)
            lines.append(self._take())
        self._append(rest)
        return lines

    def end(self) -> list[bytes | ValueError]:
        """Returns the last line, if there is one without a line end."""
        return [self._take()] if self._size else []

    def _append(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= self._max_bytes:
            self._parts.append(part)
        else:
            self._parts.clear()

    def _take(self) -> bytes | ValueError:
        line, size = b"".join(self._parts), self._size
        self._parts, self._size = [], 0
        if self._is_first:
            line, self._is_first = line.removeprefix(BOM), False
        if size > self._max_bytes:
            return ValueError(
                f"too large: a line of {size} bytes, the limit is {self._max_bytes}; see "
                "--max-body-mb"
            )
        return line.strip()
