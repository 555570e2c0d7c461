"""Checked access to the fields of a JSON record, shared by the input dialects.

``orjson`` returns exact Python types, so a field is valid if its type *is* an expected one: a
boolean is not an integer, and an integer beyond 64 bits arrives as a ``float``. ``where`` is
always the path of a value in its record; it appears in the text of the error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nq.records import ExampleId

Record = Mapping[str, Any]

JSON_NAMES = {
    bool: "a boolean",
    int: "an integer",
    float: "a number that is no 64-bit integer",
    str: "a string",
    list: "an array",
    dict: "an object",
    type(None): "null",
}
_MISSING = object()
MAX_SHOWN_NAMES = 8


class RecordError(ValueError):
    """A record that cannot be used; the text names what was found and what was expected."""


def check_type(value: Any, where: str, *types: type) -> Any:
    """Returns ``value`` if its type is one of ``types``, else raises ``RecordError``."""
    if type(value) in types:
        return value
    expected = " or ".join(JSON_NAMES[t] for t in types)
    name = JSON_NAMES.get(type(value), f"a {type(value).__name__}")
    raise RecordError(f"{where} must be {expected}, found {name}")


def get(record: Any, name: str, *types: type, where: str = "", default: Any = _MISSING) -> Any:
    """Returns the field ``name`` of ``record``; without a default the field is required."""
    if type(record) is not dict:
        check_type(record, where or "record", dict)
    value = record.get(name, default)
    if type(value) in types:
        return value
    path = f"{where}.{name}" if where else name
    if value is _MISSING:
        raise RecordError(f"missing field {path!r}")
    return check_type(value, f"field {path!r}", *types)


def optional_text(record: Record, name: str) -> str:
    """Returns a string that is only displayed: empty if it is absent or not a string."""
    value = record.get(name)
    return value if isinstance(value, str) else ""


def example_id(record: Record, name: str = "example_id") -> ExampleId:
    """Returns the example's id; a numeric string (Kaggle) becomes a number if that is lossless."""
    value: ExampleId = get(record, name, int, str)
    if value == "":
        raise RecordError(f"field {name!r} is empty")
    try:
        number = int(value)
    except ValueError:
        return value
    return number if str(number) == value and -(1 << 63) <= number < 1 << 64 else value


def listed(names: Sequence[str]) -> str:
    """Returns the first names of columns for a message."""
    more = ["…"] * (len(names) > MAX_SHOWN_NAMES)
    return ", ".join([*names[:MAX_SHOWN_NAMES], *more]) or "(none)"
