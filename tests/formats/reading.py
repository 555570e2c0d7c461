"""Reads files of records and pages for tests."""

from pathlib import Path
from typing import Any

from nq.answers import Page
from nq.formats import inputs, lines
from nq.records import DeadLetter, Example


def decode_line(line: bytes) -> Example:
    """Returns the example in a line of a file of records."""
    return inputs.decode_record(lines.parsed(line))


def records(path: Path, **options: Any) -> list[tuple[int, Example | DeadLetter]]:
    """Returns the lines and the records of a file, which is checked first."""
    inputs.check(str(path))
    return [(source.line, item) for source, item in inputs.read_records(str(path), **options)]


def items(path: Path, **options: Any) -> list[Example | DeadLetter]:
    return [item for _, item in records(path, **options)]


def examples(path: Path, **options: Any) -> list[Example]:
    """Returns the good records of a file."""
    return [item for item in items(path, **options) if isinstance(item, Example)]


def ids(path: Path, **options: Any) -> list[int | str]:
    return [example.example_id for example in examples(path, **options)]


def golds(path: Path) -> list[Any]:
    """Returns the gold of each good record."""
    return [(example.answers, example.annotations) for example in examples(path)]


def reasons(path: Path, **options: Any) -> list[str]:
    """Returns the reason of each record, empty for a good one."""
    return [i.reason if isinstance(i, DeadLetter) else "" for i in items(path, **options)]


def blocks(page: Page) -> list[str]:
    """Returns the text of each top-level block of a page."""
    return [page.text(c.span) for c in page.example.candidates if c.top_level]


def values_of(example: Example) -> dict[str, Any]:
    """Returns all that an example has as values that can be compared."""
    values = {name: getattr(example, name) for name in Example.__slots__}
    original, places = values.pop("original"), values.pop("token_bytes")
    for name in ("tokens", "is_html", "candidates"):
        values[name] = list(values[name])
    return values | {
        "token_bytes": None if places is None else places.tolist(),
        "original": original and (original.chars.tolist(), original.plain, list(original.spelling)),
    }
