"""What the first bytes of a JSON file tell: whether it is a list, and where its records are.

Texts have a character for each byte here (Latin-1), which makes no difference to their syntax.
"""

import json
import re
from collections.abc import Collection, Iterator

BY_ID = "contexts", "ctxs"
"""Fields of which each record in an object by query id has one, with passages."""
MAX_DEPTH = 4
"""Levels of lists and objects in which records are looked for."""
SYNTAX = json.JSONDecoder(object_pairs_hook=len, parse_int=len, parse_float=len)
"""Finds the ends of values, which it does not keep."""
_FIELD = re.compile(r'\s*[{,]\s*"((?>(?:[^"\\\n]|\\.)*))"\s*:\s*')
_LIST = re.compile(r"\s*\[\s*[{\]]")
_LINES = re.compile(r"[\]}][ \t\r]*\n\{[ \t]*\"")
"""What a JSON list has nowhere: an object on a line of its own without a comma before it."""
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
"""A field that jq takes without quotes."""


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
    for name, start in _fields(text, at):
        if name in names:
            return start if _LIST.match(text, start) else -1
    return -1


def path_to_records(head: bytes, names: Collection[str]) -> str:
    """Returns the path, as jq writes it, to the first records below an object, empty if unknown.

    Args:
        head: the first bytes of the object.
        names: the fields by which a record is known.

    >>> path_to_records(b'{"n": 2, "results": [{"question": "who', {"question"})
    '.results[]'
    >>> path_to_records(b'{"dev": {"q1": {"question": "who', {"question"})
    '.dev[]'
    """
    path = _path(head.decode("latin-1"), 0, names, MAX_DEPTH) or ""
    return f".{path}" if path.startswith("[") else path


def _path(text: str, at: int, names: Collection[str], depth: int) -> str | None:
    """Returns the path to the records in the value at a place, ``None`` if there are none."""
    if not depth:
        return None
    if opening := _LIST.match(text, at):
        path = _path(text, opening.end() - 1, names, depth - 1)
        return None if path is None else f"[]{path}"
    fields = list(_fields(text, at))
    if any(name in names for name, _ in fields):
        return ""
    for name, start in fields:
        path = _path(text, start, names, depth - 1)
        if path == "":
            return "[]"  # the fields are ids of records
        if path is not None and _NAME.fullmatch(name):
            return f".{name}{path}"
    return None


def _fields(text: str, at: int) -> Iterator[tuple[str, int]]:
    """Yields the fields of an object with the places of their values, as far as it is JSON."""
    while field := _FIELD.match(text, at):
        yield field[1], field.end()
        try:
            _, at = SYNTAX.raw_decode(text, field.end())
        except (json.JSONDecodeError, RecursionError):
            return
