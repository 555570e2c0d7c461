"""Questions of a user's own, each with its context or with the name of its page.

    {"id": 7, "question": "When was it built?", "context": "It was built in 1889.",
     "answers": [{"text": "1889", "answer_start": 16}]}
    {"id": 7, "question": "When was it built?", "page": "tower.html", "answer": "1889"}

They are lines of jsonl, rows of CSV, and questions of SQuAD and MRQA. A context is a paragraph, or
a page whose paragraphs are separated by blank lines. A page is a file of text or HTML in the folder
of ``nq --pages FOLDER``, named by its path there, or by that without its suffix. A folder is listed
once: no name leads out of it. The gold is optional, see ``nq.formats.text_gold``.
"""

import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path

from nq.answers import Page
from nq.errors import Error
from nq.formats import fields, text_gold
from nq.formats.documents import SUFFIXES, page_from_text, read_document
from nq.formats.fields import Record, RecordError, get
from nq.records import Example
from nq.text import counted

QUESTION: str = "question"
CONTEXT: str = "context"
PAGE_FIELD: str = "page"
ID_FIELDS: tuple[str, ...] = ("id", "qid", "question_id", "example_id")
COLUMNS = {
    QUESTION,
    CONTEXT,
    PAGE_FIELD,
    "title",
    *ID_FIELDS,
    *text_gold.FIELDS,
    text_gold.DETECTED,
    *text_gold.PLACES,
    text_gold.IMPOSSIBLE,
}
"""The fields of a record, of which another may name the page."""
NO_ID = ""
"""Placeholder for the id of a record without one; ``read_records`` replaces it by FILE:LINE."""
MAX_SHOWN_CHARS = 80
TO_RETRIEVE = (
    "retrieve passages for it, as with Pyserini or DPR, and give the file with 'ctxs' or 'contexts'"
)
"""What to do with a question whose page is not in the data, as in NQ-open."""


@dataclass(frozen=True)
class PageFolder:
    """The pages in a folder, and the field of a record that names one."""

    folder: str
    column: str
    files: tuple[str, ...]

    def path(self, record: Record) -> str:
        """Returns the path of the one page in the folder that a record names."""
        name = str(get(record, self.column, str, int)).strip().removeprefix("./")
        paths = self._named.get(name) or self._named.get(unicodedata.normalize("NFC", name), ())
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
        """The paths by their names, with and without a suffix, also with composed letters."""
        named = defaultdict[str, list[str]](list)
        for path in self.files:
            relative = Path(path).relative_to(self.folder)
            for name in (relative, relative.with_suffix("")):
                named[name.as_posix()].append(path)
        composed = [(unicodedata.normalize("NFC", other), other) for other in named]
        for key, other in [pair for pair in composed if pair[0] not in named]:
            named[key] += named[other]
        return dict(named)


def list_pages(folder: str | Path, column: str | None = None) -> PageFolder:
    """Returns the pages in a folder; records name theirs in the field ``column``."""
    if not Path(folder).is_dir():
        raise Error(f"{folder} is no folder: give the folder of the pages with --pages")
    return PageFolder(str(folder), column or PAGE_FIELD, files_in(str(folder)))


def files_in(folder: str) -> tuple[str, ...]:
    """Returns the documents in a folder and in the folders in it, without hidden ones, sorted."""
    paths = [path for path in Path(folder).rglob("*") if path.is_file()]
    files = sorted(
        str(path)
        for path in paths
        if path.name.lower().endswith(SUFFIXES)
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )
    if not files:
        n = counted(len(paths), "other file")
        endings = ", ".join(SUFFIXES)
        raise Error(f"{folder} has no pages: found {n}, expected files that end in {endings}")
    return tuple(files)


def decode_context(record: Record) -> Example:
    """Returns the example in a record with a context."""
    text = get(record, CONTEXT, str)
    try:
        page = page_from_text(text, f"field {CONTEXT!r}")
    except ValueError as error:
        raise RecordError(str(error)) from error
    return example(record, page)


def decode_page_question(record: Record, pages: PageFolder | None = None) -> Example:
    """Returns the example in a record that names one of ``pages``."""
    if pages is None:
        expected = "a field 'context', or --pages FOLDER and a field 'page' that names a file in it"
        raise RecordError(f"the question has no page: expected {expected}; or {TO_RETRIEVE}")
    path = pages.path(record)
    return example(record, _page(path, Path(path).stat().st_mtime_ns))


@lru_cache(maxsize=1)
def _page(path: str, modified_ns: int) -> Page:
    """Returns a page; the last one is kept, because questions about a page are neighbours."""
    try:
        return read_document(path)
    except (OSError, ValueError, Error) as error:
        raise RecordError(" ".join(str(error).split())) from error


def example(record: Record, page: Page) -> Example:
    """Returns the example in a record about a page."""
    question = get(record, QUESTION, str)
    if not question.strip():
        raise RecordError(f"field {QUESTION!r} is empty")
    id_field = next(
        (field for field in ID_FIELDS if record.get(field) not in (None, "")),
        None,
    )
    without_gold = replace(
        page.with_question(question),
        example_id=NO_ID if id_field is None else fields.example_id(record, id_field),
        title=fields.optional_text(record, "title") or page.example.title,
    )
    return text_gold.with_gold(without_gold, record)
