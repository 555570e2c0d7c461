"""The windows of questions: made once, kept in a folder, and read while they are made.

The folder has the files of ``nq.preprocess.shards``, and besides:

.nq-folder.json            marks the folder as ours, see ``nq.storage``
.nq-folder.lock            locked while a job runs
.unfinished-…/             where a running job writes; the next one removes that of a killed one

What follows reads a shard as soon as it is published, and a job that was interrupted continues
behind the last one.
"""

import contextlib
import itertools
import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from nq import __version__, storage
from nq.config import WindowConfig
from nq.errors import DamagedError, Error
from nq.formats import inputs
from nq.formats.fields import RecordError
from nq.preprocess.features import Sampling, features, training_features
from nq.preprocess.shards import (
    AGAIN,
    MANIFEST,
    PREPARED,
    WINDOWS,
    ShardWriter,
    StoredExample,
    WindowCounts,
    example_ids,
    read_manifest,
    read_shard,
    shard_path,
    stored_example,
)
from nq.preprocess.tokenizers.base import Tokenizer
from nq.progress import new_bar
from nq.questions import Questions
from nq.records import DeadLetter, Example, ExampleId, ExampleKey, Features, Source, Windowed
from nq.storage import DEAD_LETTERS
from nq.worker import Worker

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Request:
    """The inputs and settings of preprocessing; equal descriptions give equal files.

    Without ``training`` the windows are those of inference.
    """

    questions: Questions
    tokenizer: Tokenizer
    windows: WindowConfig
    training: Sampling | None = None

    @cached_property
    def description(self) -> dict[str, Any]:
        """The request as JSON values for the manifest, with digests in place of paths."""
        return {
            "version": __version__,
            **self.questions.key,
            "tokenizer": self.tokenizer.digest,
            "windows": self.windows.to_dict(),
            "training": asdict(self.training) if self.training else None,
        }

    @cached_property
    def key(self) -> str:
        return storage.digest_json(self.description)[:12]

    @property
    def sources(self) -> tuple[str, ...]:
        return (*self.questions.files, str(self.tokenizer.path))


class Windows:
    """The windows of a request in a folder, some of which may still be made.

    Iteration yields the examples in order with their windows, as soon as they are made. Damage is
    logged and the windows are made again, once.

    Attributes:
        counts: what there is so far.
        seconds: wall time of the jobs that made them.
        reused: whether an earlier job made them.
    """

    def __init__(
        self,
        request: Request,
        folder: Path,
        manifest: Mapping[str, Any] | None = None,
        preprocess: "Preprocess | None" = None,
        worker: Worker | None = None,
        waiting: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
    ) -> None:
        self.folder = folder
        self.reused = worker is None
        self._request = request
        self._preprocess = preprocess
        self._worker = worker
        self._manifests = worker.stream((request, folder, preprocess)) if worker else iter(())
        self._waiting = waiting
        self._update(manifest or {"counts": {"seconds": 0.0}, "shards": [], "complete": False})

    def _update(self, manifest: Mapping[str, Any]) -> None:
        counts = dict(manifest["counts"])
        self.seconds: float = counts.pop("seconds")
        self.counts = WindowCounts(**counts)
        self.n_shards = len(manifest["shards"])
        self._is_complete: bool = manifest["complete"]

    @property
    def shards(self) -> list[Path]:
        return [shard_path(self.folder, WINDOWS, number) for number in range(self.n_shards)]

    @property
    def dead_letter_file(self) -> Path:
        return self.folder / DEAD_LETTERS

    def first_dead_letter(self) -> str:
        with self.dead_letter_file.open("rb") as file:
            letter = orjson.loads(file.readline())
        return f"{letter['file']}, line {letter['line']}: {letter['reason']}"

    def __iter__(self) -> Iterator[Windowed]:
        done = 0
        try:
            for one in self._read():
                yield one
                done += 1
            return
        except DamagedError as damage:
            with self._waiting():
                self.prepare_again(damage)
        yield from islice(self._read(), done, None)

    def _read(self) -> Iterator[Windowed]:
        files = self._request.questions.files
        max_seq_length = self._request.windows.max_seq_length
        for number in itertools.count():
            self._wait(number)
            if number >= self.n_shards:
                return
            yield from read_shard(self.folder, number, files, max_seq_length)

    def _wait(self, number: int) -> None:
        """Waits until a shard is published, or all are."""
        with self._waiting():
            while not self._is_complete:
                is_wanted = number >= self.n_shards
                manifest = None
                with contextlib.suppress(Exception):  # which is raised here, where work goes on
                    if is_wanted or (self._worker and self._worker.has_message()):
                        manifest = next(self._manifests, None)
                if manifest:
                    self._update(manifest)
                elif is_wanted:  # the process has ended, perhaps with the error that is raised here
                    self.prepare()
                else:
                    return

    def prepare_again(self, damage: DamagedError) -> None:
        log.warning(AGAIN, damage)
        self._end_process()
        (self.folder / MANIFEST).unlink(missing_ok=True)
        self.prepare()

    def prepare(self) -> None:
        """Makes in this process what the folder lacks."""
        self._end_process()
        for manifest in preparing(self._request, self.folder, self._preprocess):
            self._update(manifest)
            self.reused = self.reused and self._is_complete

    def _end_process(self) -> None:
        """Ends the process, which may hold its lock longer than its connection."""
        if self._worker:
            self._worker.end()
        self._worker = None
        self._manifests = iter(())


