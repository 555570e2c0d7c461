"""Parquet files of Hugging Face's ``natural_questions``, or of questions: their rows as records.

Columns that nq does not need are not read: of the former they are more than half of a file. Others,
such as SQuAD and MRQA, have a column ``question``. Levels of lists do not count in the names of
columns: ``document.tokens.token`` is the same column in a struct of lists and in a list of structs.
"""

import contextlib
import re
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from uuid import UUID

from nq.formats import own_data, text_gold
from nq.formats.fields import LIMITS, Record, RecordError, same_id
from nq.text import listed

MAGIC = b"PAR1"
BATCH_ROWS = 8
BUFFER_BYTES = 1 << 20
EQUAL = 1000
"""Values, or bytes, for each compressed byte, beyond which most are equal and may be in one row."""
REQUIRED = (
    "id",
    "question.text",
    "document.tokens.token",
    "document.tokens.is_html",
    "long_answer_candidates.start_token",
    "long_answer_candidates.end_token",
)
COLUMNS = (
    *REQUIRED,
    "document.title",
    "document.tokens.start_byte",
    "document.tokens.end_byte",
    "long_answer_candidates.top_level",
    "annotations.yes_no_answer",
    "annotations.long_answer.start_token",
    "annotations.long_answer.end_token",
    "annotations.short_answers.start_token",
    "annotations.short_answers.end_token",
    "annotations.long_answer.candidate_index",
)
ANSWER_PARTS = ("", "text", *text_gold.PLACES, "char_spans")
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
    path: str,
    share: tuple[int, int] = (0, 1),
    limit: int | None = None,
    page: str | None = None,
) -> Iterator[tuple[int, Record | RecordError]]:
    """Yields rows of a file, as ``nq.formats.inputs.rows`` does; others are not decoded."""
    worker, workers = share
    with _open(path) as plain:
        columns = _columns(path, plain, page)
        leaves = range(len(plain.schema))
        schema = plain.read_row_groups([], columns=columns).schema
        groups = [plain.metadata.row_group(i) for i in range(plain.num_row_groups)]
        encodings = [str([group.column(i).encodings for group in groups]) for i in leaves]
    dictionaries = [i for i in leaves if "DELTA" not in encodings[i]]
    with _open(path, read_dictionary=dictionaries) as file:
        last, first = len(range(file.metadata.num_rows)[:limit]), 0
        for group in range(file.num_row_groups):
            end = first + file.metadata.row_group(group).num_rows
            numbers = range(first + (worker - first) % workers, min(end, last), workers)
            if numbers:
                yield from _group_rows(file, group, schema, columns, first, numbers)
            first = end


def _group_rows(
    file: Any,
    group: int,
    schema: Any,
    columns: list[str],
    row: int,
    wanted: range,
) -> Iterator[tuple[int, Record | RecordError]]:
    """Yields the rows ``wanted`` of a row group whose first row is ``row``, from 0."""
    import pyarrow

    metadata = file.metadata.row_group(group)
    chunks = [metadata.column(i) for i in range(metadata.num_columns)]
    try:
        # A billion equal values are a few bytes of the file, and Arrow reads them without a limit.
        for chunk in (one for one in chunks if one.path_in_schema in columns):
            sizes = {
                "values": chunk.num_values,
                "bytes": chunk.total_uncompressed_size,
            }
            for unit, size in sizes.items():
                n_rows = 1 if size > EQUAL * chunk.total_compressed_size else metadata.num_rows
                LIMITS.check(**{unit: size // max(1, n_rows)})
        for batch in file.iter_batches(
            BATCH_ROWS,
            row_groups=[group],
            columns=columns,
            use_threads=False,
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
        with contextlib.suppress(pyarrow.ArrowNotImplementedError):  # of views; it is only faster
            own = own.cast(schema)
        return {name: _json_value(value) for name, value in own.to_pylist()[0].items()}
    except RecordError as error:
        return error
    except UnicodeDecodeError:
        return RecordError("the row contains text that is not UTF-8")
    except (
        ValueError,
        ArithmeticError,
        LookupError,
        pyarrow.ArrowException,
    ) as error:
        return RecordError(f"the row cannot be read: {' '.join(str(error).split())}")


def _json_value(value: Any) -> Any:
    """Returns a value of a column as in JSON: bytes and UUIDs are texts, 7.00 is an integer."""
    if isinstance(value, Decimal) and value == int(value):
        return same_id(int(value))
    text = value.decode() if isinstance(value, bytes) else value
    return str(text) if isinstance(text, UUID) else text


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
        total = file.metadata.num_rows
        groups = range(file.num_row_groups)
        counts = [file.metadata.row_group(i).num_rows for i in groups]
        if min(counts, default=0) < 0 or sum(counts) != total:
            raise ValueError(damaged % f"{sum(counts)} rows in its row groups, expected {total}")
        yield file


def _columns(path: str, file: Any, page: str | None = None) -> list[str]:
    """Returns the paths of the columns to read; raises ``ValueError`` where one is absent."""
    paths = [file.schema.column(i).path for i in range(len(file.schema))]
    names = {path: _LIST_LEVELS.sub("", path) for path in paths}
    known = {*names.values()}
    missing = [name for name in REQUIRED if name not in known]
    if missing and own_data.QUESTION not in known:
        found = f"{path}: found the columns {listed(file.schema_arrow.names)}"
        expected = "give Hugging Face's natural_questions, or questions in a column question"
        raise ValueError(f"{found}, and no column {' or '.join(missing)}; {expected}")

    def is_needed(name: str) -> bool:
        first, below, *_ = f"{name}..".split(".")
        is_part = below in ANSWER_PARTS or f"{first}.text" not in known
        return first in {*own_data.COLUMNS, page} and is_part if missing else name in COLUMNS

    columns = sorted(path for path, name in names.items() if is_needed(name))
    counts = Counter(paths)
    if repeated := [column for column in columns if counts[column] > 1]:
        raise ValueError(f"{path}: found two columns {repeated[0]!r}, expected one")
    return columns
