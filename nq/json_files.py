"""JSON files that other people made: each fault is an error in one line."""

import json
from pathlib import Path
from typing import Any

from nq.formats.lines import check_whole
from nq.storage import atomic_write

MAX_BYTES = 128 << 20
"""The largest known ``tokenizer.json`` has a quarter of it."""


def read_json_object(path: Path) -> dict[str, Any]:
    """Reads a JSON file that holds an object."""
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise ValueError(f"{path} has {size} bytes: expected JSON of at most {MAX_BYTES}")
    content = path.read_bytes()
    check_whole(path, content)
    try:
        values = json.loads(content)
    except RecursionError as error:
        raise ValueError(f"{path} is not JSON that can be read: it is nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {str(error).partition(';')[0]}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path} holds {type(values).__name__}, expected a JSON object")
    return values


def dump_json(path: Path, value: Any) -> None:
    """Writes a value as indented JSON."""
    with atomic_write(path) as file:
        file.write((json.dumps(value, indent=2) + "\n").encode())
