"""Parquet files: their rows as records, a few at a time, whatever the dialect.

A dialect that comes as parquet says in ``COLUMNS`` which leaf columns it needs and in
``OPTIONAL_COLUMNS`` which it can use; only these are read. Levels of lists do not count in
their names: ``document.tokens.token`` is the same column in a struct of lists and in a list
of structs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from nq.formats.fields import JSON_NAMES, Record, RecordError

MAGIC = b"PAR1"
ROWS_AT_A_TIME = 8
BUFFER_BYTES = 1 << 20
NAMES_SHOWN = 8


class Table(Protocol):
    """A dialect that can be read from parquet."""

    NAME: str
    MARK: str
    COLUMNS: dict[str, tuple[type, ...]]
    OPTIONAL_COLUMNS: dict[str, tuple[type, ...]]


def is_parquet(path: str) -> bool:
    """Whether a file is parquet, told by its first bytes."""
    with open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def count(path: str) -> int:
    """How many rows a file has."""
    with _open(path) as file:
        return int(file.metadata.num_rows)


def check(path: str, tables: Sequence[Table]) -> Table:
    """The dialect of a file.

    Raises:
        ValueError: the file is damaged, its columns are of no dialect, or a needed one is
            absent or of another type.
    """
    with _open(path) as file:
        return _dialect(path, file.schema_arrow, tables)


def rows(
    path: str,
    tables: Sequence[Table],
    share: tuple[int, int] = (0, 1),
    limit: int | None = None,
) -> Iterator[tuple[int, Record | RecordError]]:
    """The rows of a file with their numbers, from 1.

    Every row is given: those that cannot be read, alone or with their row group, as errors.

    Args:
        path: the file.
        tables: the dialects.
        share: ``(i, n)`` gives every n-th row from the i-th on.
        limit: stop behind so many rows of the file.

    Raises:
        ValueError: see ``check``.
    """
    worker, workers = share
    with _open(path) as file:
        table = _dialect(path, file.schema_arrow, tables)
        wanted = table.COLUMNS | table.OPTIONAL_COLUMNS
        leaves = _leaves(file.schema_arrow)
        columns = sorted({leaf.read for name, leaf in leaves.items() if _is_wanted(name, wanted)})
        total = file.metadata.num_rows if limit is None else min(limit, file.metadata.num_rows)
        first = 0
        for group in range(file.num_row_groups):
            if first >= total:
                return
            end = min(first + file.metadata.row_group(group).num_rows, total)
            asked = range(first + (worker - first) % workers, end, workers)
            yield from _group(file, group, columns, first, asked)
            first += file.metadata.row_group(group).num_rows


def _group(
    file: Any, group: int, columns: Sequence[str], first: int, asked: range
) -> Iterator[tuple[int, Record | RecordError]]:
    """The rows ``asked`` for of a row group whose first row is ``first``, counted from 0."""
    import pyarrow

    left = iter(asked)
    row = next(left, None)
    try:
        for batch in file.iter_batches(
            ROWS_AT_A_TIME, row_groups=[group], columns=columns, use_threads=False
        ):
            while row is not None and row < first + batch.num_rows:
                yield row + 1, _record(batch, row - first)
                row = next(left, None)
            if row is None:
                return
            first += batch.num_rows
        problem = "it has fewer rows than the file says"
    except (pyarrow.ArrowException, OSError) as error:
        problem = str(error)
    while row is not None:
        yield row + 1, RecordError(f"row group {group} of the parquet file is damaged: {problem}")
        row = next(left, None)


def _record(batch: Any, row: int) -> Record | RecordError:
    try:
        record: Record = batch.slice(row, 1).to_pylist()[0]
    except UnicodeDecodeError:
        return RecordError("the row holds text that is not UTF-8")
    return record


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
        yield file


def _dialect(path: str, schema: Any, tables: Sequence[Table]) -> Table:
    table = next((table for table in tables if table.MARK in schema.names), None)
    if table is None:
        marks = " or ".join(f"{table.MARK!r} ({table.NAME})" for table in tables)
        raise ValueError(
            f"{path}: found the columns {_some(schema.names)}, expected {marks}; give the parquet "
            "files of one of these data sets, or convert the records to jsonl"
        )
    leaves = _leaves(schema)
    missing = [name for name in table.COLUMNS if not _has(name, leaves)]
    if missing:
        raise ValueError(
            f"{path}: found no column {' or '.join(missing)}, expected the columns of "
            f"{table.NAME}; export the data set again with all of its columns"
        )
    for name, kinds in (table.COLUMNS | table.OPTIONAL_COLUMNS).items():
        leaf = leaves.get(name)
        if leaf is not None and not any(_is(leaf.kind, kind) for kind in kinds):
            expected = " or ".join(JSON_NAMES[kind] for kind in kinds)
            raise ValueError(
                f"{path}: found column {name} of type {leaf.kind}, expected {expected}; "
                f"export the data set again with the types of {table.NAME}"
            )
    return table


class _Leaf(NamedTuple):
    """The Arrow type of a column without columns in it, and the name to read it by.

    Parquet has levels of its own below a list, so that a list is read as a whole.
    """

    kind: Any
    read: str


def _leaves(schema: Any) -> dict[str, _Leaf]:
    """Each leaf column by its dotted name, without the levels of lists."""
    import pyarrow

    found: dict[str, _Leaf] = {}

    def add(name: str, kind: Any, read: str | None = None) -> None:
        while hasattr(kind, "value_type"):  # lists of all kinds, dictionaries
            kind, read = kind.value_type, read or name
        if pyarrow.types.is_struct(kind):
            for i in range(kind.num_fields):
                add(f"{name}.{kind.field(i).name}", kind.field(i).type, read)
        else:
            found[name] = _Leaf(kind, read or name)

    for field in schema:
        add(field.name, field.type)
    return found


def _has(name: str, leaves: Mapping[str, _Leaf]) -> bool:
    """Whether a column is there, or a column above it that holds nothing but nulls."""
    import pyarrow

    above = [name[:i] for i, char in enumerate(name) if char == "."]
    return name in leaves or any(
        pyarrow.types.is_null(leaves[a].kind) for a in above if a in leaves
    )


def _is_wanted(leaf: str, wanted: Mapping[str, Any]) -> bool:
    return any(f"{name}.".startswith(f"{leaf}.") for name in wanted)


def _is(found: Any, kind: type) -> bool:
    import pyarrow

    types = pyarrow.types
    tests = {
        str: (types.is_string, types.is_large_string, types.is_string_view),
        int: (types.is_integer,),
        bool: (types.is_boolean,),
    }
    return types.is_null(found) or any(test(found) for test in tests[kind])


def _some(names: Sequence[str]) -> str:
    shown = list(names[:NAMES_SHOWN])
    return ", ".join([*shown, "…"] if len(names) > len(shown) else shown) or "(none)"
