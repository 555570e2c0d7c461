"""How files hold records: as rows of parquet or CSV, as questions of SQuAD or MRQA, or as lines.

A container is a module with ``matches``, ``check`` and ``rows``; the first one that matches a file
reads it.
"""

from __future__ import annotations

from typing import Any

from nq.formats import csv_rows, kinds, lines, mrqa, parquet, squad

CONTAINERS = (parquet, squad, mrqa, csv_rows)


def container_of(path: str) -> Any:
    """Returns the module that reads a file, ``lines`` if it is no special one.

    Raises:
        OSError: The file cannot be read.
    """
    head = kinds.head_of(path)
    return next((container for container in CONTAINERS if container.matches(path, head)), lines)
