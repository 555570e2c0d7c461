"""The folder that a preprocessing job writes.

windows-00000-of-00001.tfrecord …   the shards; windows-N-… for a chunk that begins with file N
examples-00000-of-00001.tfrecord …  the examples of each shard; none for training
skipped.jsonl                  bad records: file, line, reason, excerpt
manifest.json                       the request, counts, sizes and digests of the files
COMPLETED                           written last; without it nothing here is reused
.nq-folder.json                     marks the folder as ours, see ``nq.storage``
.nq-folder.lock                     locked while a job runs
.unfinished-…/                      where a running job writes; remains if it is killed

What follows preprocessing reads this folder and not the input again. Damage is found by the sizes
and digests of the manifest and by the checksums of the records.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import orjson

from nq import storage
from nq.errors import DamagedError
from nq.formats import input_files
from nq.formats.example_records import decode_example
from nq.formats.input_files import shown
from nq.formats.tfrecord import KEYS, decode_records, inference_shapes, raw_records
from nq.preprocess.request import Request
from nq.records import DeadLetter, Source, Windowed
from nq.storage import publish, sync
from nq.text import visible

COMPLETED = "COMPLETED"
MANIFEST = "manifest.json"
DEAD_LETTERS = "skipped.jsonl"
WINDOWS, EXAMPLES = "windows", "examples"
SHARD_PATTERN = "*.tfrecord"
SHARD_BYTES = 1 << 30
"""Bytes after which a shard ends, with the example that reaches them."""
COUNTERS = ("examples", "windows", "dead_letters", "unread_blocks", "truncated_pages")
"""The counts of ``Prepared``, and the names of Beam's counters."""


@dataclass(frozen=True)
class Prepared:
    """A finished folder of windows.

    Args:
        shards: its TFRecord files of windows, sorted.
        reused: whether an earlier job made it.
        seconds: wall time of the job that made it.
        unread_blocks: blocks with text beyond ``max_contexts``, in ``truncated_pages``.
    """

    folder: Path
    shards: tuple[Path, ...]
    examples: int
    windows: int
    dead_letters: int
    reused: bool
    seconds: float
    unread_blocks: int = 0
    truncated_pages: int = 0

    @property
    def dead_letter_file(self) -> Path:
        return self.folder / DEAD_LETTERS

    def read(self, request: Request) -> Iterator[Windowed]:
        """Yields the examples of a request with their windows; damage is a ``DamagedError``."""
        paths = dict(enumerate(map(shown, request.files), request.first_file))
        shapes = inference_shapes(request.windows.max_seq_length)
        for shard in self.shards:
            records = raw_records(shard)
            for record in raw_records(examples_file(shard)):
                (file, line), example, n_windows = decode_example(record)
                rows = decode_records(list(islice(records, n_windows)), shapes)
                expected = [[file, line, n, n_windows] for n in range(n_windows)]
                if np.hstack([rows[name] for name in KEYS]).tolist() != expected:
                    raise DamagedError(f"windows of file {file}, line {line} are not in {shard}")
                yield Windowed(example, rows, Source(file, paths[file], line))
            if next(records, None) is not None:
                raise DamagedError(f"{shard} has windows of no example")

    def first_dead_letter(self) -> str:
        with self.dead_letter_file.open("rb") as file:
            letter = orjson.loads(file.readline())
        return f"{letter['file']}, line {letter['line']}: {letter['reason']}"


def encode_dead_letter(letter: DeadLetter) -> str:
    """Returns one line of JSON: file, line, reason, and the beginning of the record."""
    place = {"file": shown(letter.source.path), "line": letter.source.line}
    values = {**place, "reason": letter.reason, "record": letter.record}
    return visible(orjson.dumps(values).decode())


def examples_file(shard: Path) -> Path:
    """Returns the file with the examples of a shard of windows."""
    return shard.with_name(shard.name.replace(WINDOWS, EXAMPLES, 1))


class StoredExample(NamedTuple):
    """The framed TFRecords of one example (empty for training) and of its windows."""

    source: Source
    example: bytes
    records: bytes
    n_windows: int
    unread_blocks: int


