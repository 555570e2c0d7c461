"""Parquet files of Hugging Face's ``natural_questions``, or of questions: their rows as records.

Columns that nq does not need are not read: of the former they are more than half of a file. Others,
such as SQuAD and MRQA, have a column ``question``. Levels of lists do not count in the names of
columns: ``document.tokens.token`` is the same column in a struct of lists and in a list of structs.
"""

import contextlib
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from uuid import UUID

from nq.formats import questions, text_gold
from nq.formats.fields import LIMITS, Record, RecordError, listed, same_id

MAGIC = b"PAR1"
BATCH_ROWS = 8
BUFFER_BYTES = 1 << 20
EQUAL = 1000
"""Values, or bytes, for each compressed byte, beyond which most are equal and may be in one row."""
REQUIRED = (
    *("id", "question.text", "document.tokens.token", "document.tokens.is_html"),
    *("long_answer_candidates.start_token", "long_answer_candidates.end_token"),
)
COLUMNS = (
    *REQUIRED,
    *("document.title", "document.tokens.start_byte", "document.tokens.end_byte"),
    *("long_answer_candidates.top_level", "annotations.yes_no_answer"),
    *("annotations.long_answer.start_token", "annotations.long_answer.end_token"),
    *("annotations.short_answers.start_token", "annotations.short_answers.end_token"),
    "annotations.long_answer.candidate_index",
)
ANSWERS = {
    f"{name}.{part}"
    for name in (*text_gold.FIELDS, text_gold.DETECTED)
    for part in ("text", *text_gold.PLACES, "char_spans", "char_spans.start", "char_spans.end")
}
BYTES_AND_VIEWS = ("binary", "large_binary", "binary_view", "string_view")
_LIST_LEVELS = re.compile(r"\.(?:list|bag)\.(?:element|item|array_element|array)\b")


def count(path: str) -> int:
    """Returns the number of rows of a file."""
    with _open(path) as file:
        return int(file.metadata.num_rows)


def check_parquet(path: str) -> None:
    """Raises ``ValueError`` if a file is damaged or lacks columns."""
    with _open(path) as file:
        _columns(path, file)


def rows(
    path: str, share: tuple[int, int] = (0, 1), limit: int | None = None, page: str | None = None
) -> Iterator[tuple[int, Record | RecordError]]:
    """Yields rows of a file, as ``nq.formats.containers.rows`` does; others are not decoded."""
    worker, workers = share
    with _open(path) as plain:
        columns, dictionaries = _columns(path, plain, page), _dictionaries(plain)
    with _open(path, read_dictionary=dictionaries) as file:
        last, first = len(range(file.metadata.num_rows)[:limit]), 0
        for group in range(file.num_row_groups):
            end = first + file.metadata.row_group(group).num_rows
            numbers = range(first + (worker - first) % workers, min(end, last), workers)
            if numbers:
                yield from _group_rows(file, group, columns, first, numbers)
            first = end


def _dictionaries(file: Any) -> list[int]:
    """Returns the columns of which Arrow can read the texts as a dictionary, each of them once."""
    groups = [file.metadata.row_group(i) for i in range(file.num_row_groups)]
    return [
        column
        for column in range(len(file.schema))
        if not any("DELTA" in name for one in groups for name in one.column(column).encodings)
    ]


