"""What ``nq clean`` found and removed, as text and as JSON values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nq.runs.cleaning import Item
from nq.text import format_bytes

UNITS = ((86400, "days"), (3600, "hours"), (60, "minutes"))


def table(items: Sequence[Item], dry_run: bool) -> str:
    """Returns a line for each item, with size and age, and the total."""
    removed = [item for item in items if not item.kept]
    verb = "would remove" if dry_run else "removed"
    lines = [
        f"{'keep' if item.kept else verb:<13} {format_bytes(item.bytes):>11}  "
        f"{format_age(item.age_s):>10}  {item.folder}: {item.what}"
        f"{f' ({item.kept})' if item.kept else ''}"
        for item in items
    ]
    total = format_bytes(sum(item.bytes for item in removed))
    return "\n".join([*lines, f"{verb} {total} in {len(removed)} of {len(items)} places"])


def format_age(seconds: float) -> str:
    """Returns an age in the largest unit of which it has two, or in minutes.

    >>> format_age(0), format_age(7200), format_age(86400), format_age(172800)
    ('0 minutes', '2 hours', '24 hours', '2 days')
    """
    length, unit = next((x for x in UNITS if seconds >= 2 * x[0]), UNITS[-1])
    return f"{int(seconds // length)} {unit}"


def to_dict(items: Sequence[Item], dry_run: bool) -> dict[str, Any]:
    """Returns what ``--json`` prints."""
    return {
        "dry_run": dry_run,
        "removed_bytes": sum(item.bytes for item in items if not item.kept),
        "removed": [_values(item) for item in items if not item.kept],
        "kept": [{**_values(item), "reason": item.kept} for item in items if item.kept],
    }


def _values(item: Item) -> dict[str, Any]:
    return {
        "path": str(item.folder),
        "what": item.what,
        "bytes": item.bytes,
        "age_s": round(item.age_s),
    }
