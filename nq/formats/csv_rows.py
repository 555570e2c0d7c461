"""CSV files: rows become records by the names of the columns.

The separator is a comma, semicolon, tab or bar, whichever fits the first row. Names of columns that
nq knows are read in any case. A file is read row by row; a row may have line ends between quotes.
"""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Iterator, Sequence
from typing import TextIO

from nq.formats import passages, questions, text_gold
from nq.formats.fields import Record, RecordError
from nq.formats.kinds import binary_kind
from nq.formats.limits import LIMITS, RecordLimits
from nq.formats.lines import BOM, DAMAGED, open_bytes, share_of

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
COLUMNS = (
    *(passages.QUESTION, passages.MARK, questions.COLUMN, "title"),
    *(*passages.ID_FIELDS, *text_gold.FIELDS, "answer_start", text_gold.IMPOSSIBLE),
)
SEPARATORS = ",;\t|"
MAX_SHOWN_NAMES = 8
_EXCEL_SEPARATOR = "sep="
csv.field_size_limit(max(csv.field_size_limit(), LIMITS.bytes + 1))  # pages are larger than 128 KiB


def matches(path: str, head: bytes) -> bool:
    """Returns whether a file that begins with ``head`` is CSV: by its first row, or its name."""
    if b"\0" in head or binary_kind(head) or head.lstrip()[:1] in (b"{", b"[", b"<", b""):
        return False
    first = head.decode("utf-8", "replace").lstrip().splitlines()[0]
    is_excels = first.lower().startswith(_EXCEL_SEPARATOR)
    cells = _header(first, _separator(first))
    return is_excels or path.lower().endswith(SUFFIXES) or (
        passages.QUESTION in cells and len(cells) > 1
    )  # fmt: skip


def has_passages(path: str) -> bool:
    """Returns whether a file has columns for questions and contexts."""
    with _open(path, LIMITS) as rows_of_file:
        return {passages.QUESTION, passages.MARK} <= set(rows_of_file.names)


def check(path: str) -> None:
    """Checks the names of the columns.

    Raises:
        ValueError: There is no column with the questions, or two columns have the same name.
        OSError: The file cannot be read.
    """
    with _open(path, LIMITS) as rows_of_file:
        names = rows_of_file.names
    shown = ", ".join([*names[:MAX_SHOWN_NAMES], *["…"] * (len(names) > MAX_SHOWN_NAMES)])
    expected = (
        f"expected {passages.QUESTION!r} and {passages.MARK!r}, or {passages.QUESTION!r} and, with "
        f"--pages FOLDER, {questions.COLUMN!r}"
    )
    if passages.QUESTION not in names:
        raise ValueError(f"{path}: found the columns {shown or '(none)'}; {expected}")
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise ValueError(f"{path}: found two columns {repeated!r}; {expected}, each once")


def rows(
    path: str,
    share: tuple[int, int] = (0, 1),
    limit: int | None = None,
    limits: RecordLimits = LIMITS,
) -> Iterator[tuple[int, Record | RecordError]]:
    """Yields the rows of a file with the numbers of their lines; see ``parquet.rows``."""
    with _open(path, limits) as rows_of_file:
        yield from share_of(rows_of_file, share, limit)


@contextlib.contextmanager
def _open(path: str, limits: RecordLimits) -> Iterator[_Rows]:
    with (
        open_bytes(path) as file,
        io.TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline="") as text,
    ):
        yield _Rows(text, limits)


class _Rows:
    """The rows below the header of an open file, with the number of each row's first line.

    Attributes:
        names: of the columns.
    """

    def __init__(self, text: TextIO, limits: RecordLimits) -> None:
        self._text, self._limits = text, limits
        self._row_chars = self._line = 0
        first = next(self._lines(), "")
        separator = _separator(first)
        if first.lower().startswith(_EXCEL_SEPARATOR):
            first = next(self._lines(), "")
        self.names = _header(first, separator)
        self._reader = csv.reader(self._lines(), delimiter=separator, strict=True)

    def _lines(self) -> Iterator[str]:
        """Yields the lines that are left, and counts them."""
        while line := self._text.readline(self._limits.bytes + 1):
            self._row_chars += len(line)
            self._limits.check(bytes=self._row_chars)
            self._line += 1
            yield line

    def __iter__(self) -> Iterator[tuple[int, Record | RecordError]]:
        while True:
            self._row_chars, first = 0, self._line + 1
            try:
                cells = next(self._reader, None)
            except csv.Error as error:
                yield first, RecordError(f"not CSV: {error}; check the quotes")
                continue
            except RecordError as error:
                yield first, RecordError(f"{error}; the rest is not read (is a quote not closed?)")
                return
            except DAMAGED as error:
                yield first, RecordError(f"the compressed file is cut off or damaged: {error}")
                return
            if cells is None:
                return
            if any(cell.strip() for cell in cells):
                yield first, self._record(cells)

    def _record(self, cells: Sequence[str]) -> Record | RecordError:
        if len(cells) != len(self.names):
            return RecordError(
                f"found {len(cells)} cells, expected {len(self.names)} as in the first row; put a "
                "cell with a separator or a quote between quotes"
            )
        try:
            "".join(cells).encode()
        except UnicodeEncodeError:
            return RecordError("not UTF-8; convert the file with iconv -t UTF-8")
        return dict(zip(self.names, cells, strict=True))


def _separator(first: str) -> str:
    """Returns the separator that gives most known columns, else most columns.

    >>> _separator("id;question;context (a, b, c, d)"), _separator("sep=|")
    (';', '|')
    """
    if first.lower().startswith(_EXCEL_SEPARATOR):
        return first[len(_EXCEL_SEPARATOR) :].rstrip("\r\n")[:1] or ","
    names = {separator: _header(first, separator) for separator in SEPARATORS}
    return max(SEPARATORS, key=lambda s: (len({*names[s]} & {*COLUMNS}), len(names[s])))


def _header(first: str, separator: str) -> list[str]:
    """Returns the names of the columns; those that nq knows in lower case.

    >>> _header(' Question ,"Context",Page no.', ",")
    ['question', 'context', 'Page no.']
    """
    try:
        cells = next(csv.reader([first], delimiter=separator), [])
    except csv.Error:
        return []
    names = [cell.strip().removeprefix(BOM.decode()).strip() for cell in cells]
    return [name.lower() if name.lower() in COLUMNS else name for name in names]
