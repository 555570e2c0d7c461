"""Input files as a whole: their examples in order, and checks before a command begins.

``nq.formats.input_files`` finds the files, ``nq.formats.decoding`` decodes their records.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from nq.errors import Error
from nq.formats import containers, lines, natural_questions, questions
from nq.formats.containers import Container
from nq.formats.decoding import DIALECTS, read_records
from nq.formats.fields import RecordError
from nq.formats.input_files import Patterns, matching_files
from nq.formats.questions import PageFolder
from nq.formats.streams import is_stream, shown, spooled
from nq.records import DeadLetter, Example, Source

log = logging.getLogger(__name__)


def read_examples(
    patterns: Patterns,
    *,
    skip_bad: bool = False,
    pages: PageFolder | str | Path | None = None,
) -> Iterator[Example]:
    """Reads the examples of input files, in order.

    Args:
        patterns: Files, globs or folders of shards, in any dialect: NQ v1.0, simplified NQ, TyDi
            QA (jsonl, plain or gzip), Hugging Face's natural_questions (jsonl or parquet), SQuAD,
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
    check_files([path for path in files if not is_stream(path)])
    return _good_examples(files, skip_bad, page_folder(pages))


def page_folder(pages: PageFolder | str | Path | None) -> PageFolder | None:
    """Returns the pages of a folder; ``None`` and pages that are listed already as they are."""
    return pages if isinstance(pages, PageFolder | None) else questions.list_pages(pages)


def _good_examples(
    files: Sequence[str], skip_bad: bool, pages: PageFolder | None
) -> Iterator[Example]:
    n_skipped = 0
    with spooled(files) as paths:
        check_files([path for path in paths if path not in files])
        records = (read_records(path, pages=pages) for path in paths)
        for source, item in itertools.chain.from_iterable(records):
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


def check_files(files: Sequence[str]) -> None:
    """Checks each file as ``nq.formats.containers.check`` does."""
    for path in files:
        containers.check(path)


def is_official(path: str) -> bool:
    """Returns whether a file has no record of another format than NQ v1.0 and simplified NQ.

    Its first record tells. It may be gold without the document, which only the official evaluation
    reads.
    """
    others = {*DIALECTS, questions.QUESTION} - {natural_questions.TOKENS, natural_questions.TEXT}
    is_lines = containers.container_of(path) is Container.LINES
    return is_lines and lines.first_record(path).keys().isdisjoint(others)


def check_records(
    files: Sequence[str],
    limit: int | None = None,
    pages: PageFolder | None = None,
    read: Callable[..., Iterator[tuple[Source, Example | DeadLetter]]] = read_records,
) -> None:
    """Checks that at least one record can be used; reads no further than to the first one.

    ``limit`` is the number of records of all files after which to stop. ``read`` reads the records
    of a file, as ``read_records`` does.
    """
    records = itertools.chain.from_iterable(read(path, pages=pages) for path in files)
    first, count = "", 0
    for source, item in itertools.islice(records, limit):
        if isinstance(item, Example):
            return
        first = first or f"{source.path}, line {source.line}: {item.reason}"
        count += 1
    if not count:
        names = ", ".join(map(shown, files))
        raise Error(f"there are no records in {names}: give a file with at least one")
    what = "the only record is bad" if count == 1 else f"all {count} records are bad; the first"
    raise Error(f"{what}: {first}")


def mention_unnamed_pages(files: Sequence[str], pages: PageFolder | None) -> None:
    """Logs a warning if no question names some of the pages; reads the questions only."""
    if pages is None:
        return
    named = set()
    for path in files:
        for _, row in containers.rows(path):
            with contextlib.suppress(RecordError):
                if not isinstance(row, RecordError):
                    record = lines.parse_line(row) if isinstance(row, bytes) else row
                    named.add(pages.path(record))
    unnamed = [path for path in pages.files if path not in named]
    if unnamed:
        counts = len(unnamed), len(pages.files)
        log.warning("no question names %d of the %d pages, such as %s", *counts, unnamed[0])
