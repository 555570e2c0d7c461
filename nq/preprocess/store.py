"""The folder that a preprocessing job writes.

windows-00000-of-00001.tfrecord …   the shards; windows-N-… for a chunk that begins with file N
examples.npy                        file, line and digest of each example
skipped.jsonl                  bad records: file, line, reason, excerpt
manifest.json                       the request, counts, sizes and digests of the files
COMPLETED                           written last; without it nothing here is reused
.nq-folder.json                     marks the folder as ours, see ``nq.storage``
.nq-folder.lock                     locked while a job runs
.unfinished-…/                      where a running job writes; remains if it is killed

Damage is found by the checksums of the manifest and of the records in the windows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson

from nq import storage
from nq.errors import DamagedError
from nq.formats import input_files
from nq.formats.input_files import shown
from nq.records import DeadLetter, Example, ExampleKey, Source
from nq.storage import publish, sync
from nq.text import visible

COMPLETED = "COMPLETED"
MANIFEST = "manifest.json"
DEAD_LETTERS = "skipped.jsonl"
EXAMPLES = "examples.npy"
SHARD_PATTERN = "windows-*.tfrecord"
SHARD_BYTES = 1 << 30
"""Bytes after which a shard ends, with the example that reaches them."""
COUNTERS = ("examples", "windows", "dead_letters", "unread_blocks", "truncated_pages")
"""The counts of ``Prepared``, and the names of Beam's counters."""


