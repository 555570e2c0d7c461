"""The questions of a command: found, checked and digested once, then read with their pages.

A record is an ``Example`` or a ``DeadLetter`` with the reason, also one with the id of an earlier
record, so that every record is accounted for.
"""

import contextlib
import hashlib
import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from nq.errors import ChangedError, Error
from nq.formats import inputs, lines
from nq.formats.fields import RecordError
from nq.formats.input_files import (
    CHANGED,
    LOCAL,
    Files,
    Patterns,
    is_stream,
    matching_files,
    shown,
    spooled,
)
from nq.formats.own_data import PageFolder, list_pages
from nq.records import DeadLetter, Example, ExampleId, ExampleKey, Source
from nq.storage import sha256

log = logging.getLogger(__name__)

DecodedRecord = tuple[Source, Example | DeadLetter]
OTHER = "{} is not what was read before: give that with {}"
START: ExampleKey = (0, 0)
"""The place before the first record."""


class Ids:
    """Finds records whose id occurred before; only the first one is answered."""

    def __init__(self, known: Iterable[ExampleId] = ()) -> None:
        self._known = set(known)

    def repeated(self, source: Source, key: ExampleId, question: str) -> DeadLetter | None:
        """Returns the dead letter of a record with the id of an earlier one."""
        if key not in self._known:
            self._known.add(key)
            return None
        reason = f"example_id {key} occurs twice; the first record is used"
        return DeadLetter(source, reason, question[: inputs.EXCERPT_CHARS])


@dataclass(frozen=True, eq=False)
class Questions:
    """The questions in files, in order.

    Args:
        files: paths, or URIs that ``system`` reads.
        pages: the pages that questions name in a field.
        limit: the largest number of records to read in all.
    """

    files: tuple[str, ...]
    pages: PageFolder | None = None
    limit: int | None = None
    system: Files = LOCAL
    _first: list[DecodedRecord] = field(default_factory=list, repr=False)

    @classmethod
    @contextlib.contextmanager
    def open(
        cls,
        patterns: Patterns,
        pages: PageFolder | str | Path | None = None,
        limit: int | None = None,
        files: Files = LOCAL,
    ) -> Iterator[Self]:
        """Finds files of questions, with copies of streams inside the block, and checks them.

        Raises:
            FileNotFoundError: a pattern matches nothing.
            ValueError: a file can hold no records.
            Error: none of the records is good.
        """
        with files.found(patterns) as paths:
            found = cls(tuple(paths), page_folder(pages), limit, files)
            found._check()
            yield found

    def _check(self) -> None:
        """Checks all files, those that the limit reaches to the end, and that a record is good."""
        rest = self.limit
        for path in self.files:
            with self.system.local_copy(path) as copy:
                try:
                    inputs.check(copy, to_end=rest != 0)
                    if rest:
                        rest -= inputs.count_records(copy, rest)
                except ValueError as error:
                    raise ValueError(str(error).replace(copy, shown(path))) from error
        if self.first(1):
            return
        if not self._first:
            names = ", ".join(map(shown, self.files))
            raise Error(f"there are no records in {names}: give a file with at least one")
        (source, letter), count = self._first[0], len(self._first)
        assert isinstance(letter, DeadLetter)
        what = "the only record is bad" if count == 1 else f"all {count} records are bad; the first"
        raise Error(f"{what}: {source.path}, line {source.line}: {letter.reason}")

    def first(self, n: int) -> list[Example]:
        """Returns the first good records; those that it reads are not decoded again."""
        good = [item for _, item in self._first if isinstance(item, Example)]
        last = self._first[-1][0] if self._first else None
        place = START if last is None else last.key
        rest = self.behind(place, [example.example_id for example in good])
        while len(good) < n and (record := next(rest, None)):
            self._first.append(record)
            if isinstance(record[1], Example):
                good.append(record[1])
        return good[:n]

    def __iter__(self) -> Iterator[DecodedRecord]:
        return self.behind(START)

    def behind(self, place: ExampleKey, ids: Iterable[ExampleId] = ()) -> Iterator[DecodedRecord]:
        """Yields the records behind a place (file number and line), which follow these ids."""
        decoded = {source.key: item for source, item in self._first}
        known = Ids(ids)
        for source, row in itertools.islice(self._rows(), self.limit):
            if source.key <= place:
                continue
            item = decoded.get(source.key) or inputs.decode_row(source, row, self.pages)
            if isinstance(item, Example):
                item = known.repeated(source, item.example_id, item.question) or item
            yield source, item

    def _rows(self) -> Iterator[tuple[Source, lines.Row]]:
        column = self.pages.column if self.pages else None
        for number, path in enumerate(self.files):
            with self.system.local_copy(path) as copy:
                for line, row in inputs.rows(copy, page=column):
                    yield Source(number, shown(path), line), row

    def examples(self) -> Iterator[Example]:
        return (item for _, item in self if isinstance(item, Example))

    @cached_property
    def key(self) -> dict[str, Any]:
        """What tells these questions from others, as JSON values: SHA-256 of files and pages."""
        digests = ((shown(Path(path).name), self.system.digest(path)) for path in self.files)
        values: dict[str, Any] = {
            "inputs": [{"name": name, "sha256": digest} for name, digest in digests],
            "limit": self.limit,
        }
        if self.pages is not None:
            values["pages"] = {
                "column": self.pages.column,
                "sha256": _pages_sha256(self.pages),
            }
        return values

    def check_same(self, key: Mapping[str, Any] | None = None) -> None:
        """Raises ``Error`` if files or pages are not those of a ``key``, by default of this one.

        Names and the limit are not compared.
        """
        changed, key = (CHANGED, self.key) if key is None else (OTHER, key)
        if len(key["inputs"]) != len(self.files):
            raise Error(f"found {len(self.files)} data files, expected {len(key['inputs'])}")
        for path, file in zip(self.files, key["inputs"], strict=True):
            if self.system.digest(path) != file["sha256"]:
                raise ChangedError(changed.format(path, "--data"))
        if "pages" in key:
            if self.pages is None:
                raise Error("the questions name pages: give their folder")
            if _pages_sha256(self.pages) != key["pages"]["sha256"]:
                raise ChangedError(changed.format(f"a page in {self.pages.folder}", "--pages"))

    @property
    def paths(self) -> tuple[str, ...]:
        pages = self.pages.files if self.pages else ()
        return (*self.files, *pages)


