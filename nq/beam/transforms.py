"""The stages of preprocessing as Beam transforms, thin wraps around plain functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam

from nq.beam.groups import encode_group
from nq.config import WindowConfig
from nq.formats import decoding, inputs
from nq.formats.questions import PageFolder
from nq.preprocess.local import COUNTERS, serialized_windows
from nq.preprocess.request import Training
from nq.preprocess.tokenizers.base import Tokenizer
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.records import DeadLetter, Example, Source

FILES_PER_READER = 4

Share = tuple[int, int, int]


def shares(n_files: int, readers: int) -> list[Share]:
    """Returns (file, i, n) for each share of the input: every n-th record of a file from the i-th.

    >>> shares(1, 2), shares(8, 2)[:3]
    ([(0, 0, 2), (0, 1, 2)], [(0, 0, 1), (1, 0, 1), (2, 0, 1)])
    """
    n = 1 if n_files >= FILES_PER_READER * readers else readers
    return [(file, i, n) for file in range(n_files) for i in range(n)]


class ReadQuestions(beam.PTransform):  # type: ignore[misc]
    """Reads questions with their pages; each element is ``(Source, Example | DeadLetter)``.

    Shares of files are reshuffled, not their text, so that memory does not grow with the input: a
    reader takes every n-th record of a file.

    Args:
        files: paths that every worker can read, in any format of ``nq.formats.decoding``.
        limit: read at most so many records of all files, in their order.
        readers: workers among which few files are shared; one reads files from start to end.
        first_file: number of the first file in ``Source.file_index``.
        pages: the folder of the pages that questions name, which every worker can read.
    """

    def __init__(
        self,
        files: Sequence[str],
        limit: int | None = None,
        readers: int = 1,
        first_file: int = 0,
        pages: PageFolder | str | Path | None = None,
    ) -> None:
        super().__init__()
        self.files, self.limit = list(map(str, files)), limit
        self.readers, self.first_file = readers, first_file
        self.pages = inputs.page_folder(pages)

    def expand(self, pipeline: Any) -> Any:
        return (
            pipeline
            | "Shares" >> beam.Create(shares(len(self.files), self.readers))
            | "Reshuffle" >> beam.Reshuffle()
            | "Read" >> beam.FlatMap(_read, self.files, self.first_file, self._limits(), self.pages)
        )

    def _limits(self) -> list[int | None]:
        """Returns how many records of each file belong to the first ``limit`` of all."""
        if self.limit is None:
            return [None] * len(self.files)
        rest, limits = self.limit, list[int | None]()
        for path in self.files:
            count = decoding.count_records(path, rest) if rest else 0
            limits.append(count)
            rest -= count
        return limits


def _read(
    share: Share,
    files: Sequence[str],
    first_file: int,
    limits: Sequence[int | None],
    pages: PageFolder | None = None,
) -> Iterator[tuple[Source, Example | DeadLetter]]:
    file, i, n = share
    limit = limits[file]
    return decoding.read_records(files[file], first_file + file, (i, n), limit, pages=pages)


class MakeWindows(beam.PTransform):  # type: ignore[misc]
    """Makes windows of ``(Source, Example | DeadLetter)``, as ``ReadQuestions`` yields them.

    The result has two collections: ``windows`` of serialized ``tf.train.Example`` messages
    (``nq.formats.tfrecord``), those of an example one after the other, and ``dead_letters``. The
    counters ``examples``, ``windows``, ``dead_letters``, ``unread_blocks`` (blocks with text beyond
    ``max_contexts``) and ``truncated_pages`` (pages with such blocks) are in the namespace ``nq``.

    Args:
        tokenizer: folder or file of the tokenizer, which every worker can read.
        windows: how pages become windows.
        training: ``(negatives, seed)`` for training features, ``(negatives, seed, True)`` to have
            windows of pages without annotations among them, ``None`` for inference.
        grouped: ``windows`` has a group for each example (``nq.beam.groups``) instead.
    """

    def __init__(
        self,
        tokenizer: str | Path,
        windows: WindowConfig | None = None,
        training: Training | None = None,
        grouped: bool = False,
    ) -> None:
        super().__init__()
        self.settings = str(tokenizer), windows or WindowConfig(), training, grouped

    def expand(self, questions: Any) -> Any:
        windows = beam.ParDo(_MakeWindows(*self.settings))
        return questions | "Windows" >> windows.with_outputs("dead_letters", main="windows")


class _MakeWindows(beam.DoFn):  # type: ignore[misc]
    """(source, example) -> serialized windows, or one group; dead letters are tagged."""

    def __init__(
        self,
        tokenizer: str,
        windows: WindowConfig,
        training: Training | None,
        grouped: bool,
    ) -> None:
        self.tokenizer_path, self.windows, self.training = tokenizer, windows, training
        self.grouped = grouped
        self.counters = {name: beam.metrics.Metrics.counter("nq", name) for name in COUNTERS}

    def setup(self) -> None:
        self.tokenizer: Tokenizer = load_tokenizer(self.tokenizer_path, self.windows.compat)

    def process(self, element: tuple[Source, Example | DeadLetter]) -> Iterator[Any]:
        source, item = element
        made = serialized_windows(source, item, self.tokenizer, self.windows, self.training)
        if isinstance(made, DeadLetter):
            self.counters["dead_letters"].inc()
            yield beam.pvalue.TaggedOutput("dead_letters", made)
            return
        self.counters["examples"].inc()
        self.counters["windows"].inc(len(made.windows))
        self.counters["unread_blocks"].inc(made.unread_blocks)
        self.counters["truncated_pages"].inc(int(made.unread_blocks > 0))
        if self.grouped:
            yield encode_group(source, made.digest, made.windows)
        else:
            yield from made.windows