Preprocess = Callable[[Request, Path], Iterable[StoredExample | DeadLetter]]
"""Returns what is stored of a request, in order; gets an empty folder for files of its own."""


def make_windows(
    source: Source,
    item: Example | DeadLetter,
    tokenizer: Tokenizer,
    windows: WindowConfig,
    training: Sampling | None = None,
) -> Features | DeadLetter:
    """Makes the windows of one record; an example with too many becomes a dead letter.

    An ``Error`` names file and line of an example that cannot be converted.
    """
    if isinstance(item, DeadLetter):
        return item
    try:
        if training:
            return training_features(item, tokenizer, windows, training)
        return features(item, tokenizer, windows)
    except RecordError as error:
        return DeadLetter(source, str(error), item.question[: inputs.EXCERPT_CHARS])
    except Exception as error:
        where = f"{source.path}, line {source.line} (example {item.example_id})"
        raise Error(f"{where}: {type(error).__name__}: {error}") from error


def prepare(request: Request, output: str | Path, preprocess: Preprocess | None = None) -> Windows:
    """Makes the windows of a request, or reuses ``output`` if it holds them already.

    An interrupted job continues behind its last shard; one for training, or with a ``preprocess``
    in place of the plain loop (``nq.beam.windows``), begins again.

    Raises:
        OSError: a file cannot be read or written.
        Error: the folder has other files, the job failed, or an input changed.
    """
    windows = Windows(request, Path(output), preprocess=preprocess)
    windows.prepare()
    return windows


def preparing(
    request: Request, folder: Path, preprocess: Preprocess | None = None
) -> Generator[Mapping[str, Any], None, None]:
    """Makes the windows of a request that a folder lacks; see ``prepare``.

    Yields:
        The manifest: as it is found, when it names one more shard, and when it is complete.
    """
    manifest = read_manifest(folder, request.description)
    ids = list[ExampleId]()
    if manifest and manifest["complete"]:
        yield manifest
        return
    request.questions.check_same()
    with storage.hold(folder, PREPARED, request.sources):
        if preprocess or request.training:
            manifest = None
        elif manifest:
            try:
                ids = example_ids(folder, len(manifest["shards"]))
            except DamagedError as error:
                log.warning(AGAIN, error)
                manifest = None
        with storage.unfinished(folder) as part:
            writer = ShardWriter(folder, part, request.description, manifest)
            if manifest:
                yield manifest
            if preprocess:
                stored = preprocess(request, part)
            else:
                stored = _preprocess(request, writer.place, ids)
            try:
                yield from writer.write(stored)
                request.questions.check_same()
            except Error:
                (folder / MANIFEST).unlink(missing_ok=True)
                raise
            finally:
                if not (folder / MANIFEST).exists():
                    storage.remove(storage.own_paths(folder, PREPARED))
        yield writer.complete()  # when nothing is left to remove


def _preprocess(
    request: Request, place: ExampleKey, ids: Iterable[ExampleId]
) -> Iterator[StoredExample | DeadLetter]:
    tokenizer = request.tokenizer
    with new_bar(desc="preprocess", unit=" examples") as bar:
        for source, item in request.questions.behind(place, ids):
            rows = make_windows(source, item, tokenizer, request.windows, request.training)
            if isinstance(rows, DeadLetter):
                yield rows
            elif isinstance(item, Example):
                yield stored_example(source, item, rows, request.windows)
                bar.update()


@contextlib.contextmanager
def open_windows(
    request: Request,
    folder: Path,
    preprocess: Preprocess | None = None,
    waiting: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
) -> Iterator[Windows]:
    """Makes the windows of a request in a process of its own, unless a folder has them.

    That process ends with this block (``nq.worker``). If it fails, this process continues its work,
    and raises as ``prepare`` does. ``waiting`` is entered while there is no shard to read.
    """
    storage.check_folder(folder, PREPARED, request.sources)
    manifest = read_manifest(folder, request.description)
    if manifest and manifest["complete"]:
        yield Windows(request, folder, manifest, preprocess, waiting=waiting)
        return
    worker = Worker(_prepare, name="makes windows")
    try:
        yield Windows(request, folder, None, preprocess, worker, waiting)
    finally:
        worker.end()


def _prepare(value: tuple[Request, Path, Preprocess | None]) -> Iterator[Mapping[str, Any]]:
    return preparing(*value)
