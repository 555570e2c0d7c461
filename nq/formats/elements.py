"""The elements of a JSON list, or of an object of records by id, one by one in bounded memory.

An element is cut out of the file by its brackets and read like a line, so that a broken one costs
no other. Parsers that give elements one by one, such as ijson, end at the first error.
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import IO

from nq.formats import lines
from nq.formats.fields import LIMITS, RecordError

CHUNK_BYTES = 1 << 20
STRING: bytes = rb"\"(?>(?:[^\"\\]|\\.)*)\""  # groups that repeat are as in nq.formats.words
SCALAR = STRING + rb"|[\w.+-]++"
VALUE = SCALAR
for _ in range(6):  # levels of arrays and objects
    VALUE = SCALAR + rb"|[\[{](?>(?:[\s,:]++|" + VALUE + rb")*)[\]}]"
_FIELD = STRING + rb"\s*+:\s*+(?:" + VALUE + rb")\s*+,\s*+"
FIELDS: bytes = rb"(?>(?:(?!\"(?:%s)\"\s*+:)" + _FIELD + rb")*)"
"""Fields of an object, of any kind, before one of those that are inserted."""
_LIST = re.compile(rb"\s*+\[\s*+[\[{\]]")
_LINES = re.compile(rb"[\]}][ \t\r]*\n\{[ \t]*\"")
"""What a JSON list has nowhere: an object on a line of its own without a comma before it."""
_LINE = rb"\"[^\"\\\n]*+(?>(?:\\[^\n][^\"\\\n]*+)*)\""  # a line end in a string is no JSON
_TO_COMMA, _TO_BRACKET = (
    re.compile(rb"(?>(?:[^\"\[\]{}%s]++|%s)*)" % (stop, _LINE)) for stop in (b",", b"")
)
_FIRST = re.compile(
    rb"\s*?(?P<line>(?:\n[ \t]*+)?)(?P<key>(?:" + STRING + rb"\s*+:\s*+)?)"
    rb"(?P<field>\{\s*+" + STRING + rb"\s*+:\s*+)(?:(?:" + SCALAR + rb")(?P<second>\s*+,\s*+"
    rb"" + STRING + rb"\s*+:))?"
)
"""The beginning of the first element: its first field and, where that has no list, the second."""
_MEMBER = re.compile(rb"\s*+(" + STRING + rb")\s*+:\s*+(.*)", re.DOTALL)


def is_list(head: bytes) -> bool:
    """Returns whether a file is a JSON list, by its first bytes.

    >>> is_list(b' [{"a": 1}, null]'), is_list(b'[{"a": 1}]\\n{"a": 2}'), is_list(b"[1]")
    (True, False, False)
    """
    return bool(_LIST.match(head)) and not _LINES.search(head)


def rows(path: str) -> Iterator[tuple[int, bytes | RecordError]]:
    """Yields the elements of a list or of an object in a file, with their numbers from 1.

    The key of an object's element becomes its field ``id``, unless it has one.
    """
    number = 0
    try:
        with lines.open_bytes(path) as file:
            first = b""
            while not first.strip() and (data := file.read(CHUNK_BYTES)):
                first = data.removeprefix(lines.BOM).lstrip()
            for number, row in enumerate(elements(file, first, LIMITS.bytes), 1):
                member = None if isinstance(row, RecordError) else _MEMBER.match(row)
                yield number, _with_id(member[1], member[2]) if member else row
    except RecordError as error:
        yield number + 1, error


def _with_id(key: bytes, value: bytes) -> bytes:
    """Returns an object with an id in front, which one of its own overrides."""
    fields = value.removeprefix(b"{").lstrip()
    if fields == value:
        return value
    return b'{"id": %s%s%s' % (key, b"" if fields.startswith(b"}") else b", ", fields)


def elements(
    file: IO[bytes], buffer: bytes, limit: int, is_whole: bool = True
) -> Iterator[bytes | RecordError]:
    """Yields the text of each element of a list or an object, which may be no JSON.

    Where an element has no end in ``limit`` bytes or in the file, what follows is divided before
    each place that reads like the beginning of the first element.

    Args:
        file: is read from the end of the buffer to the end of the list, and little further.
        buffer: the beginning, with the bracket that opens the list.
        is_whole: whether nothing may follow the end of the list.
    """
    end, beginning = b"]" if buffer.startswith(b"[") else b"}", _beginning(buffer)
    start = at = depth = 1
    dropped = 0
    while True:
        at, depth = _scan(buffer, at, depth, end)
        stop = buffer[at : at + 1]
        if stop in (b"", b'"'):  # the buffer ends, in a string or outside
            data = file.read(CHUNK_BYTES)
            if data and len(buffer) - start <= limit:
                buffer, at, start = buffer[start:] + data, at - start, 0
            elif (depth > 1 or not data) and (places := _places(beginning, buffer, start)):
                for first, last in pairwise([start, *places]):
                    yield _element(buffer[first:last], dropped, limit)
                    dropped = 0
                buffer, start, at, depth = buffer[places[-1] :] + data, 0, 0, 1
            elif data:
                is_escape = (len(buffer) - len(buffer.rstrip(b"\\"))) % 2
                rest = stop + b"\\" * is_escape if stop else b""
                dropped += len(buffer) - start - len(rest)
                buffer, start, at = rest + data, 0, 0
            else:
                break
            continue
        if element := _element(buffer[start:at], dropped, limit):
            yield element
        at, start, dropped = at + 1, at + 1, 0
        if stop == end:
            if is_whole and (buffer[at:] + file.read(CHUNK_BYTES)).strip():
                yield RecordError("there is other data behind the end of the list")
            return
    final, has_ended = _element(buffer[start:], dropped, limit), depth == 1 and not stop
    if final and has_ended:
        yield final
    yield RecordError(f"the file is cut off {'behind' if has_ended else 'in'} this element")


def _scan(buffer: bytes, at: int, depth: int, end: bytes) -> tuple[int, int]:
    """Returns where an element ends, or the buffer or a string that it does not end, and the depth.

    The depth is the number of brackets that are open at ``at``, and at the place that is returned.
    """
    while True:
        skipped = (_TO_COMMA if depth == 1 else _TO_BRACKET).match(buffer, at)
        at = skipped.end() if skipped else at
        stop = buffer[at : at + 1]
        if stop == b'"' and (line_end := buffer.find(b"\n", at)) >= 0:
            at = line_end  # the string is broken
        elif stop in (b"", b'"') or (depth == 1 and stop in (b",", end)):
            return at, depth
        else:
            at += 1
            depth = depth + 1 if stop in b"[{" else max(depth - 1, 1)


def _element(text: bytes, dropped: int, limit: int) -> bytes | RecordError:
    """Returns an element without what is around it, an error if some of it was dropped."""
    if dropped:
        return RecordError(f"too large: {dropped + len(text)} bytes, the limit is {limit}")
    return text.strip(b", \t\r\n")


def _beginning(buffer: bytes) -> re.Pattern[bytes] | None:
    """Returns what matches the beginning of each element that is written like the first one."""
    if not (first := _FIRST.match(buffer, 1)):
        return None
    key = STRING + rb"\s*+:\s*+" if first["key"] else b""
    pattern = re.escape(first["line"]) + key + re.escape(first["field"])
    if first["second"]:
        pattern += rb"(?:%s)" % SCALAR + re.escape(first["second"])
    return re.compile(pattern)


def _places(beginning: re.Pattern[bytes] | None, buffer: bytes, start: int) -> list[int]:
    """Returns where other elements begin behind the start of one."""
    if beginning is None:
        return []
    places = [match.start() for match in beginning.finditer(buffer, start)]
    return [place for place in places if buffer[start:place].strip()]
