"""CSV files: rows become records by the names of the columns.

The separator is a comma, semicolon, tab or bar, whichever fits the first row. Names of columns that
nq knows are read in any case. A file is read row by row; a row may have line ends between quotes.
"""

import contextlib
import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice, tee
from typing import IO, TextIO

from nq.formats import own_data
from nq.formats.fields import LIMITS, Record, RecordError
from nq.formats.input_files import COMPRESSED
from nq.formats.lines import NOT_UTF8, check_whole, open_bytes
from nq.text import listed

SUFFIXES = tuple(f"{kind}{end}" for kind in (".csv", ".tsv") for end in COMPRESSED)
SEPARATORS = ",;\t|"
HEADER_LINES = 100


def is_csv(path: str, head: bytes) -> bool:
    """Returns whether a file is CSV, by its first row or its name."""
    start = head.lstrip()
    if start[:1] in (b"{", b"[", b"<", b"") or 4 * start.count(b"\0") > len(start):  # of UTF-16
        return False
    names, *_ = _header(io.StringIO(head.decode("utf-8", "replace"), newline=""))
    return (own_data.QUESTION in names and len(names) > 1) or path.lower().endswith(SUFFIXES)


def columns(path: str) -> list[str]:
    """Returns the names of the columns."""
    check_whole(path)
    with open_bytes(path) as file, _text(file) as text:
        return _header(iter(partial(text.readline, LIMITS.bytes + 1), ""))[0]


def check_csv(path: str) -> None:
    """Raises ``ValueError`` unless there is a column ``question``, and no known one twice."""
    names = columns(path)
    expected = "expected 'question' and 'context', or 'question' and, with --pages FOLDER, 'page'"
    if own_data.QUESTION not in names:
        raise ValueError(f"{path}: found the columns {listed(names)}; {expected}")
    for name in own_data.COLUMNS:
        if names.count(name) > 1:
            raise ValueError(f"{path}: found two columns {name!r}; {expected}, each once")


def rows(path: str) -> Iterator[tuple[int, Record | RecordError]]:
    """Yields the rows of a file with the numbers of their first lines."""
    csv.field_size_limit(LIMITS.bytes)  # by default 128 KiB; a quote may not be closed
    first = 1
    size = 0

    def lines(text: TextIO) -> Iterator[str]:
        nonlocal size
        while line := text.readline(LIMITS.bytes + 1):
            size += len(line)
            if size > LIMITS.bytes:
                raise RecordError(f"not CSV: a row of over {LIMITS.bytes} bytes; check the quotes")
            yield line

    try:
        with open_bytes(path) as file, _text(file) as text:
            names, separator, several = _header(lines(text))
            header = csv.reader(several, delimiter=separator)
            next(filter(any, header), None)
            counts = Counter(names)
            names = [name if counts[name] == 1 else "" for name in names]
            reader = csv.reader(several, delimiter=separator, strict=True)
            while True:
                first = header.line_num + reader.line_num + 1
                size = 0
                try:
                    cells = next(reader, None)
                except csv.Error as error:
                    yield (
                        first,
                        RecordError(f"not CSV: {error}; check the quotes"),
                    )
                    continue
                if cells is None:
                    return
                if any(cell.strip() for cell in cells):
                    yield first, _record(names, cells)
    except RecordError as error:
        yield first, error


def _record(names: list[str], cells: list[str]) -> Record | RecordError:
    if len(cells) > len(names) or any(names[len(cells) :]):
        return RecordError(
            f"found {len(cells)} cells, expected {len(names)} as in the first row; put a "
            "cell with a separator or a quote between quotes"
        )
    try:
        LIMITS.check(bytes=len("".join([*names, *cells]).encode()))
    except UnicodeEncodeError:
        return RecordError(NOT_UTF8)
    except RecordError as error:
        return error
    return dict(zip(names, cells, strict=False))


def _text(file: IO[bytes]) -> TextIO:
    return io.TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline="")


def _header(several: Iterable[str]) -> tuple[list[str], str, Iterator[str]]:
    """Returns the names of the columns, the separator, and all lines again.

    The separator is the one that gives most columns that nq knows, else most columns.

    >>> _header(["ID; Question;Context (a, b, c, d)"])[:2]
    (['id', 'question', 'Context (a, b, c, d)'], ';')
    """
    names = {separator: list[str]() for separator in SEPARATORS}
    rest, *copies = tee(several, 1 + len(SEPARATORS))
    for separator, copy in zip(SEPARATORS, copies, strict=True):
        rows = csv.reader(islice(copy, HEADER_LINES), delimiter=separator)
        with contextlib.suppress(csv.Error, StopIteration):
            cells = [" ".join(map(str.strip, c.splitlines())) for c in next(filter(any, rows))]
            names[separator] = [c.lower() if c.lower() in own_data.COLUMNS else c for c in cells]

    def n_columns(separator: str) -> tuple[int, int]:
        columns = names[separator]
        return len(own_data.COLUMNS.intersection(columns)), len(columns)

    best = max(names, key=n_columns)
    return names[best], best, rest
