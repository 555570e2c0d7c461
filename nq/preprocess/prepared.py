"""The windows of questions: made once, kept in a folder, and read while they are made.

windows-00000.tfrecord …   the shards
examples-00000.tfrecord …  the examples of each shard; none for training
skipped.jsonl              bad records: file, line, reason, excerpt
manifest.json              the request, counts, sizes and digests of the files
.nq-folder.json            marks the folder as ours, see ``nq.storage``
.nq-folder.lock            locked while a job runs
.unfinished-…/             where a running job writes; remains if it is killed

A shard is published when it is whole, and then the manifest names it, so that what follows reads it
at once, and a job that was interrupted continues behind it. Damage is found by the sizes and
digests of the manifest and by the checksums of the records.
"""

import contextlib
import itertools
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import orjson

from nq import __version__, child, storage
from nq.config import WindowConfig
from nq.errors import DamagedError, Error
from nq.formats import inputs
from nq.formats.example_records import decode_example, encode_example
from nq.formats.fields import RecordError
from nq.formats.input_files import shown
from nq.formats.tfrecord import (
    KEYS,
    decode_records,
    encode_records,
    frame,
    inference_shapes,
    raw_records,
)
from nq.preprocess.contexts import unread_blocks
from nq.preprocess.features import features, training_features
from nq.preprocess.tokenizers.base import Tokenizer
from nq.preprocess.tokenizers.load import load_tokenizer, tokenizer_digest
from nq.progress import new_bar
from nq.questions import START, Questions
from nq.records import DeadLetter, Example, ExampleId, ExampleKey, Features, Source, Windowed
from nq.storage import DEAD_LETTERS
from nq.text import visible

log = logging.getLogger(__name__)

MANIFEST = "manifest.json"
WINDOWS, EXAMPLES = "windows", "examples"
SHARD_BYTES = 16 << 20
"""Bytes after which a shard ends, with the example that reaches them."""
COUNTERS = ("examples", "windows", "dead_letters", "unread_blocks", "truncated_pages")
"""The counts of ``Windows``, and the names of Beam's counters."""
CLEANUP_S, END_TIMEOUT_S = 2.0, 3.0

Training = tuple[float, int] | tuple[float, int, bool]
"""The arguments ``negatives``, ``seed`` and ``unlabelled`` of ``training_features``, the last one
only if it is true."""
Published = Callable[[Mapping[str, Any]], object]
"""Receives the manifest when it names a new shard, and when it is complete."""


@dataclass(frozen=True)
class Request:
    """The inputs and settings of preprocessing; equal descriptions give equal files.

    Args:
        tokenizer: folder or file of the tokenizer.
        training: settings of training features, ``None`` for inference.
    """

    questions: Questions
    tokenizer: str
    windows: WindowConfig
    training: Training | None = None

    @cached_property
    def description(self) -> dict[str, Any]:
        """The request as JSON values for the manifest, with digests in place of paths."""
        return {
            "version": __version__,
            **self.questions.key,
            "tokenizer": tokenizer_digest(load_tokenizer(self.tokenizer, self.windows.compat)),
            "windows": self.windows.to_dict(),
            "training": list(self.training) if self.training else None,
        }

    @cached_property
    def key(self) -> str:
        """A short name for the request's content."""
        return storage.digest_json(self.description)[:12]

    @property
    def sources(self) -> tuple[str, ...]:
        return (*self.questions.files, self.tokenizer)

    def check_output(self, folder: Path) -> None:
        """Checks that the windows may be in a folder; changes nothing."""
        storage.check_folder(folder, storage.WINDOWS, self.sources)


