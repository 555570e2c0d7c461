"""The elements of a JSON list, or of an object of records by id, one by one in bounded memory.

Brackets, quotes and commas tell where an element ends, whatever else is in it, so that one with bad
text, with too many values or with too many bytes costs no other. Where an element is no JSON they
tell nothing, and what is read next might be a part of a record: the file ends there with an error.
Parsers that give elements one by one are no choice: ijson reads a lone surrogate as another
character and crashes on an integer of 5,000 digits.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from nq.formats import lines
from nq.formats.fields import LIMITS, RecordError
from nq.formats.input_files import shown
from nq.formats.json_head import list_start
from nq.formats.lines import NotJSONError, Row

CHUNK_BYTES = 1 << 16
CLOSING = {b"[": b"]", b"{": b"}"}
_QUOTE, _COMMA = b'",'
_STEPS = np.zeros(256, np.int8)
_STEPS[list(b"[{")] = 1
_STEPS[list(b"]}")] = -1
"""How many levels of brackets a byte opens."""
_IS_MARK = _STEPS != 0
_IS_MARK[[_QUOTE, _COMMA]] = True


def rows(path: str, name: str = "", limits: str = "") -> Iterator[tuple[int, Row]]:
    """Yields the elements of a file, or of the list in its field ``name``, with numbers from 1.

    Args:
        limits: the prefix of the names of the limits of an element.

    Raises:
        ValueError: an element is no JSON.
    """
    number = 0
    try:
        with lines.open_bytes(path) as file:
            data = file.read(CHUNK_BYTES)
            head = data.removeprefix(lines.BOM).lstrip()
            head = head[list_start(head, name) :] if name else head
            offset = len(data) - len(head)
            for number, row in enumerate(elements(file, head, offset, limits, not name), 1):
                yield number, row
    except NotJSONError as error:
        raise ValueError(
            f"{shown(path)}, element {number + 1}: {error} of the file; elements read before it: "
            f"{number}; correct it, or write one object a line, of which a bad one costs no other"
        ) from error
    except RecordError as error:
        yield number + 1, error


def elements(
    file: IO[bytes], head: bytes, offset: int = 0, limits: str = "", is_whole: bool = True
) -> Iterator[Row]:
    """Yields the record of each element, or why there is none; a key in front is its ``id``.

    Args:
        head: the beginning, with the bracket that opens the list; ``file`` has the rest.
        offset: the number of bytes before the list.
        limits: as in ``rows``.
        is_whole: whether nothing may follow the end of the list.

    Raises:
        NotJSONError: an element is no JSON.
    """
    scanner, opening = _Scanner(), head[:1]
    element = _Element(opening, offset, limits)
    chunk, place = head[1:] or file.read(CHUNK_BYTES), offset + 1
    while chunk:
        start = 0
        for end in scanner.ends(chunk):
            element.add(chunk[start:end])
            yield from element.rows()
            element = _Element(opening, place + end, limits)
            start = end + 1
        if scanner.depth == 0:
            if chunk[start - 1 : start] != CLOSING[opening]:
                raise NotJSONError(
                    f"not JSON: another bracket closes the list at byte {place + start}"
                )
            if is_whole and (chunk[start:] + file.read(CHUNK_BYTES)).strip():
                yield RecordError("there is other data behind the end of the list")
            return
        element.add(chunk[start:])
        place += len(chunk)
        chunk = file.read(CHUNK_BYTES)
    if scanner.depth == 1 and not scanner.in_string:
        yield from element.rows()
    else:
        element.check_beginning()
    yield RecordError("the file is cut off")


@dataclass
class _Scanner:
    """Finds where elements end in the chunks of a list, behind the bracket that opens it."""

    depth: int = 1
    in_string: bool = False
    is_escaped: bool = False
    """Whether the last character is a backslash that belongs to the next one."""

    def ends(self, chunk: bytes) -> list[int]:
        """Returns the places of the commas between elements, and of the bracket at the end."""
        if self.is_escaped:
            chunk = b"." + chunk[1:]
        chunk = chunk.replace(rb"\\", b"..").replace(rb"\"", b"..")
        self.is_escaped = chunk.endswith(b"\\")
        characters = np.frombuffer(chunk, np.uint8)
        places = np.flatnonzero(_IS_MARK[characters])
        if not len(places):
            return []
        marks = characters[places]
        in_string = (np.cumsum(marks == _QUOTE) + self.in_string) % 2 == 1
        depths = self.depth + np.cumsum(np.where(in_string, 0, _STEPS[marks]))
        is_end = (marks == _COMMA) & (depths == 1) & ~in_string
        is_closed = depths == 0
        self.depth, self.in_string = int(depths[-1]), bool(in_string[-1])
        if is_closed.any():
            self.depth = 0
            last = int(is_closed.argmax())
            is_end[last] = True
            is_end[last + 1 :] = False
        return list(map(int, places[is_end]))


class _Element:
    """The text of an element behind the bracket of its list, as far as its limit reaches.

    Args:
        start: the place of the bracket, or of the comma in front of the element.
    """

    def __init__(self, opening: bytes, start: int, limits: str) -> None:
        self.opening, self.start, self.limits = opening, start, limits
        self.n_bytes = 0
        self._text = bytearray(opening)

    def add(self, part: bytes) -> None:
        """Adds the next part; what is beyond the limit is only counted."""
        self.n_bytes += len(part)
        if len(self._text) <= getattr(LIMITS, f"{self.limits}bytes"):
            self._text += part

    def rows(self) -> Iterator[Row]:
        """Yields the record, or why there is none; nothing if the text is blank."""
        try:
            LIMITS.check(**{f"{self.limits}bytes": self.n_bytes})
        except RecordError as too_large:
            self.check_beginning()
            yield too_large
            return
        self._text += CLOSING[self.opening]
        try:
            value = self._value()
            if type(value) is list:
                yield from map(lines.check_record, value)
            else:
                for key, record in value.items():
                    yield {"id": key, **lines.check_record(record)}
        except NotJSONError:
            raise
        except RecordError as error:  # the text of a list's element has the reason again
            yield bytes(self._text[1:-1].strip()) if self.opening == b"[" else error

    def check_beginning(self) -> None:
        """Raises ``NotJSONError`` if the text is not the beginning of JSON."""
        try:
            self._value()
        except NotJSONError as error:
            if not error.is_cut:
                raise
        except RecordError:
            return  # its brackets may be right: it has too many values, or is not UTF-8

    def _value(self) -> Any:
        """Returns the text as a list of one value, or an object of one field."""
        LIMITS.check(**{f"{self.limits}values": lines.count_values(self._text)})
        try:
            return lines.json_value(self._text)
        except NotJSONError as error:
            raise NotJSONError(f"{error} behind byte {self.start}", error.is_cut) from None
