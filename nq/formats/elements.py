"""The elements of a JSON list, or of an object of records by id, one by one in bounded memory.

The parser of the standard library finds where an element ends, without a value of it; the text of
the element is a record like a line, so that a bad record costs no other. Where an element is no
JSON, or too large, what is read next might be a part of it: the file ends there with an error.
Parsers that give elements one by one are no choice: ijson reads a lone surrogate as another
character and crashes on an integer of 5,000 digits.
"""

import json
import re
from collections.abc import Iterator
from typing import IO

from nq.formats import lines
from nq.formats.fields import RecordError
from nq.formats.input_files import shown
from nq.formats.json_head import SYNTAX, list_start
from nq.formats.lines import Row

CHUNK_BYTES = 1 << 16
CLOSING = {b"[": "]", b"{": "}"}
CUT_CHARACTERS = 12
"""More than a literal or an escape has, of which a part is an error where the text is cut."""
_BLANK = re.compile(r"[ \t\n\r]*")


class BrokenElementError(RecordError):
    """An element that is no JSON or too large."""


def rows(path: str, name: str = "", limits: str = "") -> Iterator[tuple[int, Row]]:
    """Yields the elements of a file, or of the list in its field ``name``, with numbers from 1.

    Args:
        limits: the prefix of the names of the limits of an element.

    Raises:
        ValueError: an element is no JSON or too large.
    """
    number = 0
    try:
        with lines.open_bytes(path) as file:
            data = file.read(CHUNK_BYTES)
            head = data.removeprefix(lines.BOM).lstrip()
            if name:
                head = head[list_start(head, name) :]
            offset = len(data) - len(head)
            several = elements(file, head, offset, limits, is_whole=not name)
            for number, row in enumerate(several, 1):
                yield number, row
    except BrokenElementError as error:
        raise ValueError(
            f"{shown(path)}, element {number + 1}: {error}; elements read before it: "
            f"{number}; correct it, or write one object a line, of which a bad one costs no other"
        ) from error
    except RecordError as error:
        yield number + 1, error


def elements(
    file: IO[bytes],
    head: bytes,
    offset: int = 0,
    limits: str = "",
    is_whole: bool = True,
) -> Iterator[Row]:
    """Yields the text of each element; of an object the record, whose key is its ``id``.

    Args:
        head: the beginning, with the bracket that opens the list; ``file`` has the rest.
        offset: the number of bytes before the list.
        limits: as in ``rows``.
        is_whole: whether nothing may follow the end of the list.

    Raises:
        BrokenElementError: an element is no JSON or too large.
    """
    closing = CLOSING[head[:1]]
    text = head.decode("latin-1")  # a character for each byte
    # behind the bracket or the comma before the element
    start = 1
    is_end = False
    while not text.startswith(closing, at := _after_blanks(text, start)):
        end = None
        try:
            try:
                end = _end(text, at, closing)
            except json.JSONDecodeError as error:
                if not _is_cut(error):
                    raise RecordError(f"not JSON: {error.msg}") from None
            element = text[at:end].encode("latin-1")
            lines.check_size(element, limits)
        except (RecordError, RecursionError) as error:
            place = offset + start - 1
            raise BrokenElementError(f"{error} behind byte {place} of the file") from None
        if end is not None:
            yield from [element] if closing == "]" else _records(element)
            start = end + text.startswith(",", end)
            continue
        if is_end:
            break
        more = file.read(max(CHUNK_BYTES, len(text) - start))
        is_end = not more
        text = text[start:] + (more.decode("latin-1") or closing)
        offset += start
        start = 0
    if is_end:
        yield RecordError("the file is cut off")
    elif is_whole and (text[at + 1 :].encode() + file.read(CHUNK_BYTES)).strip():
        yield RecordError("there is other data behind the end of the list")


def _after_blanks(text: str, at: int) -> int:
    blanks = _BLANK.match(text, at)
    return blanks.end() if blanks else at


def _end(text: str, at: int, closing: str) -> int:
    """Returns the place of the comma or bracket behind an element; that of an object has a key."""
    if closing == "}":
        _, at = SYNTAX.raw_decode(text, at)
        at = _after_blanks(text, at)
        if not text.startswith(":", at):
            raise json.JSONDecodeError("Expecting ':' delimiter", text, at)
        at = _after_blanks(text, at + 1)
    _, at = SYNTAX.raw_decode(text, at)
    at = _after_blanks(text, at)
    if not text.startswith((",", closing), at):
        raise json.JSONDecodeError("Expecting ',' delimiter", text, at)
    return at


def _is_cut(error: json.JSONDecodeError) -> bool:
    """Returns whether the text may be the beginning of an element."""
    is_near_end = error.pos > len(error.doc) - CUT_CHARACTERS
    return is_near_end or error.msg.startswith("Unterminated string")


def _records(field: bytes) -> Iterator[Row]:
    """Yields the record in a field of an object."""
    try:
        for key, record in lines.json_value(b"{" + field + b"}").items():
            yield {"id": key, **lines.check_record(record)}
    except RecordError as error:
        yield error
