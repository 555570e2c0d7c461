"""The dialect of a question that names its page, a file of text or HTML in a folder.

    {"id": 7, "question": "When was it built?", "page": "tower.html", "answer": "1889"}

``nq --pages FOLDER`` gives the folder. A page is named by its path in the folder, or by that
without its suffix. A folder is listed once: no name leads out of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from nq.errors import Error
from nq.formats import passages
from nq.formats.documents import HTML_SUFFIXES, TEXT_SUFFIXES, decode_page
from nq.formats.fields import Record, RecordError, get
from nq.formats.limits import LIMITS, RecordLimits
from nq.records import Example, Page

NAME = "question and page"
MARK = passages.QUESTION
COLUMN = "page"
SUFFIXES = (*TEXT_SUFFIXES, *HTML_SUFFIXES, ".md")
MAX_SHOWN_CHARS = 80


@dataclass(frozen=True)
class PageFolder:
    """The pages in a folder, and the field of a record that names one; see ``list_pages``.

    Args:
        folder: path of the folder.
        column: name of the field.
        files: path of each page in the folder, sorted.
    """

    folder: str
    column: str
    files: tuple[str, ...]

    def path(self, record: Record) -> str:
        """Returns the path of the page that a record names.

        Raises:
            RecordError: It names none, or none in the folder, or one of several.
        """
        name = str(get(record, self.column, str, int)).strip()
        paths = self._named.get(name.removeprefix("./"), ())
        if len(paths) == 1:
            return paths[0]
        if not name:
            raise RecordError(f"field {self.column!r} is empty: expected the name of a page")
        shown = f"page {name[:MAX_SHOWN_CHARS]!r}"
        if paths:
            others = " or ".join(Path(path).name for path in paths)
            raise RecordError(f"{shown} may be {others}: give the name with its suffix")
        raise RecordError(f"{shown} is none of the {len(self.files)} pages in {self.folder}")

    @cached_property
    def _named(self) -> Mapping[str, Sequence[str]]:
        """The paths by their names, with and without a suffix."""
        named: dict[str, list[str]] = {}
        for path in self.files:
            relative = Path(path).relative_to(self.folder)
            for name in (relative, relative.with_suffix("")):
                named.setdefault(name.as_posix(), []).append(path)
        return named


def list_pages(folder: str | Path, column: str | None = None) -> PageFolder:
    """Returns the pages of a folder and of the folders in it.

    Args:
        folder: the folder.
        column: the field of a record that names its page; by default ``page``.

    Raises:
        Error: It is no folder, or has no pages.
    """
    folder = str(folder)
    if not Path(folder).is_dir():
        raise Error(f"{folder} is no folder: give the folder of the pages with --pages")
    files = sorted(
        str(path)
        for path in Path(folder).rglob("*")
        if path.name.lower().endswith(SUFFIXES) and path.name[0] != "." and path.is_file()
    )
    if not files:
        raise Error(f"{folder} has no pages: expected files that end in {', '.join(SUFFIXES)}")
    return PageFolder(folder, column or COLUMN, tuple(files))


@lru_cache(maxsize=1)
def _page(path: str, modified_ns: int, max_bytes: int) -> Page:
    """Returns a page; the last one is kept, because questions about a page are neighbours."""
    try:
        with open(path, "rb") as file:
            return decode_page(file.read(max_bytes + 1), path)
    except (OSError, ValueError) as error:
        raise RecordError(" ".join(str(error).split())) from error


def decode(
    record: Record, limits: RecordLimits = LIMITS, pages: PageFolder | None = None
) -> Example:
    """Returns the example in a record.

    Args:
        record: the record.
        limits: how large a page may be.
        pages: the folder of its page.

    Raises:
        RecordError: A field is missing or of the wrong type, or there is no such page.
    """
    if pages is None:
        raise RecordError(
            f"the question has no page: expected a field {passages.MARK!r}, or --pages FOLDER and "
            f"a field {COLUMN!r} that names a file in it"
        )
    path = pages.path(record)
    page = _page(path, Path(path).stat().st_mtime_ns, limits.bytes)
    return passages.with_page(record, page, path, limits)