def _pages_sha256(pages: PageFolder) -> str:
    total = hashlib.sha256()
    for path in pages.files:
        name = shown(str(Path(path).relative_to(pages.folder)))
        total.update(f"{name}\0{sha256(path)}\n".encode())
    return total.hexdigest()


def page_folder(pages: PageFolder | str | Path | None) -> PageFolder | None:
    """Lists the pages of a folder; ``None`` and a ``PageFolder`` are returned unchanged."""
    return pages if isinstance(pages, PageFolder | None) else list_pages(pages)


def mention_unnamed_pages(*several: Questions) -> None:
    """Logs a warning if no question names some of the pages; reads the questions only."""
    pages = several[0].pages
    named = set[str]()
    if pages is None:
        return
    for _, row in itertools.chain.from_iterable(one._rows() for one in several):
        with contextlib.suppress(RecordError):
            named.add(pages.path(lines.parsed(row)))
    if unnamed := [path for path in pages.files if path not in named]:
        counts = len(unnamed), len(pages.files)
        log.warning(
            "no question names %d of the %d pages, such as %s",
            *counts,
            unnamed[0],
        )


def read_examples(
    patterns: Patterns,
    *,
    skip_bad: bool = False,
    pages: PageFolder | str | Path | None = None,
) -> Iterator[Example]:
    """Reads the examples of input files, in order.

    Args:
        patterns: Files, globs or folders of shards, in any dialect: NQ v1.0, simplified NQ, TyDi
            QA (jsonl), Hugging Face's natural_questions (jsonl or parquet), SQuAD,
            MRQA, or questions with a context or with the name of a page (jsonl or CSV). ``-`` is
            standard input.
        skip_bad: Whether to log a warning for a bad record and continue with the next.
        pages: The folder of the pages that questions name in their field ``page``.

    Returns:
        An iterator that reads the files as it is consumed and raises ``RecordError``, with file,
        line and reason, at a bad record unless ``skip_bad`` is set.

    Raises:
        FileNotFoundError: A pattern matches nothing.
        ValueError: A pattern is not a path, or a file can hold no records.

    >>> from nq.bundle import bundled_sample
    >>> next(read_examples(bundled_sample())).question
    'when did apollo 11 land on the moon'
    """
    files = matching_files(patterns)
    for path in files:
        if not is_stream(path):
            inputs.check(path)
    return _good_examples(files, skip_bad, page_folder(pages))


def _good_examples(
    files: Sequence[str], skip_bad: bool, pages: PageFolder | None
) -> Iterator[Example]:
    n_skipped = 0
    with spooled(files) as paths:
        for path in paths:
            if path not in files:
                inputs.check(path)
        for source, item in Questions(tuple(paths), pages):
            if isinstance(item, Example):
                yield item
                continue
            problem = f"{source.path}, line {source.line}: {item.reason}"
            if not skip_bad:
                raise RecordError(f"{problem}; correct the record, or skip it with skip_bad=True")
            log.warning("skipped a record: %s", problem)
            n_skipped += 1
    if n_skipped:
        log.warning("skipped %d bad records in all", n_skipped)
