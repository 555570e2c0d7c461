"""The stages of preprocessing as Beam transforms, thin wraps around plain functions."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np

from nq.beam.files import BEAM, local_folder
from nq.beam.merge import Share, shares
from nq.config import WindowConfig
from nq.errors import check_argument
from nq.formats import inputs
from nq.formats.own_data import PageFolder
from nq.formats.tfrecord import encode_records
from nq.model.folder import ModelFolder, read_pair
from nq.model.registry import is_pair
from nq.preprocess.contexts import unread_blocks
from nq.preprocess.features import Sampling
from nq.preprocess.prepared import make_windows
from nq.preprocess.shards import WindowCounts, stored_example
from nq.preprocess.tokenizers.base import Tokenizer
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.questions import page_folder
from nq.records import Columns, DeadLetter, Example, Features, Source, Windowed

OUTPUTS = ("windows", "groups", "examples")


class ReadQuestions(beam.PTransform):  # type: ignore[misc]
    """Reads questions with their pages; each element is ``(Source, Example | DeadLetter)``.

    Shares of files are reshuffled, not their text, so that memory does not grow with the input: a
    worker takes every n-th record of a file.

    Args:
        files: paths that every worker can read, or URIs of Beam's ``FileSystems``, in any format
            of ``nq.formats.inputs``.
        limit: of all files together.
        workers: how many share few files; one reads files from start to end.
        pages: the folder of the pages that questions name, which every worker can read.
    """

    def __init__(
        self,
        files: Sequence[str],
        limit: int | None = None,
        workers: int = 1,
        pages: PageFolder | str | Path | None = None,
    ) -> None:
        super().__init__()
        self.files = list(map(str, files))
        self.limit = limit
        self.workers = workers
        self.pages = page_folder(pages)

    def expand(self, pipeline: Any) -> Any:
        return (
            pipeline
            | "Shares" >> beam.Create(shares(len(self.files), self.workers))
            | "Reshuffle" >> beam.Reshuffle()
            | "Read" >> beam.FlatMap(read_share, self.files, self._limits(), self.pages)
        )

    def _limits(self) -> list[int | None]:
        """Returns how many records of each file belong to the first ``limit`` of all."""
        if self.limit is None:
            return [None] * len(self.files)
        rest = self.limit
        limits = list[int | None]()
        for path in self.files:
            with BEAM.local_copy(path) as copy:
                inputs.check(copy, to_end=rest > 0)  # no worker reads so far
                count = inputs.count_records(copy, rest) if rest else 0
            limits.append(count)
            rest -= count
        return limits


def read_share(
    share: Share, files: Sequence[str], limits: Sequence[int | None], pages: PageFolder | None
) -> Iterator[tuple[Source, Example | DeadLetter]]:
    """Yields the records of a share of one of the files, which have paths or URIs."""
    file, i, n = share
    path = files[file]
    with BEAM.local_copy(path) as copy:
        yield from inputs.read_records(
            copy,
            file,
            (i, n),
            limits[file],
            pages=pages,
            name=path,
        )


class MakeWindows(beam.PTransform):  # type: ignore[misc]
    """Makes windows of ``(Source, Example | DeadLetter)``, as ``ReadQuestions`` yields them.

    The result has two collections: ``windows`` and ``dead_letters``. The counters ``examples``,
    ``windows``, ``dead_letters``, ``unread_blocks`` (blocks with text beyond ``max_contexts``),
    ``truncated_pages`` (pages with such blocks) and ``without_windows`` (examples that give none)
    are in the namespace ``nq``.

    Args:
        tokenizer: folder of a model, or folder or file of a tokenizer, which every worker can read;
            or a staged model (``nq.beam.files``). Of two models in a folder it is the ranker's.
        windows: by default the settings in a model folder.
        training: the windows to train on, with their targets; ``None`` for those of inference.
        output: what is in ``windows``: ``"windows"`` for serialized ``tf.train.Example`` messages
            (``nq.formats.tfrecord``); ``"examples"`` for each example with its windows
            (``nq.records.Windowed``), as ``ScoreWindows`` takes them; ``"groups"`` for the messages
            of each example (``nq.preprocess.shards.StoredExample``).
    """

    def __init__(
        self,
        tokenizer: str | Path,
        windows: WindowConfig | None = None,
        training: Sampling | None = None,
        output: str = "windows",
    ) -> None:
        super().__init__()
        check_argument(output in OUTPUTS, "output", output, f"one of {', '.join(OUTPUTS)}")
        is_possible = training is None or output != "examples"
        check_argument(is_possible, "training", training, 'None with output="examples"')
        if is_pair(Path(tokenizer)):
            tokenizer = read_pair(Path(tokenizer)).ranker.path
        windows = windows or ModelFolder(Path(tokenizer)).settings.windows
        self.settings = str(tokenizer), windows, training, output

    def expand(self, questions: Any) -> Any:
        windows = beam.ParDo(_MakeWindows(*self.settings))
        return questions | "Windows" >> windows.with_outputs("dead_letters", main="windows")


@dataclass(eq=False)
class _MakeWindows(beam.DoFn):  # type: ignore[misc]
    """(source, example) -> its windows, in one of the forms; dead letters are tagged."""

    tokenizer_path: str
    windows: WindowConfig
    training: Sampling | None
    output: str

    def setup(self) -> None:
        counter = beam.metrics.Metrics.counter
        self.counters = {name: counter("nq", name) for name in vars(WindowCounts())}
        path = local_folder(self.tokenizer_path)
        self.tokenizer: Tokenizer = load_tokenizer(path, self.windows.compat)

    def process(self, element: tuple[Source, Example | DeadLetter]) -> Iterator[Any]:
        started = time.perf_counter()
        source, item = element
        rows = make_windows(source, item, self.tokenizer, self.windows, self.training)
        if isinstance(rows, DeadLetter) or isinstance(item, DeadLetter):
            self.counters["dead_letters"].inc()
            yield beam.pvalue.TaggedOutput("dead_letters", rows)
            return
        if self.output == "groups":
            stored = stored_example(source, item, rows, self.windows)
            counts = stored.counts
            yield stored
        else:
            counts = WindowCounts.of_example(len(rows), unread_blocks(item, self.windows))
        for name, count in vars(counts).items():
            self.counters[name].inc(count)
        if self.output == "windows":
            yield from encode_records(rows, source, self.windows.switches.id_name)
        elif self.output == "examples":
            columns = example_rows(source, rows)
            seconds = time.perf_counter() - started
            yield Windowed(item, columns, source, counts.unread_blocks, seconds)


def example_rows(source: Source, features: Features) -> Columns:
    """Returns the windows of an example as ``Scorer.scores`` takes them."""
    rows = features.rows
    key = np.array(source.key, np.int32)
    rows["example_keys"] = np.tile(key, (len(features), 1))
    return rows
