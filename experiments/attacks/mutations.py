"""Seeded mutations of JSON records and of bytes."""

import json
import random
from collections.abc import Iterator
from typing import Any

DEEP = 3000
LONG = 100_000
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, -2, 1, 7, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 2**70, 10**400),
    *(0.5, -0.0, 1e308, float("nan"), float("inf"), -float("inf")),
    *("", " ", "\0", "\x1b[31m", "\ud800", "\u2028", "YES", "NaN", "=1+1", "<P>", "-1", "x" * LONG),
    *([], {}, [[]], [None], [{}], {"": ""}, {"a": {"b": []}}),
)
INSERTED = (
    *(b'"', b"\\", b"{", b"}", b"[", b"]", b",", b"\n", b"\0", b"\xff", b"\xed\xa0\x80"),
    *(b"\x1b[2J", b"<p>", b"</table>", b"<" * 500, b"\xef\xbb\xbf"),
)


def nodes(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yields container and key of every value inside a JSON value."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from nodes(value[key])


def change_value(record: Any, chance: random.Random) -> None:
    """Changes one value of a record in place: another value, none, a near one, or a repetition."""
    container, key = chance.choice(list(nodes(record)))
    value = container[key]
    kind = chance.randrange(6)
    if kind == 0:
        del container[key]
    elif kind == 1:
        container[key] = chance.choice(VALUES)
    elif isinstance(value, bool):
        container[key] = not value
    elif isinstance(value, int):
        container[key] = value + chance.choice((-9, -1, 1, 9))
    elif isinstance(value, str):
        at = chance.randrange(len(value) + 1)
        container[key] = value[:at] + str(chance.choice(VALUES)) + value[at:]
    elif isinstance(value, list):
        container[key] = value[chance.randrange(len(value) + 1) :] * chance.choice((1, 2, 50))


def to_line(record: Any, chance: random.Random) -> bytes:
    """Returns a record as JSON, at times with a repeated key or a deeply nested value."""
    text = json.dumps(record, ensure_ascii=chance.random() < 0.5)
    kind = chance.randrange(12)
    if kind == 0 and isinstance(record, dict) and record:
        repeated = {chance.choice(list(record)): chance.choice(VALUES)}
        text = text[:-1] + ", " + json.dumps(repeated)[1:]
    elif kind == 1:
        depth = chance.choice((50, DEEP))
        text = text.replace("null", "[" * depth + "]" * depth, 1)
    return text.encode("utf-8", "surrogatepass")


def change_bytes(data: bytes, chance: random.Random) -> bytes:
    """Returns bytes with one to three changes."""
    changed = bytearray(data)
    for _ in range(chance.randrange(1, 4)):
        if not changed:
            break
        at, n = chance.randrange(len(changed)), chance.randrange(1, 50)
        match chance.randrange(6):
            case 0:
                changed[at] = chance.randrange(256)
            case 1:
                del changed[at : at + n]
            case 2:
                del changed[at:]
            case 3:
                changed[at:at] = chance.choice(INSERTED)
            case 4:
                changed[at:at] = changed[at : at + n] * chance.randrange(1, 50)
            case 5:
                encoding = chance.choice(("utf-16", "utf-16-le", "latin-1", "cp1252"))
                changed[:] = changed.decode("utf-8", "replace").encode(encoding, "replace")
    return bytes(changed)
