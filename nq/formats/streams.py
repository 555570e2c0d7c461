"""Standard input and pipes: they are copied to files, which can be read twice and by others."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from nq.errors import Error

log = logging.getLogger(__name__)

STDIN = "-"
STDIN_PATHS = (STDIN, "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
FOLDER_PREFIX = "nq-input-"
COPIES = {"stdin": "standard input", "pipe": "a pipe"}
"""Names of copies, which do not differ between runs, because windows are found again by them."""
_DESCRIPTOR_PATHS = re.compile(r"/dev/fd/\d+|/proc/self/fd/\d+")


def is_stream(path: str) -> bool:
    """Returns whether a path is ``-``, a pipe, or a descriptor, which other processes lack."""
    try:
        regular = not stat.S_ISFIFO(Path(path).stat().st_mode)
    except (OSError, ValueError):
        regular = True
    return path in STDIN_PATHS or bool(_DESCRIPTOR_PATHS.fullmatch(path)) or not regular


@contextlib.contextmanager
def spooled(paths: Sequence[str]) -> Iterator[list[str]]:
    """Replaces streams by copies in temporary folders, which are removed with the block."""
    with contextlib.ExitStack() as stack:
        yield [_spool(path, stack) if is_stream(path) else path for path in paths]


def _spool(path: str, stack: contextlib.ExitStack) -> str:
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX))
    copy = Path(folder) / ("stdin" if path in STDIN_PATHS else "pipe")
    with _open(path) as source, copy.open("wb") as target:
        try:
            shutil.copyfileobj(source, target)
        except OSError as error:
            raise Error(
                f"{shown(path)} cannot be copied to {folder}: {error.strerror}; set TMPDIR to a "
                "folder with more room, or give a file"
            ) from error
    if not copy.stat().st_size:
        raise ValueError(f"{shown(path)} is empty: expected records, one JSON object a line")
    return str(copy)


def _open(path: str) -> IO[bytes]:
    if path not in STDIN_PATHS:
        log.info("copying %s to a temporary file", path)
        return open(path, "rb")
    if sys.stdin is None:
        raise ValueError("standard input is closed: expected records, one JSON object a line")
    if sys.stdin.isatty():
        log.info("reading records from standard input; Ctrl-D ends them")
    return open(sys.stdin.fileno(), "rb", closefd=False)


def shown(path: str) -> str:
    """Returns the name of an input for results, messages and logs.

    A copy has the name of what was copied; bytes that are not UTF-8 become escapes.

    >>> shown("/tmp/nq-input-x1/stdin"), shown("caf\\udce9.jsonl"), shown("a/b.jsonl")
    ('standard input', 'caf\\\\xe9.jsonl', 'a/b.jsonl')
    """
    if path in STDIN_PATHS:
        return COPIES["stdin"]
    if Path(path).parent.name.startswith(FOLDER_PREFIX) and Path(path).name in COPIES:
        return COPIES[Path(path).name]
    try:
        return os.fsencode(path).decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # in an ASCII locale, a name that this function has returned
        return path