class Windows:
    """The windows of a request in a folder, some of which may still be made.

    Iteration yields the examples in order with their windows, as soon as they are made. Damage is
    logged and the windows are made again, once.

    Attributes:
        examples, windows, dead_letters: how many there are so far.
        unread_blocks: blocks with text beyond ``max_contexts``, in ``truncated_pages``.
        seconds: wall time of the jobs that made them.
        reused: whether an earlier job made them.
    """

    examples = windows = dead_letters = unread_blocks = truncated_pages = 0
    seconds = 0.0

    def __init__(
        self,
        request: Request,
        folder: Path,
        manifest: Mapping[str, Any] | None,
        make: "Make | None" = None,
        process: "_Process | None" = None,
        waiting: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
    ) -> None:
        self.folder, self.reused, self.n_shards = folder, process is None, 0
        self._request, self._make_with, self._process = request, make, process
        self._waiting, self._is_complete = waiting, False
        self._update(manifest or {"counts": {}, "shards": [], "complete": False})

    def _update(self, manifest: Mapping[str, Any]) -> None:
        vars(self).update(manifest["counts"])
        self.n_shards, self._is_complete = len(manifest["shards"]), manifest["complete"]

    @property
    def shards(self) -> list[Path]:
        """The TFRecord files of windows so far."""
        return [self.folder / shard_name(WINDOWS, number) for number in range(self.n_shards)]

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
                self.make_again(damage)
        yield from islice(self._read(), done, None)

    def _read(self) -> Iterator[Windowed]:
        for number in itertools.count():
            self._wait(number)
            if number >= self.n_shards:
                return
            yield from read_shard(self._request, self.folder / shard_name(WINDOWS, number))

    def _wait(self, number: int) -> None:
        """Waits until a shard is published, or all are."""
        with self._waiting():
            while not self._is_complete:
                is_wanted = number >= self.n_shards
                manifest = self._process.receive(is_wanted) if self._process else None
                if manifest:
                    self._update(manifest)
                elif is_wanted:  # the process has ended, perhaps with the error that is raised here
                    self._make()
                else:
                    return

    def make_again(self, damage: DamagedError) -> None:
        """Makes all windows once more, since some are damaged."""
        log.warning("%s; the windows are prepared again", damage)
        if self._process:
            self._process.end()
        (self.folder / MANIFEST).unlink(missing_ok=True)
        self._make()

    def _make(self) -> None:
        self._process, self.reused = None, False
        made = prepare(self._request, self.folder, self._make_with)
        vars(self).update({name: getattr(made, name) for name in (*COUNTERS, "seconds")})
        self.n_shards, self._is_complete = made.n_shards, True


def shard_name(kind: str, number: int) -> str:
    """Returns the name of a file of windows or of examples."""
    return f"{kind}-{number:05d}.tfrecord"


def read_shard(request: Request, shard: Path) -> Iterator[Windowed]:
    """Yields the examples of a shard with their windows; damage is a ``DamagedError``."""
    paths = tuple(map(shown, request.questions.files))
    shapes = inference_shapes(request.windows.max_seq_length)
    records = raw_records(shard)
    for record in raw_records(shard.with_name(shard.name.replace(WINDOWS, EXAMPLES, 1))):
        (file, line), example, n_windows = decode_example(record)
        rows = decode_records(list(islice(records, n_windows)), shapes)
        expected = [[file, line, n, n_windows] for n in range(n_windows)]
        if np.hstack([rows[name] for name in KEYS]).tolist() != expected:
            raise DamagedError(f"windows of file {file}, line {line} are not in {shard}")
        yield Windowed(example, rows, Source(file, paths[file], line))
    if next(records, None) is not None:
        raise DamagedError(f"{shard} has windows of no example")


def encode_dead_letter(letter: DeadLetter) -> str:
    """Returns one line of JSON: file, line, reason, and the beginning of the record."""
    place = {"file": shown(letter.source.path), "line": letter.source.line}
    values = {**place, "reason": letter.reason, "record": letter.record}
    return visible(orjson.dumps(values).decode())


# --- making windows -----------------------------------------------------------------------------


class StoredExample(NamedTuple):
    """The framed TFRecords of one example (empty for training) and of its windows."""

    source: Source
    example: bytes
    records: bytes
    n_windows: int
    unread_blocks: int
    example_id: ExampleId
    question: str


Make = Callable[[Request, Path], Iterable[StoredExample | DeadLetter]]
"""Makes what is stored of a request, in order, with an empty folder for its own files."""


def make_windows(
    source: Source,
    item: Example | DeadLetter,
    tokenizer: Tokenizer,
    windows: WindowConfig,
    training: Training | None = None,
) -> Features | DeadLetter:
    """Makes the windows of one record; an example with too many becomes a dead letter.

    An ``Error`` names file and line of an example that cannot be converted.
    """
    if isinstance(item, DeadLetter):
        return item
    try:
        if training:
            return training_features(item, tokenizer, windows, *training)
        return features(item, tokenizer, windows)
    except RecordError as error:
        return DeadLetter(source, str(error), item.question[: inputs.EXCERPT_CHARS])
    except Exception as error:
        where = f"{source.path}, line {source.line} (example {item.example_id})"
        raise Error(f"{where}: {type(error).__name__}: {error}") from error


def stored_example(
    source: Source, example: Example, rows: Features, windows: WindowConfig
) -> StoredExample:
    """Encodes an example and its windows as records of the windows folder."""
    records = b"".join(map(frame, encode_records(rows, source, windows.switches.id_name)))
    stored = b""
    if rows.answer_types is None:
        stored = frame(encode_example(source.key, example, len(rows)))
    about = unread_blocks(example, windows), example.example_id, example.question
    return StoredExample(source, stored, records, len(rows), *about)