def write_examples(
    elements: Iterable[StoredExample | DeadLetter],
    part: Path,
    first_file: int = 0,
    max_bytes: int = SHARD_BYTES,
    training: bool = False,
) -> dict[str, int]:
    """Writes shards and dead letters into the folder ``part``, and returns their counts.

    The files depend on the elements alone. There is always one shard, and the windows of an example
    are never in two. Shards get their names, ``windows-00000-of-00002.tfrecord`` and so on, when
    their number is known.

    Args:
        first_file: number of the first input file, which distinguishes the shards of chunks.
        max_bytes: bytes after which a shard ends.
        training: whether the examples are not written.
    """
    kinds = (WINDOWS,) if training else (WINDOWS, EXAMPLES)
    names = [f"{kind}-{first_file}" if first_file else kind for kind in kinds]
    counts, n_shards = dict.fromkeys(COUNTERS, 0), 0
    with contextlib.ExitStack() as files:

        def new_shard() -> list[IO[bytes]]:
            nonlocal n_shards
            paths = [part / f"{name}-{n_shards:05d}" for name in names]
            n_shards += 1
            return [files.enter_context(path.open("wb")) for path in paths]

        dead_letters = files.enter_context((part / DEAD_LETTERS).open("w", encoding="utf-8"))
        shard = new_shard()
        for one in elements:
            if isinstance(one, DeadLetter):
                dead_letters.write(f"{encode_dead_letter(one)}\n")
                counts["dead_letters"] += 1
                continue
            if shard[0].tell() >= max_bytes:
                for file in shard:
                    file.close()
                shard = new_shard()
            for file, data in zip(shard, (one.records, one.example), strict=False):
                file.write(data)
            counts["examples"] += 1
            counts["windows"] += one.n_windows
            counts["unread_blocks"] += one.unread_blocks
            counts["truncated_pages"] += one.unread_blocks > 0
    for name in names:
        for number in range(n_shards):
            path = part / f"{name}-{number:05d}"
            path.rename(f"{path}-of-{n_shards:05d}.tfrecord")
    return counts


def find_completed(folder: Path, description: Mapping[str, Any]) -> Prepared | None:
    """Returns the windows in ``folder`` if a job of this description was completed there.

    A file that is missing or damaged now is a ``DamagedError``. ``Prepared.read`` checks shards.
    """
    if not (folder / COMPLETED).is_file():
        return None
    try:
        manifest = storage.read_json(folder / MANIFEST)
        (folder / DEAD_LETTERS).open("rb").close()
        if manifest["request"] != description:
            return None
        found = {name: (folder / name).stat().st_size for name in manifest["shards"]}
        found |= {name: input_files.sha256(folder / name) for name in manifest["digests"]}
        for name, expected in {**manifest["shards"], **manifest["digests"]}.items():
            if found[name] != expected:
                raise DamagedError(f"{folder / name} is damaged: {MANIFEST} describes another file")
        shards = tuple(folder / n for n in manifest["shards"] if n.startswith(WINDOWS))
        return Prepared(folder, shards, **manifest["counts"], reused=True)
    except FileNotFoundError as error:
        raise DamagedError(f"{error.filename} is missing") from error
    except (LookupError, TypeError, AttributeError) as error:
        raise DamagedError(f"{folder / MANIFEST} is damaged: {error!r}") from error


def clear(folder: Path) -> None:
    """Removes what earlier jobs wrote, the COMPLETED mark first, and nothing else."""
    (folder / COMPLETED).unlink(missing_ok=True)
    storage.remove(storage.own_paths(folder, storage.WINDOWS))


def complete(
    part: Path, folder: Path, description: Mapping[str, Any], counts: Mapping[str, Any]
) -> Prepared:
    """Moves the files of a finished job out of its ``part`` folder and marks it as completed."""
    names = sorted(path.name for path in part.glob(SHARD_PATTERN))
    sizes = {name: (part / name).stat().st_size for name in names}
    digests = {DEAD_LETTERS: input_files.sha256(part / DEAD_LETTERS)}
    for name in (*names, DEAD_LETTERS):
        publish(part / name, folder / name)
    manifest = {"request": description, "counts": counts, "shards": sizes, "digests": digests}
    storage.write_json(folder / MANIFEST, manifest)
    (folder / COMPLETED).touch()
    sync(folder)
    shards = tuple(folder / n for n in names if n.startswith(WINDOWS))
    return Prepared(folder, shards, **counts, reused=False)
