"""Parquet files of Hugging Face's ``natural_questions``, or of questions: their rows as records.

Of the former only ``COLUMNS`` are read, since the HTML of a page is larger than the rest. Others,
such as SQuAD and MRQA, have a column ``question``; of their columns those with one value are read,
those with a list of such, and the answers. Levels of lists do not
count in their names: ``document.tokens.token`` is the same column in a struct of lists and in a
list of structs.
"""

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from nq.formats import text_gold
from nq.formats.fields import LIMITS, Record, RecordError, listed

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
QUESTION = "question"
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
    path: str, share: tuple[int, int] = (0, 1), limit: int | None = None
) -> Iterator[tuple[int, Record | RecordError]]:
    """Yields rows of a file, as ``nq.formats.containers.rows`` does; others are not decoded."""
    worker, workers = share
    with _open(path) as plain, _open(path, read_dictionary=range(len(plain.schema))) as file:
        columns, last = _columns(path, file), len(range(file.metadata.num_rows)[:limit])
        schema, first = plain.read_row_groups([], columns=columns).schema, 0
        for group in range(file.num_row_groups):
            end = first + file.metadata.row_group(group).num_rows
            numbers = range(first + (worker - first) % workers, min(end, last), workers)
            if numbers:
                yield from _group_rows(file, group, schema, columns, first, numbers)
            first = end


def _group_rows(
    file: Any, group: int, schema: Any, columns: list[str], row: int, wanted: range
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
                    yield row + 1, _record(batch.slice(i, 1), schema)
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


def _record(row: Any, schema: Any) -> Record | RecordError:
    import pyarrow

    try:
        parts = [part for column in row.columns for part in _parts(column)]
        LIMITS.check(values=sum(map(len, parts)))
        LIMITS.check(bytes=sum(map(_n_bytes, parts)))
        own = row.take(pyarrow.array([0]))  # a cast expands the other rows of the batch, too
        record: Record = own.cast(schema).to_pylist()[0]
    except RecordError as error:
        return error
    except UnicodeDecodeError:
        return RecordError("the row contains text that is not UTF-8")
    except (ValueError, OverflowError, pyarrow.ArrowException) as error:
        return RecordError(f"the row cannot be read: {' '.join(str(error).split())}")
    return record


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


def _columns(path: str, file: Any) -> list[str]:
    """Returns the paths of the columns to read; raises ``ValueError`` where one is absent."""
    paths = [file.schema.column(i).path for i in range(len(file.schema))]
    names = {path: _LIST_LEVELS.sub("", path) for path in paths}
    missing = [name for name in REQUIRED if name not in names.values()]
    if missing and QUESTION in names.values():
        answers = *text_gold.FIELDS, text_gold.DETECTED
        return sorted(
            path
            for path, name in names.items()
            if "." not in name or name.partition(".")[0] in answers
        )
    if missing:
        found = f"{path}: found the columns {listed(file.schema_arrow.names)}"
        expected = f"give Hugging Face's natural_questions, or questions in a column {QUESTION}"
        raise ValueError(f"{found}, and no column {' or '.join(missing)}; {expected}")
    return sorted(path for path, name in names.items() if name in COLUMNS)
