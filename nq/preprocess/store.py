"""What a preprocessing job is asked for, and the folder it leaves behind.

windows-00000-of-00002.tfrecord …   the shards; of a later portion, windows-N-… by its first file
dead_letters.jsonl                  bad records: file, line, reason, excerpt
manifest.json                       the request, counts, and the shards with their sizes
COMPLETED                           written last; without it nothing here is reused
.nq-preprocess.lock                 says that the folder is ours; held while a job runs
.unfinished-…/                      where a running job writes; left over if it is killed
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from nq import __version__
from nq.config import WindowConfig
from nq.errors import Error
from nq.files import exclusive_lock
from nq.formats import inputs
from nq.preprocess.tokenizers.load import load_tokenizer, tokenizer_digest
from nq.records import DeadLetter

COMPLETED = "COMPLETED"
MANIFEST = "manifest.json"
DEAD_LETTERS = "dead_letters.jsonl"
SHARD_PATTERN = "windows-*.tfrecord"
PORTION_BYTES = 64 << 20
LOCK = ".nq-preprocess.lock"
UNFINISHED = ".unfinished-"
MAX_NAMES_SHOWN = 3
_LINE_ENDS = str.maketrans({c: f"\\u{ord(c):04x}" for c in "\x85\u2028\u2029"})


@dataclass(frozen=True)
class Request:
    """What a preprocessing run is asked for; equal requests give equal windows.

    Args:
        files: input files in order.
        tokenizer: folder or file of the tokenizer.
        windows: how pages become windows.
        limit: read at most so many records in all.
        training: ``(negatives, seed)`` for training features, ``None`` for inference.
        first_file: number of the first file, where others belong to another request.
    """

    files: tuple[str, ...]
    tokenizer: str
    windows: WindowConfig
    limit: int | None = None
    training: tuple[float, int] | None = None
    first_file: int = 0

    def describe(self) -> dict[str, Any]:
        """The request as the manifest keeps it, with digests in place of paths."""
        tokenizer = load_tokenizer(self.tokenizer, self.windows.compat)
        return {
            "version": __version__,
            "inputs": [{"name": Path(f).name, "sha256": inputs.sha256(f)} for f in self.files],
            "tokenizer": tokenizer_digest(tokenizer),
            "windows": self.windows.to_dict(),
            "limit": self.limit,
            "training": list(self.training) if self.training else None,
            **({"first_file": self.first_file} if self.first_file else {}),
        }

    def key(self) -> str:
        """A short name for the request's content."""
        text = json.dumps(self.describe(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def portions(request: Request) -> tuple[Request, ...]:
    """Requests for its files, some at a time, so that the first windows are there soon.

    What a limit leaves of each file shows only in all of them: such a request stays whole.
    """
    if request.limit is not None:
        return (request,)
    found, first, size = list[Request](), 0, 0
    for i, path in enumerate(request.files, start=1):
        size += os.path.getsize(path)
        if size >= PORTION_BYTES or i == len(request.files):
            number = request.first_file + first
            found.append(replace(request, files=request.files[first:i], first_file=number))
            first, size = i, 0
    return tuple(found)


@dataclass(frozen=True)
class Prepared:
    """A finished folder of windows.

    Args:
        folder: where it lies.
        shards: its TFRecord files, sorted.
        examples, windows, dead_letters: counts.
        reused: whether it was there already.
        seconds: wall time of the job that made it.
    """

    folder: Path
    shards: tuple[Path, ...]
    examples: int
    windows: int
    dead_letters: int
    reused: bool
    seconds: float

    @property
    def dead_letter_file(self) -> Path:
        """The bad records, one JSON object a line."""
        return self.folder / DEAD_LETTERS

    def first_dead_letter(self) -> str:
        """The first bad record in words: file, line and reason."""
        with self.dead_letter_file.open("rb") as file:
            letter = orjson.loads(file.readline())
        return f"{letter['file']}, line {letter['line']}: {letter['reason']}"


def encode_dead_letter(letter: DeadLetter) -> str:
    """One line of JSON: file, line, reason, and the beginning of the record."""
    values = {
        "file": os.fsencode(letter.source.path).decode("utf-8", "backslashreplace"),
        "line": letter.source.line,
        "reason": letter.reason,
        "record": letter.record,
    }
    return orjson.dumps(values).decode().translate(_LINE_ENDS)


def find_completed(folder: Path, described: dict[str, Any]) -> Prepared | None:
    """What lies in ``folder`` if a job with this description was completed there."""
    try:
        (folder / COMPLETED).stat()
        manifest = orjson.loads((folder / MANIFEST).read_bytes())
        shards = {folder / name: size for name, size in manifest["shards"].items()}
        whole = all(path.stat().st_size == size for path, size in shards.items())
        if manifest["request"] != described or not whole:
            return None
        return Prepared(folder, tuple(shards), **manifest["counts"], reused=True)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None  # not there, or not whole: made anew


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Makes ``folder`` and keeps other jobs out of it.

    Raises:
        Error: it holds other files, or another job writes there.
        OSError: it cannot be made or written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    others = {p.name for p in folder.iterdir() if not p.name.startswith(".")}
    ours = (folder / LOCK).exists() or {COMPLETED, MANIFEST} <= others
    if others and not ours:
        raise Error(f"{folder} holds other files ({_some(others)}); give an empty or a new folder")
    with exclusive_lock(folder / LOCK, "another job"):
        yield


def _some(names: set[str]) -> str:
    shown = sorted(names)[:MAX_NAMES_SHOWN]
    return ", ".join([*shown, "…"] if len(names) > len(shown) else shown)


def clear(folder: Path) -> None:
    """Takes away what jobs left in a folder of ours, and nothing else; the mark goes first."""
    for name in (COMPLETED, MANIFEST, DEAD_LETTERS):
        (folder / name).unlink(missing_ok=True)
    for path in folder.glob(SHARD_PATTERN):
        path.unlink()
    for path in folder.glob(f"{UNFINISHED}*"):
        shutil.rmtree(path)


@contextlib.contextmanager
def unfinished(folder: Path) -> Iterator[Path]:
    """A folder inside ``folder`` to write to; it goes away however the job ends.

    Beam takes ``*``, ``?`` and ``[`` in a path for patterns: such a folder gets a plain name.
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
    part: Path, folder: Path, described: dict[str, Any], counts: dict[str, Any]
) -> Prepared:
    """Moves what a job made out of its ``part`` folder and marks it as completed."""
    names = sorted(path.name for path in part.glob(SHARD_PATTERN))
    for name in (*names, DEAD_LETTERS):
        (part / name).replace(folder / name)
    sizes = {name: (folder / name).stat().st_size for name in names}
    manifest = {"request": described, "counts": counts, "shards": sizes}
    (part / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    (part / MANIFEST).replace(folder / MANIFEST)
    (folder / COMPLETED).touch()
    return Prepared(folder, tuple(folder / n for n in names), **counts, reused=False)
