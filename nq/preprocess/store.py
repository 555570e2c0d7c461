"""The folder that a preprocessing job writes.

windows-00000-of-00002.tfrecord …   the shards; windows-N-… for a chunk that begins with file N
dead_letters.jsonl                  bad records: file, line, reason, excerpt
manifest.json                       the request, counts, and the shards with their sizes
COMPLETED                           written last; without it nothing here is reused
.nq-preprocess.lock                 marks the folder as ours; locked while a job runs
.unfinished-…/                      where a running job writes; remains if it is killed
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from nq.errors import Error
from nq.files import exclusive_lock
from nq.records import DeadLetter

COMPLETED = "COMPLETED"
MANIFEST = "manifest.json"
DEAD_LETTERS = "dead_letters.jsonl"
SHARD_PATTERN = "windows-*.tfrecord"
LOCK = ".nq-preprocess.lock"
UNFINISHED = ".unfinished-"
MAX_NAMES_SHOWN = 3
_LINE_ENDS = str.maketrans({c: f"\\u{ord(c):04x}" for c in "\x85\u2028\u2029"})


@dataclass(frozen=True)
class Prepared:
    """A finished folder of windows.

    Args:
        folder: the folder.
        shards: its TFRecord files, sorted.
        examples, windows, dead_letters: counts.
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

    def first_dead_letter(self) -> str:
        """Returns file, line and reason of the first bad record."""
        with self.dead_letter_file.open("rb") as file:
            letter = orjson.loads(file.readline())
        return f"{letter['file']}, line {letter['line']}: {letter['reason']}"


def shard_prefix(first_file: int) -> str:
    """Returns how the names of the shards begin, which differ between chunks."""
    return f"windows-{first_file}" if first_file else "windows"


def encode_dead_letter(letter: DeadLetter) -> str:
    """Returns one line of JSON: file, line, reason, and the beginning of the record."""
    values = {
        "file": os.fsencode(letter.source.path).decode("utf-8", "backslashreplace"),
        "line": letter.source.line,
        "reason": letter.reason,
        "record": letter.record,
    }
    return orjson.dumps(values).decode().translate(_LINE_ENDS)


def find_completed(folder: Path, description: Mapping[str, Any]) -> Prepared | None:
    """Returns the windows in ``folder`` if a job of this description was completed there."""
    try:
        (folder / COMPLETED).stat()
        manifest = orjson.loads((folder / MANIFEST).read_bytes())
        shards = {folder / name: size for name, size in manifest["shards"].items()}
        whole = all(path.stat().st_size == size for path, size in shards.items())
        if manifest["request"] != description or not whole:
            return None
        return Prepared(folder, tuple(shards), **manifest["counts"], reused=True)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None  # missing or damaged: the job runs again


@contextlib.contextmanager
def exclusive_folder(folder: Path) -> Iterator[None]:
    """Creates ``folder`` and holds its lock.

    Raises:
        Error: it holds other files, or another job writes to it.
        OSError: it cannot be created or written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    ours = (folder / LOCK).exists() or {COMPLETED, MANIFEST} <= set(names)
    if names and not ours:
        shown = ", ".join(names[:MAX_NAMES_SHOWN] + ["…"] * (len(names) > MAX_NAMES_SHOWN))
        raise Error(f"{folder} holds other files ({shown}); give an empty or a new folder")
    with exclusive_lock(folder / LOCK, "another job"):
        yield


def clear(folder: Path) -> None:
    """Removes what earlier jobs wrote, the COMPLETED mark first, and nothing else."""
    for name in (COMPLETED, MANIFEST, DEAD_LETTERS):
        (folder / name).unlink(missing_ok=True)
    for path in folder.glob(SHARD_PATTERN):
        path.unlink()
    for path in folder.glob(f"{UNFINISHED}*"):
        shutil.rmtree(path)


@contextlib.contextmanager
def unfinished(folder: Path) -> Iterator[Path]:
    """Yields a folder inside ``folder`` to write to, which is removed however the job ends.

    Beam takes ``*``, ``?`` and ``[`` in a path for patterns; such a folder is reached by a link.
    """
    part = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=folder)).resolve()
    try:
        if glob.escape(str(part)) == str(part):
            yield part
        else:
            with tempfile.TemporaryDirectory(prefix="nq-") as elsewhere:
                plain = Path(elsewhere) / "part"
                plain.symlink_to(part)
                yield plain
    finally:
        shutil.rmtree(part, ignore_errors=True)


def publish(
    part: Path, folder: Path, description: Mapping[str, Any], counts: Mapping[str, Any]
) -> Prepared:
    """Moves the files of a finished job out of its ``part`` folder and marks it as completed.

    Args:
        part: the folder of ``unfinished``.
        folder: the job's folder.
        description: of the request.
        counts: the counts and seconds of ``Prepared``.
    """
    names = sorted(path.name for path in part.glob(SHARD_PATTERN))
    for name in (*names, DEAD_LETTERS):
        (part / name).replace(folder / name)
    sizes = {name: (folder / name).stat().st_size for name in names}
    manifest = {"request": description, "counts": counts, "shards": sizes}
    (part / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    (part / MANIFEST).replace(folder / MANIFEST)
    (folder / COMPLETED).touch()
    return Prepared(folder, tuple(folder / n for n in names), **counts, reused=False)