@dataclass(frozen=True)
class Prepared:
    """A finished folder of windows.

    Args:
        shards: its TFRecord files, sorted.
        reused: whether an earlier job made it.
        seconds: wall time of the job that made it.
        unread_blocks: blocks with text beyond ``max_contexts``, in all pages.
        truncated_pages: pages with such blocks.
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
        """The bad records, one JSON object a line."""
        return self.folder / DEAD_LETTERS

    def example_digests(self) -> dict[ExampleKey, int]:
        """Returns the ``example_digest`` of each example."""
        rows = np.load(self.folder / EXAMPLES).tolist()
        return {(file, line): digest for file, line, digest in rows}

    def first_dead_letter(self) -> str:
        """Returns file, line and reason of the first bad record."""
        with self.dead_letter_file.open("rb") as file:
            letter = orjson.loads(file.readline())
        return f"{letter['file']}, line {letter['line']}: {letter['reason']}"


def encode_dead_letter(letter: DeadLetter) -> str:
    """Returns one line of JSON: file, line, reason, and the beginning of the record."""
    values = {
        "file": shown(letter.source.path),
        "line": letter.source.line,
        "reason": letter.reason,
        "record": letter.record,
    }
    return visible(orjson.dumps(values).decode())


def example_digest(example: Example) -> int:
    """Returns 64 bits of a digest of everything that windows and predictions depend on.

    It ties an example to its windows and scores, which are read at another time than the page: file
    and line agree even if the file was replaced in between.

    >>> page = Example(1, "who", ["<P>", "Ada"], [True, False], ())
    >>> example_digest(page) == example_digest(Example(2, "who", page.tokens, page.is_html, ()))
    False
    """
    spans = [(c.span.start, c.span.end, c.top_level) for c in example.candidates]
    small = (example.example_id, example.question, len(example.tokens), spans)
    total = blake2b(repr(small).encode(), digest_size=8)
    total.update(bytes(example.is_html))
    if example.token_bytes is not None:
        total.update(example.token_bytes.astype(np.int64).tobytes())
    if example.original is not None:
        total.update(example.original.chars.astype(np.int64).tobytes())
        text = example.original.plain or "".join(example.original.spelling)
        total.update(text.encode("utf-8", "surrogatepass"))
    total.update("\0".join(example.tokens).encode("utf-8", "surrogatepass"))
    return int.from_bytes(total.digest(), "little", signed=True)


class StoredExample(NamedTuple):
    """What is stored of one example.

    Args:
        digest: see ``example_digest``.
        records: its windows as framed TFRecords, one after the other.
        unread_blocks: blocks with text beyond ``max_contexts``.
    """

    source: Source
    digest: int
    records: bytes
    n_windows: int
    unread_blocks: int


def write_examples(
    elements: Iterable[StoredExample | DeadLetter],
    part: Path,
    first_file: int = 0,
    max_bytes: int = SHARD_BYTES,
) -> dict[str, int]:
    """Writes shards, digests and dead letters into the folder ``part``, in the order of the input.

    The files depend on the elements alone. There is always one shard, and the windows of an example
    are never in two. Shards get their names, ``windows-00000-of-00002.tfrecord`` and so on, when
    their number is known.

    Args:
        first_file: number of the first input file, which distinguishes the shards of chunks.
        max_bytes: bytes after which a shard ends.

    Returns:
        The counts of ``Prepared``.
    """
    prefix = f"windows-{first_file}" if first_file else "windows"
    counts, digests = dict.fromkeys(COUNTERS, 0), list[tuple[int, int, int]]()
    shards = [part / f"{prefix}-00000"]
    with contextlib.ExitStack() as files:
        dead_letters = files.enter_context((part / DEAD_LETTERS).open("w", encoding="utf-8"))
        shard = files.enter_context(shards[0].open("wb"))
        for one in elements:
            if isinstance(one, DeadLetter):
                dead_letters.write(f"{encode_dead_letter(one)}\n")
                counts["dead_letters"] += 1
                continue
            if shard.tell() >= max_bytes:
                shard.close()
                shards.append(part / f"{prefix}-{len(shards):05d}")
                shard = files.enter_context(shards[-1].open("wb"))
            shard.write(one.records)
            digests.append((one.source.file_index, one.source.line, one.digest))
            counts["examples"] += 1
            counts["windows"] += one.n_windows
            counts["unread_blocks"] += one.unread_blocks
            counts["truncated_pages"] += one.unread_blocks > 0
    for path in shards:
        path.rename(f"{path}-of-{len(shards):05d}.tfrecord")
    np.save(part / EXAMPLES, np.array(digests, np.int64).reshape(-1, 3), allow_pickle=False)
    return counts


def find_completed(folder: Path, description: Mapping[str, Any]) -> Prepared | None:
    """Returns the windows in ``folder`` if a job of this description was completed there.

    The content of the shards is not read; ``WindowReader`` reads and checks it.

    Raises:
        DamagedError: such a job was completed there, and a file is missing or damaged now.
    """
    if not (folder / COMPLETED).is_file():
        return None
    try:
        manifest = storage.read_json(folder / MANIFEST)
        (folder / DEAD_LETTERS).open("rb").close()
        if manifest["request"] != description:
            return None
        for name, size in manifest["shards"].items():
            _check(folder / name, "size", size, (folder / name).stat().st_size)
        for name, digest in manifest["digests"].items():
            _check(folder / name, "SHA-256", digest, input_files.sha256(folder / name))
        shards = tuple(folder / name for name in manifest["shards"])
        return Prepared(folder, shards, **manifest["counts"], reused=True)
    except FileNotFoundError as error:
        raise DamagedError(f"{error.filename} is missing") from error
    except (LookupError, TypeError, AttributeError) as error:
        raise DamagedError(f"{folder / MANIFEST} is damaged: {error!r}") from error


def _check(path: Path, what: str, expected: object, found: object) -> None:
    if found != expected:
        raise DamagedError(f"{path} is damaged: its {what} differs from the one in {MANIFEST}")


def clear(folder: Path) -> None:
    """Removes what earlier jobs wrote, the COMPLETED mark first, and nothing else."""
    (folder / COMPLETED).unlink(missing_ok=True)
    storage.remove(storage.own_paths(folder, storage.WINDOWS))


def complete(
    part: Path, folder: Path, description: Mapping[str, Any], counts: Mapping[str, Any]
) -> Prepared:
    """Moves the files of a finished job out of its ``part`` folder and marks it as completed.

    ``counts`` are the counts and the seconds of ``Prepared``.
    """
    names, others = sorted(path.name for path in part.glob(SHARD_PATTERN)), (DEAD_LETTERS, EXAMPLES)
    sizes = {name: (part / name).stat().st_size for name in names}
    digests = {name: input_files.sha256(part / name) for name in others}
    for name in (*names, *others):
        publish(part / name, folder / name)
    manifest = {"request": description, "counts": counts, "shards": sizes, "digests": digests}
    storage.write_json(folder / MANIFEST, manifest)
    (folder / COMPLETED).touch()
    sync(folder)
    return Prepared(folder, tuple(folder / n for n in names), **counts, reused=False)
