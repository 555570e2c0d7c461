"""The files of a folder of windows: shards of TFRecords, bad records and the manifest.

windows-00000.tfrecord …   the shards
examples-00000.tfrecord …  the examples of each shard; none for training
skipped.jsonl              bad records: file, line, reason, excerpt
manifest.json              the request, counts, sizes and digests of the files

A shard is published when it is whole, and then the manifest names it. Damage is found by the sizes
and digests of the manifest and by the checksums of the records.
"""

import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import orjson

from nq import storage
from nq.config import WindowConfig
from nq.errors import DamagedError
from nq.formats.input_files import shown
from nq.formats.tfrecord import (
    KEYS,
    decode_example,
    decode_records,
    encode_example,
    encode_records,
    frame,
    inference_shapes,
    raw_records,
)
from nq.preprocess.contexts import unread_blocks
from nq.questions import START
from nq.records import DeadLetter, Example, ExampleId, ExampleKey, Features, Source, Windowed
from nq.storage import DEAD_LETTERS
from nq.text import visible

log = logging.getLogger(__name__)

AGAIN = "%s; the windows are prepared again"
MANIFEST = "manifest.json"
WINDOWS = "windows"
EXAMPLES = "examples"
SHARD_BYTES = 16 << 20
"""Bytes after which a shard ends, with the example that reaches them."""
PREPARED = storage.Kind(
    name="windows",
    what="prepared windows",
    files=r"manifest\.json|skipped\.jsonl|(?:windows|examples)-\d{5}\.tfrecord",
)
"""The folder of windows."""


@dataclass
class WindowCounts:
    """What a folder of windows has, as in its manifest; Beam's counters have the same names.

    Args:
        unread_blocks: blocks with text beyond ``max_contexts``, in ``truncated_pages``.
        without_windows: examples that give none to train on.
    """

    examples: int = 0
    windows: int = 0
    dead_letters: int = 0
    unread_blocks: int = 0
    truncated_pages: int = 0
    without_windows: int = 0

    @classmethod
    def of_example(cls, n_windows: int, unread_blocks: int) -> Self:
        """Returns what one example counts for."""
        return cls(
            examples=1,
            windows=n_windows,
            unread_blocks=unread_blocks,
            truncated_pages=int(unread_blocks > 0),
            without_windows=int(n_windows == 0),
        )


class StoredExample(NamedTuple):
    """The framed TFRecords of one example (empty for training) and of its windows."""

    source: Source
    example: bytes
    records: bytes
    counts: WindowCounts
    example_id: ExampleId
    question: str


def stored_example(
    source: Source, example: Example, rows: Features, windows: WindowConfig
) -> StoredExample:
    """Encodes an example and its windows as records of the windows folder."""
    records = b"".join(map(frame, encode_records(rows, source, windows.switches.id_name)))
    stored = b""
    if rows.answer_types is None:
        stored = frame(encode_example(source.key, example, len(rows)))
    return StoredExample(
        source,
        stored,
        records,
        WindowCounts.of_example(len(rows), unread_blocks(example, windows)),
        example.example_id,
        example.question,
    )


def encode_dead_letter(letter: DeadLetter) -> str:
    """Returns one line of JSON: file, line, reason, and the beginning of the record."""
    values = {
        "file": shown(letter.source.path),
        "line": letter.source.line,
        "reason": letter.reason,
        "record": letter.record,
    }
    return visible(orjson.dumps(values).decode())


def shard_path(folder: Path, kind: str, number: int) -> Path:
    """Returns the path of a file of windows or of examples."""
    return folder / f"{kind}-{number:05d}.tfrecord"


def read_shard(
    folder: Path, number: int, files: Sequence[str], max_seq_length: int
) -> Iterator[Windowed]:
    """Yields the examples of a shard of these files with windows; damage is a ``DamagedError``."""
    paths = tuple(map(shown, files))
    shapes = inference_shapes(max_seq_length)
    shard = shard_path(folder, WINDOWS, number)
    records = raw_records(shard)
    for record in raw_records(shard_path(folder, EXAMPLES, number)):
        (file, line), example, n_windows = decode_example(record)
        rows = decode_records(list(islice(records, n_windows)), shapes)
        expected = [[file, line, n, n_windows] for n in range(n_windows)]
        if np.hstack([rows[name] for name in KEYS]).tolist() != expected:
            raise DamagedError(f"windows of file {file}, line {line} are not in {shard}")
        yield Windowed(example, rows, Source(file, paths[file], line))
    if next(records, None) is not None:
        raise DamagedError(f"{shard} has windows of no example")


def example_ids(folder: Path, n_shards: int) -> list[ExampleId]:
    """Returns the ids of the examples in the first shards; damage is a ``DamagedError``."""
    return [
        decode_example(record)[1].example_id
        for number in range(n_shards)
        for record in raw_records(shard_path(folder, EXAMPLES, number))
    ]