def prepare(
    request: Request,
    output: str | Path,
    make: Make | None = None,
    published: Published = lambda manifest: None,
) -> Windows:
    """Makes the windows of a request, or reuses ``output`` if it holds them already.

    An interrupted job continues behind its last shard; one for training, or with a ``make`` of
    its own, begins again.

    Args:
        make: makes the windows in another way than a plain loop, such as ``nq.beam.windows``.

    Raises:
        OSError: a file cannot be read or written.
        Error: the folder has other files, the job failed, or an input changed.
    """
    folder, questions = Path(output), request.questions
    found = find(request, folder)
    if found and found["complete"]:
        return Windows(request, folder, found)
    questions.check_same()
    with storage.hold(folder, storage.WINDOWS, request.sources):
        manifest, ids = _begun(folder, None if make or request.training else found)
        with storage.unfinished(folder) as part:
            writer = _Writer(request, folder, part, manifest, published)
            made = make(request, part) if make else _made_windows(request, writer.place, ids)
            writer.write(made)
            try:
                questions.check_same()
            except Error:
                (folder / MANIFEST).unlink()
                raise
            writer.complete()
        result = Windows(request, folder, writer.manifest)
        result.reused = False
        return result


def _begun(
    folder: Path, manifest: Mapping[str, Any] | None
) -> tuple[Mapping[str, Any] | None, list[ExampleId]]:
    """Returns the manifest of the first shards and the ids in them; ``None`` after damage."""
    ids = list[ExampleId]()
    try:
        for number in range(len(manifest["shards"]) if manifest else 0):
            examples = raw_records(folder / shard_name(EXAMPLES, number))
            ids += (decode_example(record)[1].example_id for record in examples)
    except DamagedError as error:
        log.warning("%s; the windows are prepared again", error)
        return None, []
    return manifest, ids


def _made_windows(
    request: Request, place: ExampleKey, ids: Iterable[ExampleId]
) -> Iterator[StoredExample | DeadLetter]:
    tokenizer = load_tokenizer(request.tokenizer, request.windows.compat)
    with new_bar(desc="preprocess", unit=" examples") as bar:
        for source, item in request.questions.behind(place, ids):
            rows = make_windows(source, item, tokenizer, request.windows, request.training)
            if isinstance(rows, DeadLetter):
                yield rows
            elif isinstance(item, Example):
                yield stored_example(source, item, rows, request.windows)
                bar.update()


class _Writer:
    """Writes shards, in the order of the input, and publishes each when it is whole.

    There is at least one; the windows of an example are never in two.
    """

    def __init__(
        self,
        request: Request,
        folder: Path,
        part: Path,
        manifest: Mapping[str, Any] | None,
        published: Published,
    ) -> None:
        self._request, self._folder, self._part = request, folder, part
        self._published, self._started = published, time.perf_counter()
        if manifest is None:
            (folder / MANIFEST).unlink(missing_ok=True)
            storage.remove(storage.own_paths(folder, storage.WINDOWS))
        self.manifest: dict[str, Any] = dict(
            manifest
            or {
                "request": request.description,
                "counts": {**dict.fromkeys(COUNTERS, 0), "seconds": 0.0},
                "shards": [],
                "place": list(START),
                "skipped_bytes": 0,
                "complete": False,
            }
        )
        self._seconds_before = self.manifest["counts"]["seconds"]
        kinds = (WINDOWS,) if request.training else (WINDOWS, EXAMPLES)
        self._kinds, self._files = kinds, list[IO[bytes]]()
        self._opened = contextlib.ExitStack()
        self._skipped = (folder / DEAD_LETTERS).open("ab")
        self._skipped.truncate(self.manifest["skipped_bytes"])
        if manifest is not None:
            published(manifest)

    @property
    def place(self) -> ExampleKey:
        """The last record so far."""
        file, line = self.manifest["place"]
        return file, line

    def write(self, elements: Iterable[StoredExample | DeadLetter]) -> None:
        counts = self.manifest["counts"]
        with self._skipped, self._opened:
            for one in elements:
                self.manifest["place"] = one.source.key
                if isinstance(one, DeadLetter):
                    self._skipped.write(f"{encode_dead_letter(one)}\n".encode())
                    counts["dead_letters"] += 1
                    continue
                self._open()
                for file, data in zip(self._files, (one.records, one.example), strict=False):
                    file.write(data)
                counts["examples"] += 1
                counts["windows"] += one.n_windows
                counts["unread_blocks"] += one.unread_blocks
                counts["truncated_pages"] += one.unread_blocks > 0
                if self._files[0].tell() >= SHARD_BYTES:
                    self._publish()
            if self._files or not self.manifest["shards"]:
                self._open()
                self._publish()

    def _open(self) -> None:
        number = len(self.manifest["shards"])
        if not self._files:
            paths = [self._part / shard_name(kind, number) for kind in self._kinds]
            self._files = [self._opened.enter_context(path.open("wb")) for path in paths]

    def _publish(self) -> None:
        sizes = {}
        for file in self._files:
            file.close()
            name = Path(file.name).name
            sizes[name] = os.path.getsize(file.name)
            storage.publish(Path(file.name), self._folder / name)
        self._files = []
        self._skipped.flush()
        os.fsync(self._skipped.fileno())
        self.manifest["shards"].append(sizes)
        self._write_manifest()

    def complete(self) -> None:
        self.manifest |= {
            "complete": True,
            "skipped_sha256": storage.sha256(self._folder / DEAD_LETTERS),
        }
        self._write_manifest()

    def _write_manifest(self) -> None:
        seconds = self._seconds_before + time.perf_counter() - self._started
        self.manifest["counts"]["seconds"] = seconds
        self.manifest["skipped_bytes"] = os.path.getsize(self._folder / DEAD_LETTERS)
        storage.write_json(self._folder / MANIFEST, self.manifest)
        self._published(self.manifest)


