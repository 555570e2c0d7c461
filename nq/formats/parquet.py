"""Parquet files of Hugging Face's ``natural_questions``: their rows as records.

Only the columns that ``hugging_face`` names are read. Levels of lists do not count in their names:
``document.tokens.token`` is the same column in a struct of lists and in a list of structs.
"""

from __future__ import annotations

import contextlib
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from nq.formats.fields import JSON_NAMES, Record, RecordError
from nq.formats.hugging_face import COLUMNS, MARK, NAME, OPTIONAL_COLUMNS
from nq.formats.limits import LIMITS, RecordLimits

MAGIC = b"PAR1"
BATCH_ROWS = 8
BUFFER_BYTES = 1 << 20
MAX_SHOWN_NAMES = 8
_ARROW_TYPES = {str: "string|large_string|string_view", int: r"u?int\d+", bool: "bool"}


def is_parquet(path: str) -> bool:
    """Returns whether a file's first bytes are those of a parquet file."""
    with open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def matches(path: str, head: bytes) -> bool:
    """Returns what ``is_parquet`` does; a file that is compressed as a whole is not read."""
    return is_parquet(path)


def count(path: str) -> int:
    """Returns the number of rows of a file."""
    with _open(path) as file:
        return int(file.metadata.num_rows)


def check(path: str) -> None:
    """Raises ``ValueError`` if a file is damaged or lacks columns or their types."""
    with _open(path) as file:
        _columns(path, file.schema_arrow)


def rows(
    path: str,
    share: tuple[int, int] = (0, 1),
    limit: int | None = None,
    limits: RecordLimits = LIMITS,
) -> Iterator[tuple[int, Record | RecordError]]:
    """Yields the rows of a file with their numbers, from 1.

    A row that cannot be read, alone or with its row group, is yielded as an error.

    Args:
        path: The file.
        share: ``(i, n)`` yields every n-th row, from the i-th on.
        limit: The number of rows of the file after which to stop.
        limits: How large a row may be.

    Raises:
        ValueError: See ``check``.
    """
    worker, workers = share
    with _open(path) as file:
        columns, metadata = _columns(path, file.schema_arrow), file.metadata
        total = metadata.num_rows if limit is None else min(limit, metadata.num_rows)
        first = 0
        for group in range(file.num_row_groups):
            end = first + metadata.row_group(group).num_rows
            pending = deque(range(first + (worker - first) % workers, min(end, total), workers))
            if pending:
                yield from _group_rows(file, group, columns, first, pending, limits)
            first = end


def _group_rows(
    file: Any,
    group: int,
    columns: Sequence[str],
    first: int,
    pending: deque[int],
    limits: RecordLimits,
) -> Iterator[tuple[int, Record | RecordError]]:
    """Yields the rows ``pending`` of a row group whose first row is ``first``, from 0."""
    import pyarrow

    try:
        _check_group(file.metadata.row_group(group), columns, limits)
        for batch in file.iter_batches(
            BATCH_ROWS, row_groups=[group], columns=columns, use_threads=False
        ):
            while pending and pending[0] < first + batch.num_rows:
                row = pending.popleft()
                yield row + 1, _record(batch, row - first, limits)
            if not pending:
                return
            first += batch.num_rows
        problem = "it has fewer rows than its metadata"
    except RecordError as error:
        yield from ((row + 1, error) for row in pending)
        return
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        problem = " ".join(str(error).split())
    for row in pending:
        yield row + 1, RecordError(f"row group {group} of the parquet file is damaged: {problem}")