def read_manifest(folder: Path, description: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the manifest of a folder; ``None`` if it has no windows of the described request.

    The manifest of an unfinished job names the first shards. Their content is checked by
    ``read_shard``. A file that is missing or that the manifest describes otherwise is logged.
    """
    try:
        manifest = storage.read_json(folder / MANIFEST)
        if manifest["request"] != description:
            return None
        sizes = {DEAD_LETTERS: manifest["skipped_bytes"]}
        for shard in manifest["shards"]:
            sizes |= shard
        for name, size in sizes.items():
            path = folder / name
            stored = path.stat().st_size if path.is_file() else -1
            # an interrupted job may have written more bad records than the manifest counts
            is_whole = stored >= size if name == DEAD_LETTERS else stored == size
            if name == DEAD_LETTERS and manifest["complete"] and is_whole:
                is_whole = storage.sha256(path) == manifest["skipped_sha256"]
            if not is_whole:
                raise DamagedError(f"{path} is damaged: {MANIFEST} describes another file")
        return manifest
    except FileNotFoundError:
        return None
    except DamagedError as error:
        log.warning(AGAIN, error)
        return None


class ShardWriter:
    """Writes shards, in the order of the input, and publishes each when it is whole.

    There is at least one; the windows of an example are never in two.

    Args:
        part: an empty folder in the same file system, for shards that are not whole.
        description: the request of the manifest.
        manifest: that of the first shards, behind which the writer continues; without one it
            begins with an empty folder.
    """

    def __init__(
        self,
        folder: Path,
        part: Path,
        description: Mapping[str, Any],
        manifest: Mapping[str, Any] | None,
    ) -> None:
        self._folder = folder
        self._part = part
        self._kinds = (WINDOWS,) if description["training"] else (WINDOWS, EXAMPLES)
        self._started = time.perf_counter()
        if manifest is None:
            (folder / MANIFEST).unlink(missing_ok=True)
            storage.remove(storage.own_paths(folder, PREPARED))
        self.manifest: dict[str, Any] = dict(
            manifest
            or {
                "request": description,
                "counts": {**asdict(WindowCounts()), "seconds": 0.0},
                "shards": [],
                "place": list(START),
                "skipped_bytes": 0,
                "complete": False,
            }
        )
        self._seconds_before = self.manifest["counts"]["seconds"]
        self._dead_letters = (folder / DEAD_LETTERS).open("ab")
        self._dead_letters.truncate(self.manifest["skipped_bytes"])

    @property
    def place(self) -> ExampleKey:
        """The last record so far."""
        file, line = self.manifest["place"]
        return file, line

    def write(self, elements: Iterable[StoredExample | DeadLetter]) -> Iterator[Mapping[str, Any]]:
        """Writes examples and bad records; yields the manifest when it names one more shard."""
        counts = self.manifest["counts"]
        shard = self._new_shard()
        with self._dead_letters:
            for one in elements:
                self.manifest["place"] = one.source.key
                if isinstance(one, DeadLetter):
                    self._dead_letters.write(f"{encode_dead_letter(one)}\n".encode())
                    counts["dead_letters"] += 1
                    continue
                shard[WINDOWS] += one.records
                if EXAMPLES in shard:
                    shard[EXAMPLES] += one.example
                for name, count in vars(one.counts).items():
                    counts[name] += count
                if len(shard[WINDOWS]) >= SHARD_BYTES:
                    yield self._publish(shard)
                    shard = self._new_shard()
            if shard[WINDOWS] or not self.manifest["shards"]:
                yield self._publish(shard)

    def _new_shard(self) -> dict[str, bytearray]:
        return {kind: bytearray() for kind in self._kinds}

    def _publish(self, shard: Mapping[str, bytearray]) -> Mapping[str, Any]:
        sizes = {}
        for kind, content in shard.items():
            path = shard_path(self._folder, kind, len(self.manifest["shards"]))
            part = self._part / path.name
            part.write_bytes(content)
            storage.publish(part, path)
            sizes[path.name] = len(content)
        self._dead_letters.flush()
        os.fsync(self._dead_letters.fileno())
        self.manifest["shards"].append(sizes)
        return self._write_manifest()

    def complete(self) -> Mapping[str, Any]:
        """Marks the folder as complete; returns the manifest."""
        digest = storage.sha256(self._folder / DEAD_LETTERS)
        self.manifest |= {"complete": True, "skipped_sha256": digest}
        return self._write_manifest()

    def _write_manifest(self) -> Mapping[str, Any]:
        seconds = self._seconds_before + time.perf_counter() - self._started
        self.manifest["counts"]["seconds"] = seconds
        self.manifest["skipped_bytes"] = os.path.getsize(self._folder / DEAD_LETTERS)
        storage.write_json(self._folder / MANIFEST, self.manifest)
        return self.manifest
