"""Input files: found by name, glob, folder or address.

Standard input and pipes are copied to files, which can be read twice and by other processes.
"""

import contextlib
import glob
import logging
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from nq import hub, storage
from nq.errors import Error, check_argument
from nq.storage import file_status

log = logging.getLogger(__name__)

COMPRESSED = "", ".gz", ".bz2", ".xz", ".zst"
_LINES = ".jsonl", ".json", ".ndjson"
SHARD_SUFFIXES = (
    *(f"{kind}{end}" for kind in _LINES for end in COMPRESSED),
    ".parquet",
)
ENDINGS = ".jsonl, .json or .ndjson, these also with .gz, .bz2, .xz or .zst, or in .parquet"
Patterns = str | Path | Sequence[str | Path]
"""Files, globs, or folders of shards."""
_URI = re.compile(rf"(?!{hub.DATA})[A-Za-z][A-Za-z0-9+.-]+://")
STDIN = "-"
STDIN_PATHS = (STDIN, "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
FOLDER_PREFIX = "nq-input-"
COPIES = {"stdin": "standard input", "pipe": "a pipe"}
"""Fixed names of copied streams: prepared windows are found again by input name."""
_DESCRIPTOR_PATHS = re.compile(r"/dev/fd/\d+|/proc/self/fd/\d+")
EXPECTED = "expected records, one JSON object a line"
CHANGED = "{} has changed since it was read first: run the command again when it is complete"


class Files:
    """Finds and reads the files of a disk; that of ``nq.beam.files`` those with a URI too."""

    def found(self, patterns: Patterns) -> contextlib.AbstractContextManager[list[str]]:
        """Finds input files, in order; of streams copies, which exist inside the block."""
        return spooled(matching_files(patterns))

    def local_copy(self, path: str) -> contextlib.AbstractContextManager[str]:
        """Returns the path of a file on a disk, that of a copy if the file has a URI."""
        return contextlib.nullcontext(path)

    def digest(self, path: str) -> str:
        """Returns the SHA-256 of the bytes that a file has now."""
        return storage.sha256(path)


LOCAL = Files()


def find_files(patterns: Patterns) -> list[str]:
    """Returns the input files that match ``patterns``, in order, each once."""
    files = matching_files(patterns)
    if stream := next(filter(is_stream, files), None):
        raise ValueError(f"{shown(stream)} is no file; save the records to a file")
    return files


def matching_files(patterns: Patterns) -> list[str]:
    """Returns the input files that match, as ``find_files`` does; ``-`` and pipes are kept."""
    files: dict[Path, str] = {}
    if isinstance(patterns, str) or not isinstance(patterns, Sequence):
        patterns = [patterns]
    for pattern in patterns:
        for name in _matches(path_text(pattern)):
            files.setdefault(Path(name).resolve(), name)
    return list(files.values())


def path_list(name: str, paths: str | Path | Iterable[str | Path]) -> tuple[str, ...]:
    """Returns a list of paths as text; ``name`` is the argument's name in a ``ValueError``."""
    paths = [paths] if isinstance(paths, str | Path) else paths
    several = isinstance(paths, Iterable) and not isinstance(paths, bytes)
    check_argument(several, name, paths, "a list of files, globs or folders")
    texts = tuple(map(path_text, paths))
    check_argument(
        bool(texts),
        name,
        paths,
        "a list with at least one file, glob or folder",
    )
    return texts


def is_uri(path: str) -> bool:
    """Returns whether a path is a URI with a scheme that Beam reads, not ``hf://``.

    >>> [is_uri(text) for text in ("s3://bucket/dev.jsonl", "/dev.jsonl", "c://dev", "hf://a/b/c")]
    [True, False, False, False]
    """
    return bool(_URI.match(path))


def path_text(path: str | Path) -> str:
    """Returns a path as text; ``ValueError`` if it is neither a ``str`` nor a ``Path``."""
    if isinstance(path, str | Path):
        return str(path)
    raise ValueError(f"found {path!r:.40} instead of a path; give a str or a pathlib.Path")


def _matches(pattern: str) -> list[str]:
    path = Path(pattern)
    if pattern in STDIN_PATHS:
        return [STDIN]
    if pattern.startswith(hub.DATA):
        return hub.data_files(pattern, SHARD_SUFFIXES)
    if is_stream(pattern) or path.is_file():
        return [pattern]
    if path.is_dir():
        names = (p for p in path.iterdir() if p.name.endswith(SHARD_SUFFIXES) and p.is_file())
        matches = sorted(str(p) for p in names if not p.name.startswith("."))
        problem = f"folder {pattern} has no file ending in {ENDINGS}"
    elif path.exists():
        raise ValueError(f"{pattern} is no file, folder or pipe; give one, or - for standard input")
    else:
        matches = sorted(m for m in glob.glob(pattern, recursive=True) if Path(m).is_file())
        problem = f"no file matches {pattern}"
    if not matches:
        raise FileNotFoundError(f"{problem}; give a file, a glob in quotes, or a folder")
    return matches


@contextlib.contextmanager
def unchanged(paths: Iterable[str | Path]) -> Iterator[None]:
    """Raises ``ValueError`` at the end of the block if one of the files has changed in it."""
    before = {path: file_status(path) for path in paths}
    yield
    for path, status in before.items():
        if file_status(path) != status:
            raise ValueError(CHANGED.format(path))


def is_stream(path: str) -> bool:
    """Returns whether a path is ``-``, a pipe, or a descriptor, which other processes lack."""
    if path in STDIN_PATHS or _DESCRIPTOR_PATHS.fullmatch(path):
        return True
    with contextlib.suppress(OSError, ValueError):
        return Path(path).is_fifo()
    return False


@contextlib.contextmanager
def spooled(paths: Sequence[str]) -> Iterator[list[str]]:
    """Replaces streams by temporary copies, which exist inside the block."""
    with contextlib.ExitStack() as stack:
        yield [_spool(path, stack) if is_stream(path) else path for path in paths]


def _spool(path: str, stack: contextlib.ExitStack) -> str:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX)))
    is_stdin = path in STDIN_PATHS
    if not is_stdin:
        log.info("copying %s to a temporary file", path)
    elif sys.stdin is None:
        raise ValueError(f"standard input is closed: {EXPECTED}")
    elif sys.stdin.isatty():
        log.info("reading records from standard input; Ctrl-D ends them")
    copy = folder / ("stdin" if is_stdin else "pipe")
    with open(sys.stdin.fileno() if is_stdin else path, "rb", closefd=not is_stdin) as source:
        try:
            with copy.open("wb") as target:
                shutil.copyfileobj(source, target)
        except OSError as error:
            problem = f"{shown(path)} cannot be copied to {folder}: {error.strerror}"
            raise Error(f"{problem}; set TMPDIR to a folder with more room") from error
    if not copy.stat().st_size:
        raise ValueError(f"{shown(path)} is empty: {EXPECTED}")
    return str(copy)


def shown(path: str) -> str:
    """Returns the name of an input for results, messages and logs.

    A copy has the name of what was copied, a file of the hub its address with the commit; bytes
    that are not UTF-8 become escapes.

    >>> shown("/tmp/nq-input-x1/stdin"), shown("caf\\udce9.jsonl"), shown("a/b.jsonl")
    ('standard input', 'caf\\\\xe9.jsonl', 'a/b.jsonl')
    """
    if path in STDIN_PATHS:
        return COPIES["stdin"]
    if Path(path).parent.name.startswith(FOLDER_PREFIX) and Path(path).name in COPIES:
        return COPIES[Path(path).name]
    try:
        return os.fsencode(hub.name_of(path) or path).decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # in an ASCII locale, a name that this function has returned
        return path