def _check_group(group: Any, columns: Sequence[str], limits: RecordLimits) -> None:
    """Raises ``RecordError`` if the mean of the rows of a row group has too many values.

    A billion equal values are a few bytes of the file, and Arrow has no limit when it reads them.
    """
    chunks = [group.column(i) for i in range(group.num_columns)]
    read = tuple(f"{column}." for column in columns)
    counts = [c.num_values for c in chunks if f"{c.path_in_schema}.".startswith(read)]
    limits.check(values=max(counts, default=0) // max(1, group.num_rows))


def _record(batch: Any, row: int, limits: RecordLimits) -> Record | RecordError:
    part = batch.slice(row, 1)
    try:
        limits.check(bytes=part.nbytes, values=sum(map(_n_values, part.columns)))
        record: Record = part.to_pylist()[0]
    except RecordError as error:
        return error
    except UnicodeDecodeError:
        return RecordError("the row contains text that is not UTF-8")
    return record


def _n_values(array: Any) -> int:
    """Returns the number of values in an array, those in its lists and structs included."""
    kind, below = array.type, []
    if hasattr(kind, "value_type") and hasattr(array, "flatten"):  # a list, no dictionary
        below = [array.flatten()]
    elif kind.num_fields:
        below = array.flatten()
    return len(array) + sum(map(_n_values, below))


@contextlib.contextmanager
def _open(path: str) -> Iterator[Any]:
    import pyarrow
    from pyarrow.parquet import ParquetFile

    try:
        file = ParquetFile(path, pre_buffer=False, buffer_size=BUFFER_BYTES)
    except (pyarrow.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno:
            raise
        raise ValueError(
            f"{path}: the parquet file is cut off or damaged ({error}); copy it again"
        ) from error
    with file:
        _check_counts(path, file.metadata)
        yield file


def _check_counts(path: str, metadata: Any) -> None:
    """Raises ``ValueError`` if the row groups do not add up to the rows of the file."""
    counts = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    if min(counts, default=0) < 0 or sum(counts) != metadata.num_rows:
        raise ValueError(
            f"{path}: the parquet file is damaged: found {sum(counts)} rows in its row groups, "
            f"expected {metadata.num_rows} as in its metadata; copy it again"
        )


def _columns(path: str, schema: Any) -> list[str]:
    """Returns the columns to read; raises ``ValueError`` where one is absent or mistyped."""
    if MARK not in schema.names:
        more = ["…"] * (len(schema.names) > MAX_SHOWN_NAMES)
        names = ", ".join([*schema.names[:MAX_SHOWN_NAMES], *more]) or "(none)"
        raise ValueError(
            f"{path}: found the columns {names}, expected {MARK!r} ({NAME}); give the parquet "
            "files of this data set, or convert the records to jsonl"
        )
    known = COLUMNS | OPTIONAL_COLUMNS
    types: dict[str, str] = {}
    read, of_nulls = set(), set()
    for leaf, arrow, column in _leaves(schema):
        types[leaf] = arrow
        covered = {name for name in known if f"{name}.".startswith(f"{leaf}.")}
        read |= {column} if covered else set()
        of_nulls |= covered if arrow == "null" else set()
    missing = [name for name in COLUMNS if name not in types and name not in of_nulls]
    if missing:
        raise ValueError(
            f"{path}: found no column {' or '.join(missing)}, expected the columns of {NAME}; "
            "export the data set again with all of its columns"
        )
    for name, expected in known.items():
        patterns = ["null", *(_ARROW_TYPES[t] for t in expected)]
        if name in types and not re.fullmatch("|".join(patterns), types[name]):
            raise ValueError(
                f"{path}: found column {name} of type {types[name]}, expected "
                f"{' or '.join(JSON_NAMES[t] for t in expected)}; export the data set again with "
                f"the types of {NAME}"
            )
    return sorted(read)


def _leaves(
    schema: Iterable[Any], parent: str = "", column: str | None = None
) -> Iterator[tuple[str, str, str]]:
    """Yields name, Arrow type and column to read of each field without fields of its own.

    Parquet has levels of its own below a list, so that a list is read as a whole column.
    """
    import pyarrow

    for field in schema:
        name, kind, read = f"{parent}{field.name}", field.type, column
        while hasattr(kind, "value_type"):  # lists of all kinds, dictionaries
            kind, read = kind.value_type, read or name
        if isinstance(kind, pyarrow.StructType):
            yield from _leaves(kind, f"{name}.", read)
        else:
            yield name, str(kind), read or name
