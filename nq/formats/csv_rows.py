"""CSV files: rows become records by the names of the columns.

The separator is a comma, semicolon, tab or bar, whichever fits the first row. Names of columns that
nq knows are read in any case. A file is read row by row; a row may have line ends between quotes.
"""

import contextlib
import csv
import io
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import IO, TextIO

from nq.formats import questions, text_gold
from nq.formats.fields import LIMITS, Record, RecordError, listed
from nq.formats.lines import NOT_UTF8, open_bytes

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
COLUMNS = {
    *(questions.QUESTION, questions.CONTEXT, questions.PAGE, "title"),
    *(*questions.ID_FIELDS, *text_gold.FIELDS, "answer_start", text_gold.IMPOSSIBLE),
}
SEPARATORS = ",;\t|"


def is_csv(path: str, head: bytes) -> bool:
    """Returns whether a file is CSV, by its first row or its name."""
    if head.lstrip()[:1] in (b"{", b"[", b"<", b""):
        return False
    names, _ = _header(head.decode("utf-8", "replace").lstrip().splitlines()[0])
    return (questions.QUESTION in names and len(names) > 1) or path.lower().endswith(SUFFIXES)


def columns(path: str) -> list[str]:
    """Returns the names of the columns."""
    with open_bytes(path) as file, _text(file) as text:
        return _header(text.readline(LIMITS.bytes + 1))[0]


def check_csv(path: str) -> None:
    """Raises ``ValueError`` unless there is one column with the questions, and no name twice."""
    names = columns(path)
    expected = "expected 'question' and 'context', or 'question' and, with --pages FOLDER, 'page'"
    if questions.QUESTION not in names:
        raise ValueError(f"{path}: found the columns {listed(names)}; {expected}")
    repeated = next((name for name, n in Counter(names).items() if n > 1), None)
    if repeated is not None:
        raise ValueError(f"{path}: found two columns {repeated!r}; {expected}, each once")


def rows(path: str) -> Iterator[tuple[int, Record | RecordError]]:
    """Yields the rows of a file with the numbers of their first lines."""
    csv.field_size_limit(LIMITS.bytes)  # by default 128 KiB; a quote may not be closed
    first, size = 1, 0

    def lines(next_line: Callable[[], str]) -> Iterator[str]:
        nonlocal size
        for line in iter(next_line, ""):
            size += len(line)
            if size > LIMITS.bytes:
                raise RecordError(f"not CSV: a row of over {LIMITS.bytes} bytes; check the quotes")
            yield line

    try:
        with open_bytes(path) as file, _text(file) as text:
            next_line = partial(text.readline, LIMITS.bytes + 1)
            names, separator = _header(next_line())
            reader = csv.reader(lines(next_line), delimiter=separator, strict=True)
            while True:
                first, size = reader.line_num + 2, 0  # the header is a line, too
                try:
                    cells = next(reader, None)
                except csv.Error as error:
                    yield first, RecordError(f"not CSV: {error}; check the quotes")
                    continue
                if cells is None:
                    return
                if any(cell.strip() for cell in cells):
                    yield first, _record(names, cells)
    except RecordError as error:
        yield first, error


def _record(names: list[str], cells: list[str]) -> Record | RecordError:
    if len(cells) != len(names):
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
    return dict(zip(names, cells, strict=True))


def _text(file: IO[bytes]) -> TextIO:
    return io.TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline="")


def _header(first: str) -> tuple[list[str], str]:
    """Returns the names of the columns, and the separator.

    The separator is the one that gives most columns that nq knows, else most columns.

    >>> _header("ID; Question;Context (a, b, c, d)")
    (['id', 'question', 'Context (a, b, c, d)'], ';')
    """
    names = {separator: list[str]() for separator in SEPARATORS}
    for separator in SEPARATORS:
        with contextlib.suppress(csv.Error, StopIteration):
            stripped = map(str.strip, next(csv.reader([first], delimiter=separator)))
            names[separator] = [s.lower() if s.lower() in COLUMNS else s for s in stripped]
    best = max(SEPARATORS, key=lambda s: (len({*names[s]} & COLUMNS), len(names[s])))
    return names[best], best