def _group_rows(
    file: Any, group: int, columns: list[str], row: int, wanted: range
) -> Iterator[tuple[int, Record | RecordError]]:
    """Yields the rows ``wanted`` of a row group whose first row is ``row``, from 0."""
    import pyarrow

    metadata = file.metadata.row_group(group)
    chunks = [metadata.column(i) for i in range(metadata.num_columns)]
    try:
        # A billion equal values are a few bytes of the file, and Arrow reads them without a limit.
        for chunk in (one for one in chunks if one.path_in_schema in columns):
            sizes = {"values": chunk.num_values, "bytes": chunk.total_uncompressed_size}
            for unit, size in sizes.items():
                n_rows = 1 if size > EQUAL * chunk.total_compressed_size else metadata.num_rows
                LIMITS.check(**{unit: size // max(1, n_rows)})
        for batch in file.iter_batches(
            BATCH_ROWS, row_groups=[group], columns=columns, use_threads=False
        ):
            for i in range(batch.num_rows):
                if row in wanted:
                    yield row + 1, _record(batch.slice(i, 1))
                row += 1
            if row >= wanted.stop:
                return
        reason = RecordError(f"row group {group} of the parquet file has too few rows: copy it")
    except RecordError as error:
        reason = error
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        text = " ".join(str(error).split())
        reason = RecordError(f"row group {group} of the parquet file is damaged: {text}")
    yield from ((left + 1, reason) for left in wanted if left >= row)


def _record(row: Any) -> Record | RecordError:
    import pyarrow

    try:
        parts = [part for column in row.columns for part in _parts(column)]
        LIMITS.check(values=sum(map(len, parts)))
        LIMITS.check(bytes=sum(map(_n_bytes, parts)))
        if not any("list_view" in str(kind) for kind in row.schema.types):  # cast to other values
            row = row.take(pyarrow.array([0]))  # a cast expands the other rows of the batch, too
            row = row.cast(pyarrow.schema([(one.name, _json_type(one.type)) for one in row.schema]))
        record = row.to_pylist()[0]
    except RecordError as error:
        return error
    except UnicodeDecodeError:
        return RecordError("the row contains text that is not UTF-8")
    except (ValueError, ArithmeticError, LookupError, pyarrow.ArrowException) as error:
        return RecordError(f"the row cannot be read: {' '.join(str(error).split())}")
    return {name: _json_value(value) for name, value in record.items()}


def _json_type(kind: Any) -> Any:
    """Returns the type of the same values with texts for bytes, dictionaries and views."""
    import pyarrow
    from pyarrow import types

    if types.is_struct(kind):
        return pyarrow.struct([field.with_type(_json_type(field.type)) for field in kind])
    if hasattr(kind, "value_field") and not types.is_map(kind):
        return pyarrow.list_(_json_type(kind.value_type))
    kind = kind.value_type if types.is_dictionary(kind) else kind
    return pyarrow.string() if str(kind) in BYTES_AND_VIEWS else kind


def _json_value(value: Any) -> Any:
    """Returns a value of a column as it is in JSON: a UUID is a text, a whole decimal an integer.

    >>> [_json_value(value) for value in (UUID(int=7), Decimal("7.00"), Decimal(1 << 64))]
    ['00000000-0000-0000-0000-000000000007', 7, '18446744073709551616']
    """
    is_whole = isinstance(value, Decimal) and value == int(value)
    return same_id(int(value)) if is_whole else str(value) if isinstance(value, UUID) else value


def _parts(array: Any) -> Iterator[Any]:
    """Yields an array, and those in its lists and structs."""
    yield array
    below = array.flatten() if hasattr(array, "flatten") else []
    for one in below if isinstance(below, list) else [below]:
        yield from _parts(one)


def _n_bytes(array: Any) -> int:
    """Returns the bytes of an array without those in it; a text counts as often as it occurs."""
    from pyarrow import DictionaryArray, compute

    if isinstance(array, DictionaryArray):
        lengths = compute.binary_length(array.dictionary).take(array.indices)
        return compute.sum(lengths).as_py() or 0
    return 0 if hasattr(array, "flatten") else array.nbytes


@contextlib.contextmanager
def _open(path: str, **options: Any) -> Iterator[Any]:
    import pyarrow
    from pyarrow.parquet import ParquetFile

    damaged = f"{path}: the parquet file is cut off or damaged (%s); copy it again"
    try:
        file = ParquetFile(path, pre_buffer=False, buffer_size=BUFFER_BYTES, **options)
    except (pyarrow.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno:
            raise
        raise ValueError(damaged % error) from error
    with file:
        total, groups = file.metadata.num_rows, range(file.num_row_groups)
        counts = [file.metadata.row_group(i).num_rows for i in groups]
        if min(counts, default=0) < 0 or sum(counts) != total:
            raise ValueError(damaged % f"{sum(counts)} rows in its row groups, expected {total}")
        yield file


def _columns(path: str, file: Any, page: str | None = None) -> list[str]:
    """Returns the paths of the columns to read; raises ``ValueError`` where one is absent."""
    paths = [file.schema.column(i).path for i in range(len(file.schema))]
    names = {path: _LIST_LEVELS.sub("", path) for path in paths}
    missing, wanted = [name for name in REQUIRED if name not in names.values()], {*COLUMNS}
    if missing and questions.QUESTION in names.values():
        wanted = {*questions.COLUMNS, *ANSWERS, page or questions.PAGE}
        whole = {one for one in wanted if f"{one}.text" not in wanted.intersection(names.values())}
        wanted |= {name for name in names.values() if name.partition(".")[0] in whole}
    elif missing:
        found = f"{path}: found the columns {listed(file.schema_arrow.names)}"
        expected = "give Hugging Face's natural_questions, or questions in a column question"
        raise ValueError(f"{found}, and no column {' or '.join(missing)}; {expected}")
    columns = sorted(path for path, name in names.items() if name in wanted)
    if repeated := [column for column in columns if paths.count(column) > 1]:
        raise ValueError(f"{path}: found two columns {repeated[0]!r}, expected one")
    return columns
