"""The elements of a JSON list, or of an object of records by id, one by one in bounded memory.

The parser of ``json`` finds where an element ends; its text is read like a line, so that a broken
one costs no other. Parsers that give elements one by one, such as ijson, end at the first error.
Texts have a character for each byte here (Latin-1), which makes no difference to their syntax.
"""

import json
import re
from collections.abc import Iterator
from typing import IO

from nq.formats import lines
from nq.formats.fields import LIMITS, RecordError

CHUNK_BYTES = 1 << 16
MARGIN = 16
"""At the end of a text, so many characters may be a part of a number, a word or an escape."""
BY_ID = "contexts", "ctxs"
"""Fields of which each record in an object by query id has one, with passages."""
_JSON = json.JSONDecoder(object_pairs_hook=len, parse_int=len, parse_float=len)  # keeps no values
_STRING = r'"(?>(?:[^"\\\n]|\\.)*)"'
_SCALAR = rf"(?:{_STRING}|[-+.\w]+)"
_KEY = re.compile(rf"({_STRING})\s*:\s*")
_FIELD = re.compile(rf"\s*[{{,]\s*{_KEY.pattern}")
_FIRST = re.compile(rf"(\{{\s*{_STRING}\s*:\s*)(?:{_SCALAR}(\s*,\s*{_STRING}\s*:))?")
_BETWEEN, _STOP = re.compile(r"[, \t\r\n]*"), re.compile(r"\s*(?:[,\]}]|\Z)")
_LIST = re.compile(r"\s*\[\s*[{\]]")
_LINES = re.compile(r"[\]}][ \t\r]*\n\{[ \t]*\"")
"""What a JSON list has nowhere: an object on a line of its own without a comma before it."""


def is_list(head: bytes) -> bool:
    """Returns whether a file is a list, or an object of records by id, by its first bytes.

    >>> is_list(b' [{"a": 1}, null]'), is_list(b'[{"a": 1}]\\n{"a": 2}'), is_list(b"[1]")
    (True, False, False)
    """
    text = head.decode("latin-1")
    if key := _FIELD.match(text):
        return list_start(head, *BY_ID, at=key.end()) >= 0
    return bool(_LIST.match(text)) and not _LINES.search(text)


def list_start(head: bytes, *names: str, at: int = 0) -> int:
    """Returns where the list in the first field of these names of an object begins, -1 if nowhere.

    >>> list_start(b'{"a": {"data": [{}]}, "data": [{}]}', "data")
    30
    """
    text = head.decode("latin-1")
    while field := _FIELD.match(text, at):
        if field[1].strip('"') in names:
            return field.end() if _LIST.match(text, field.end()) else -1
        at, _ = _end(text, field.end())
    return -1


def rows(path: str, name: str = "", limit: int = 0) -> Iterator[tuple[int, bytes | RecordError]]:
    """Yields the elements of a file, or of the list in its field ``name``, with numbers from 1."""
    number = 0
    try:
        with lines.open_bytes(path) as file:
            head = file.read(CHUNK_BYTES).removeprefix(lines.BOM).lstrip()
            head = head[list_start(head, name) :] if name else head
            for number, row in enumerate(elements(file, head, limit or LIMITS.bytes, not name), 1):
                yield number, row
    except RecordError as error:
        yield number + 1, error


def elements(
    file: IO[bytes], head: bytes, limit: int, is_whole: bool = True
) -> Iterator[bytes | RecordError]:
    """Yields the text of each element, which may be no JSON; a key in front becomes its ``id``.

    A broken element, or one without an end in ``limit`` bytes, ends before the next place that
    reads like the beginning of the first element.

    Args:
        head: the beginning, with the bracket that opens the list; ``file`` has the rest.
        is_whole: whether nothing may follow the end of the list.
    """
    text, at, data, dropped = head.decode("latin-1"), 1, head, 0
    closing, beginning = "]" if text.startswith("[") else "}", _beginning(text)
    while not text.startswith(closing, at := next(_BETWEEN.finditer(text, at)).end()):
        start, size = at, len(text) - at
        end, is_broken = _end(text, at)
        if not data or size > limit or end + MARGIN <= len(text):  # more text would not change it
            for stop in _places(beginning, text, at, end) if is_broken else [end]:
                yield _row(text[at:stop], dropped, limit)
                at, dropped = stop, 0
        if at > start:
            continue
        if not data:
            yield _row(text[at:], dropped, limit) if size else RecordError("the file is cut off")
            return
        if size > limit:
            kept = text[at:][-CHUNK_BYTES:]
            dropped += size - len(kept) - 1
            text, at = "\0" + kept, 0  # what is dropped leaves a character that is no JSON
        data = file.read(max(CHUNK_BYTES, len(text) - at))
        text, at = text[at:] + data.decode("latin-1"), 0
    if is_whole and (text[at + 1 :].encode("latin-1") + file.read(CHUNK_BYTES)).strip():
        yield RecordError("there is other data behind the end of the list")


def _end(text: str, at: int) -> tuple[int, bool]:
    """Returns the place where an element ends or is broken, and whether it is broken."""
    key = _KEY.match(text, at)
    try:
        _, end = _JSON.raw_decode(text, key.end() if key else at)
        return end, not _STOP.match(text, end)
    except json.JSONDecodeError as error:
        return (len(text) if error.msg.startswith("Unterminated") else error.pos), True
    except RecursionError:
        return len(text), True


def _places(beginning: re.Pattern[str], text: str, at: int, end: int) -> Iterator[int]:
    """Yields where elements begin behind a place, up to the first one that is not before an end."""
    for match in beginning.finditer(text, at + 1):
        yield match.start()
        if match.start() >= end:
            return


def _beginning(text: str) -> re.Pattern[str]:
    """Returns what matches the first key of the first object, and a second one behind a scalar."""
    if not (first := _FIRST.search(text, 1)):
        return _FIRST
    pattern = r'"[^"\\\n]*"\s*:\s*' if text.startswith("{") else ""  # a record's id is in front
    pattern += re.escape(first[1])
    return re.compile(pattern + _SCALAR + re.escape(first[2]) if first[2] else pattern)


def _row(text: str, dropped: int, limit: int) -> bytes | RecordError:
    """Returns the text of an element, an error if some of it was dropped."""
    if dropped:
        return RecordError(f"too large: {dropped + len(text)} bytes, the limit is {limit}")
    if key := _KEY.match(text):
        text = text[key.end() :].replace("{", f'{{"id": {key[1]}, ', 1)
    return text.rstrip(", \t\r\n").encode("latin-1")