def find(request: Request, folder: Path) -> dict[str, Any] | None:
    """Returns the manifest of a folder that has windows of a request, perhaps not all shards yet.

    Damage is logged. ``read_shard`` checks the content of shards.
    """
    path = folder / MANIFEST
    try:
        manifest = storage.read_json(path)
        if manifest["request"] != request.description:
            return None
        for name, size in itertools.chain.from_iterable(map(dict.items, manifest["shards"])):
            if (folder / name).stat().st_size != size:
                raise DamagedError(f"{folder / name} is damaged: {MANIFEST} describes another file")
        letters = folder / DEAD_LETTERS
        is_cut = letters.stat().st_size < manifest["skipped_bytes"]
        if is_cut or (
            manifest["complete"] and storage.sha256(letters) != manifest["skipped_sha256"]
        ):
            raise DamagedError(f"{letters} is damaged: {MANIFEST} describes another file")
        return manifest
    except FileNotFoundError as error:
        if Path(error.filename) == path:
            return None
        log.warning("%s is missing; the windows are prepared again", error.filename)
    except DamagedError as error:
        log.warning("%s; the windows are prepared again", error)
    except (LookupError, TypeError, AttributeError) as error:
        log.warning("%s is damaged: %r; the windows are prepared again", path, error)
    return None


# --- in a process beside this one ---------------------------------------------------------------


@contextlib.contextmanager
def windows(
    request: Request,
    folder: Path,
    make: Make | None = None,
    waiting: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
) -> Iterator[Windows]:
    """Makes the windows of a request in a process of its own, unless a folder has them.

    That process ends with this block, or with this process, however that ends. It has
    ``CLEANUP_S`` to clean up then. It reports no errors: if it fails, this process continues its
    work, and raises as ``prepare`` does. ``waiting`` is entered while there is no shard to read.
    """
    request.check_output(folder)
    if (found := find(request, folder)) and found["complete"]:
        yield Windows(request, folder, found, make, waiting=waiting)
        return
    process = _Process(request, folder, make)
    try:
        yield Windows(request, folder, None, make, process, waiting)
    finally:
        process.end()


class _Process:
    """The process that makes the windows, which sends its manifests."""

    def __init__(self, request: Request, folder: Path, make: Make | None) -> None:
        code = f"from {__name__} import prepare_for; prepare_for({{}})"
        self._process, self._connection = child.start(code)
        with contextlib.suppress(OSError):  # it died
            self._connection.send((request, folder, make))

    def receive(self, is_wanted: bool) -> dict[str, Any] | None:
        """Returns the next manifest; ``None`` if there is none yet, unless it ``is_wanted``."""
        with contextlib.suppress(EOFError, OSError):
            if is_wanted or self._connection.poll():
                manifest: dict[str, Any] = self._connection.recv()
                return manifest
        return None

    def end(self) -> None:
        self._connection.close()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)


def prepare_for(number: int) -> None:
    """Prepares the request that the socket with the descriptor ``number`` receives."""
    connection: Connection[Any, Any] = Connection(number)

    def interrupt_at_end() -> None:
        connection.poll(None)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(CLEANUP_S)
        os._exit(1)

    logging.getLogger().addHandler(logging.NullHandler())  # the process that waits warns
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a shell's background
    try:
        request, folder, make = connection.recv()
        threading.Thread(target=interrupt_at_end, daemon=True).start()
        prepare(request, folder, make, published=connection.send)
    finally:  # without an error, which the process that waits raises too, or a wait for threads
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os._exit(0)
