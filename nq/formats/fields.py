"""Checked access to the fields of a JSON record, and the limits of one record.

``orjson`` returns exact Python types, so a field is valid if its type *is* an expected one: a
boolean is not an integer, and an integer beyond 64 bits arrives as a ``float``. ``where`` is
always the path of a value in its record; it appears in the text of the error.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nq.records import Example, ExampleId

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


class RecordError(ValueError):
    """A record that cannot be used; the text names what was found and what was expected."""


def check_type(value: Any, where: str, *types: type) -> Any:
    """Returns ``value`` if its type is one of ``types``, else raises ``RecordError``."""
    if type(value) in types:
        return value
    expected = " or ".join(JSON_NAMES[t] for t in types)
    name = JSON_NAMES.get(type(value), f"a {type(value).__name__}")
    raise RecordError(f"{where} must be {expected}, found {name}")


def get(
    record: Any,
    name: str,
    *types: type,
    where: str = "",
    default: Any = _MISSING,
) -> Any:
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


def objects(record: Any, name: str, where: str = "") -> list[Any]:
    """Returns a field that is an object of lists as a list of objects, without lists of null.

    >>> objects({"spans": {"start": [1, 2], "end": [3, 4], "text": None}}, "spans")
    [{'start': 1, 'end': 3}, {'start': 2, 'end': 4}]
    """
    value = get(record, name, dict, list, where=where)
    if type(value) is list:
        return value
    path = f"{where}.{name}" if where else name
    columns = {name: column for name, column in value.items() if column is not None}
    for column_name, column in columns.items():
        check_type(column, f"{path}.{column_name}", list)
    if len({len(column) for column in columns.values()}) > 1:
        lengths = ", ".join(f"{name} {len(column)}" for name, column in columns.items())
        raise RecordError(f"{path} has columns of different lengths: {lengths}")
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def optional_text(record: Record, name: str) -> str:
    """Returns a string that is only displayed: empty if it is absent or not a string."""
    value = record.get(name)
    return value if isinstance(value, str) else ""


def example_id(record: Record, name: str = "example_id") -> ExampleId:
    """Returns the example's id; see ``same_id``."""
    value: ExampleId = same_id(get(record, name, int, str))
    if value == "":
        raise RecordError(f"field {name!r} is empty")
    return value


def same_id(value: Any) -> Any:
    """Returns an id as every part of nq compares it, without loss.

    Text that is exactly the decimal form of a 64-bit integer (Kaggle) is that integer. A larger
    integer is its text, since ``orjson`` cannot write the number.

    >>> [same_id(value) for value in ("-7", "007", "1_1", " 5", "+5", 1 << 64)]
    [-7, '007', '1_1', ' 5', '+5', '18446744073709551616']
    """
    text = str(value)
    with contextlib.suppress(ValueError):
        number = int(text)
        if str(number) == text:
            return number if -(1 << 63) <= number < 1 << 64 else text
    return value


UNITS = {
    "bytes": "bytes",
    "depth": "levels of nested JSON",
    "values": "JSON values",
    "characters": "characters on the page",
    "word_characters": "characters in a token",
    "question_characters": "characters in the question",
    "id_characters": "characters in the example_id",
    "tokens": "tokens",
    "candidates": "candidates",
    "block_tokens": "tokens in top-level candidates",
    "windows": "windows",
    "window_pieces": "pieces in all windows, padding included",
    "answers": "gold answers as text",
    "document_bytes": "bytes of an article of SQuAD",
    "document_values": "JSON values in an article of SQuAD",
}
"""What each limit counts, as a message names it."""


@dataclass
class RecordLimits:
    """How large a record may be; beyond any of the limits it is a dead letter.

    The limits are far above the records of Natural Questions, whose largest pages have 125,000
    tokens, thousands of candidates and, with their HTML, some 15 MB of JSON.

    ``bytes`` are of a line, or of a row of parquet in memory. ``depth`` is the limit of orjson.
    ``values`` of JSON are counted by its commas and brackets before it is parsed. A token in two
    top-level candidates counts twice in ``block_tokens``, which so bounds every loop over the text
    of candidates. An article of SQuAD has limits of its own.
    """

    bytes: int = 32 << 20
    depth: int = 1024
    values: int = 4_000_000
    characters: int = 4_000_000
    word_characters: int = 1_000_000
    question_characters: int = 100_000
    id_characters: int = 10_000
    tokens: int = 1_000_000
    candidates: int = 100_000
    block_tokens: int = 2_000_000
    windows: int = 8192
    window_pieces: int = 1 << 22
    answers: int = 10_000
    document_bytes: int = 256 << 20
    document_values: int = 8_000_000

    def check(self, **counts: int) -> None:
        """Raises ``RecordError`` if a count, given by the name of its limit, is beyond it.

        >>> RecordLimits(tokens=10).check(tokens=11)
        Traceback (most recent call last):
        nq.formats.fields.RecordError: too large: 11 tokens, the limit is 10
        """
        for name, count in counts.items():
            limit = getattr(self, name)
            if count > limit:
                raise RecordError(f"too large: {count} {UNITS[name]}, the limit is {limit}")

    def check_example(self, example: Example) -> None:
        blocks = (c.span for c in example.candidates if c.top_level)
        self.check(
            question_characters=len(example.question),
            id_characters=len(str(example.example_id)),
            tokens=len(example.tokens),
            candidates=len(example.candidates),
            block_tokens=sum(block.end - block.start for block in blocks),
            characters=sum(map(len, example.tokens)),
            word_characters=max(map(len, example.tokens), default=0),
        )


LIMITS = RecordLimits()
