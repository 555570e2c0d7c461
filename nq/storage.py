"""Files that survive a kill, a crash and a damaged disk, and the folders that commands write.

Files are written whole or not at all. JSON objects carry the SHA-256 of their other members in the
member ``sha256``, and in ``format`` the number of the layout of all files that commands read again.
Files of arrays are ``.npz``, followed by the SHA-256 of their bytes.

A command writes to a folder that is new, is empty, or carries the mark of its kind: the file
``MARK``, which names the kind. In its own folder a command overwrites and removes only the files
that the kind names, so that files of the user survive there, but not in its folders of unfinished
work and of scores, which are wholly the program's. While it writes, it holds ``LOCK``.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import stat
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from nq.errors import DamagedError, Error
from nq.text import listed

if TYPE_CHECKING:
    import numpy as np

TEMPORARY = re.compile(r"\.[0-9a-f]{12}\.tmp\Z")
"""Matches what ends the name of a file while ``atomic_write`` writes it."""
WORK = "unfinished"
"""The folder in an output folder that has all of an unfinished run or training."""
DEAD_LETTERS = "skipped.jsonl"
"""The bad records of a run, and of windows."""
MARK = ".nq-folder.json"
LOCK = ".nq-folder.lock"
UNFINISHED = ".unfinished-"
PAGE_MARK = b'<meta name="generator" content="nq">'
"""Is in the first 4 KiB of every HTML page that a command writes."""
SHA256 = "sha256"
FORMAT = "format"
FORMAT_NUMBER = 4
"""A change of a file that commands read again adds 1; what has another number is made again."""
TIMESTAMP_STEP_NS = 2 * 10**9
"""The coarsest step of a file system's timestamps (FAT)."""
LOCK_ATTEMPTS = 1000
MAX_NAMES_SHOWN = 3
FULL = {os.strerror(number): number for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)}
_NEVER_WAIT = os.O_NOFOLLOW | os.O_NONBLOCK
"""Opens neither the target of a link nor, waiting for its other end, a pipe."""
_DIGEST_BYTES = 32


# --- files --------------------------------------------------------------------------------------


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[IO[bytes]]:
    """Opens ``path`` for writing; its former content stays until all is written.

    The file is written under a name of its own, and when the block ends without an error it is
    synced and renamed, so that a crash of the machine leaves the former content or the new one.
    """
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex[:12]}.tmp")
    try:
        with naming(path), open(temporary, "x+b") as file:
            yield file
        publish(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Raises any library's disk-full error as an ``OSError`` that names the file."""
    try:
        yield
    except Exception as error:
        number = next((number for text, number in FULL.items() if text in str(error)), None)
        if number is None or getattr(error, "filename", None):
            raise
        raise OSError(number, os.strerror(number), str(path)) from error


def publish(file: Path, path: Path) -> None:
    """Renames a closed file to ``path``, in the same file system, and waits for the disk."""
    sync(file)
    file.replace(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on the disk.

    Some file systems cannot sync a folder; there the names are as safe as the file system is.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        if not path.is_dir():
            raise
    finally:
        os.close(descriptor)


def file_status(path: str | Path) -> tuple[int, ...]:
    """Returns size, device, inode and times (ns) of a file; it has changed if these have."""
    status = Path(path).stat()
    place = status.st_dev, status.st_ino
    return status.st_size, *place, status.st_mtime_ns, status.st_ctime_ns


def sha256(path: str | Path) -> str:
    """Returns the SHA-256 of a file's bytes; a file is read again only if it may have changed.

    It may if its status differs, or is so recent that another change may have the same time.
    """
    status = file_status(path)
    *_, modified_ns, changed_ns = status
    if time.time_ns() - max(modified_ns, changed_ns) < TIMESTAMP_STEP_NS:
        return _digest.__wrapped__(path, status)
    return _digest(path, status)


@cache
def _digest(path: str | Path, status: tuple[int, ...]) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Writes a JSON object with its format and checksum, as which no member may be named."""
    values = {FORMAT: FORMAT_NUMBER, **values}
    with atomic_write(path) as file:
        sealed = {**values, SHA256: digest_json(values)}
        file.write(json.dumps(sealed, indent=2).encode() + b"\n")


def read_json(path: Path) -> dict[str, Any]:
    """Returns the members of a JSON object without its format and checksum, which must be right."""
    try:
        values = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path} is damaged: {error}") from error
    if not isinstance(values, dict):
        raise DamagedError(f"{path} is damaged: expected a JSON object")
    if values.pop(SHA256, None) != digest_json(values):
        raise DamagedError(f"{path} is damaged: its checksum does not match")
    if values.pop(FORMAT, None) != FORMAT_NUMBER:
        raise DamagedError(f"{path} was written by another version of nq")
    return values


def digest_json(values: Any) -> str:
    """Returns the SHA-256 of JSON values, which does not depend on the order of members."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Writes an ``.npz`` file with its checksum."""
    import numpy as np

    with atomic_write(path) as file:
        np.savez(file, allow_pickle=False, **arrays)
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").digest()  # type: ignore[arg-type]
        file.write(digest)


def read_arrays(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Returns the arrays of an ``.npz`` file, whose checksum must be right."""
    import numpy as np

    data = path.read_bytes()
    content = memoryview(data)[:-_DIGEST_BYTES]
    if hashlib.sha256(content).digest() != data[-_DIGEST_BYTES:]:
        raise DamagedError(f"{path} is damaged: its checksum does not match")
    del content, data  # which may be as large as the arrays
    with np.load(path) as archive:
        return dict(archive)


def cache_folder() -> Path:
    """Returns the folder of what is kept for this user between runs; it need not exist."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))  # noqa: PTH111 - never raises
    if not home.is_absolute():  # the user has no home folder, so that nothing is kept
        home = Path(os.devnull)
    return home / "nq"


# --- kinds of folders ---------------------------------------------------------------------------

_ALL = rf"(?!{re.escape(MARK)}|{re.escape(LOCK)}).+"


@dataclass(frozen=True)
class Kind:
    """A kind of folder that commands write; the module that writes it defines it.

    ``files`` and ``folders`` are regular expressions of what commands write, relative to the
    folder. The mark has the ``name``, messages say ``what`` it is.
    """

    name: str
    what: str
    files: str
    folders: str = ""

    def is_file(self, name: str) -> bool:
        r"""Returns whether a command writes a file of this name, relative to the folder.

        >>> run = Kind("run", "a run", r"metrics\.json|scores/.+")
        >>> run.is_file("metrics.json"), run.is_file("mine.json"), run.is_file("scores/mine.npz")
        (True, False, True)
        """
        return bool(re.fullmatch(self.files, TEMPORARY.sub("", name)))

    def is_folder(self, name: str) -> bool:
        """Returns whether a command makes a folder of this name, relative to the folder."""
        return bool(re.fullmatch(self.folders, name))


PART = Kind("job", "files of an unfinished job", _ALL, _ALL)


def kind_of(folder: Path) -> str:
    """Returns the kind in a folder's mark; empty without one."""
    kind, _ = _mark(folder)
    return kind


def _mark(folder: Path) -> tuple[str, str]:
    """Returns the kind in a folder's mark and what it is; both are empty without a mark."""
    with contextlib.suppress(
        OSError,
        ValueError,
        LookupError,
        TypeError,
        RecursionError,
    ):
        mark = json.loads((folder / MARK).read_bytes())
        return str(mark["kind"]), str(mark.get("what", ""))
    return "", ""


def own_paths(folder: Path, kind: Kind, within: str = "") -> Iterator[Path]:
    """Yields the paths in a folder that commands write; what is in a folder comes before it.

    The folder need not exist. Links are not followed. Only the part ``within`` it is read, a path
    with a slash at its end.
    """
    with contextlib.suppress(FileNotFoundError):
        for path in sorted((folder / within).iterdir()):
            relative = f"{within}{path.name}"
            if kind.is_folder(relative) and path.is_dir() and not path.is_symlink():
                yield from own_paths(folder, kind, f"{relative}/")
                yield path
            elif kind.is_file(relative) or kind.is_folder(relative):
                yield path


def size(folder: Path, kind: Kind) -> int:
    """Returns the bytes of the files that commands wrote into a folder."""
    return sum(path.lstat().st_size for path in own_paths(folder, kind) if not path.is_dir())


def remove(paths: Iterable[Path]) -> None:
    """Removes files, and folders that are empty or have only a lock."""
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            release(path, remove_empty=True)
        else:
            path.unlink(missing_ok=True)


# --- before and while a command writes to a folder ----------------------------------------------


def check_folder(folder: Path, kind: Kind, inputs: Iterable[str | Path] = ()) -> None:
    """Checks that a command may write to a folder, and changes nothing.

    The folder need not exist. It may not hold files of others, nor a link or a folder in the place
    of a file, or the reverse. No input, or file in a folder of inputs, may be a file to write.
    """
    check_writable(folder)
    written = list(own_paths(folder, kind))
    for path in written:
        name = path.relative_to(folder).as_posix()
        _check_type(path, kind.is_file(name), kind.is_folder(name))
    files = {_identity(path): path for path in written if path.is_file()}
    for source in map(Path, inputs):
        for path in source.iterdir() if source.is_dir() else [source]:
            if path.is_file() and (same := files.get(_identity(path))):
                raise Error(
                    f"the input {path} is the file {same}, which would be written: give another "
                    "output folder"
                )
    names = []
    with contextlib.suppress(FileNotFoundError):
        names = sorted(path.name for path in folder.iterdir() if path.name[0] != ".")
    mark, what = _mark(folder)  # after the names: a command marks a folder before it writes files
    if names and mark != kind.name:
        content = what or f"other files ({listed(names, MAX_NAMES_SHOWN)})"
        raise Error(f"{folder} holds {content}; give an empty or a new folder")


def _identity(path: Path) -> tuple[int, int] | None:
    """Returns device and inode, which all links to a file share; ``None`` if there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def check_writable(folder: Path) -> None:
    """Checks that files can be written to a folder, or that it can be created."""
    for path in (folder, *folder.absolute().parents):
        is_folder = is_writable = False
        try:
            # All is asked of what is there now: others may make or remove the folder meanwhile.
            descriptor = os.open(path, os.O_PATH)
        except OSError:
            if not path.is_symlink():
                continue
        else:
            is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
            is_writable = os.access(".", os.W_OK | os.X_OK, dir_fd=descriptor)
            os.close(descriptor)
        if not is_folder:
            kind = f"a link to {path.readlink()}" if path.is_symlink() else "a file"
            raise NotADirectoryError(f"{path} is {kind}, expected a folder: give another one")
        if not is_writable:
            raise PermissionError(f"{path} cannot be written: give another folder, or allow it")
        return


def _check_type(path: Path, may_be_file: bool, may_be_folder: bool) -> None:
    """Checks that a path has the type, file or folder, that a command would write there."""
    is_folder = path.is_dir()
    is_link = path.is_symlink()
    is_expected = may_be_folder if is_folder else may_be_file and not is_link
    if not is_expected:
        content = "a link" if is_link else "a folder" if is_folder else "a file"
        expected = "a file" if may_be_file else "a folder"
        raise Error(f"{path} is {content}, expected {expected}: remove it, or give another folder")
    if is_folder:
        check_writable(path)


def check_output_file(path: Path, inputs: Iterable[str | Path] = (), mark: bytes = b"") -> None:
    """Checks that a file can be written, is no input, and is new, empty or begins with a mark.

    A mark may be within the first 4 KiB.
    """
    check_writable(path.parent)
    for source in map(Path, inputs):
        if path.exists() and source.exists() and source.samefile(path):
            raise Error(f"the input {source} is the file to write: give another file")
    if path.is_symlink() or path.exists():
        _check_type(path, may_be_file=True, may_be_folder=False)
        if path.is_file():
            with open(path, "rb") as file:
                start = file.read(4096)
            if not start or mark in start:
                return
        raise Error(f"{path} exists, and this command did not write it: give another file")


@contextlib.contextmanager
def hold(folder: Path, kind: Kind, inputs: Iterable[str | Path] = ()) -> Iterator[None]:
    """Checks, marks and locks a folder until the block ends.

    The folder is created, and removed again if the block leaves nothing in it. It is an error if
    another command writes to it.
    """
    check_folder(folder, kind, inputs)
    is_new = not folder.exists()
    mark = {"kind": kind.name, "what": kind.what}
    with exclusive_lock(folder / LOCK), naming(folder):
        try:
            own = (path for path in own_paths(folder, kind) if TEMPORARY.search(path.name))
            remove([*own, *folder.glob(f"{MARK}.*.tmp")])  # a killed process left them
            if kind_of(folder) != kind.name:
                write_json(folder / MARK, mark)
            yield
        except FileNotFoundError as error:
            if (folder / MARK).exists():
                raise
            raise Error(f"{folder} was removed during the work: run the command again") from error
        finally:
            with contextlib.suppress(OSError):
                if not (folder / MARK).exists():  # something was made in a folder that was removed
                    write_json(folder / MARK, mark)
            release(folder, is_new)


@contextlib.contextmanager
def hold_marked(folder: Path) -> Iterator[None]:
    """Locks a folder until the block ends if it has a mark; does nothing otherwise."""
    if not kind_of(folder):
        yield
        return
    with exclusive_lock(folder / LOCK):
        try:
            yield
        finally:
            release(folder, remove_empty=False)


@contextlib.contextmanager
def unfinished(parent: Path) -> Iterator[Path]:
    """Yields a new, locked ``PART`` folder, removed at the end, with those of killed processes."""
    for left in parent.glob(f"{UNFINISHED}*"):
        with contextlib.suppress(OSError, Error), exclusive_lock(left / LOCK):
            remove(own_paths(left, PART) if kind_of(left) == PART.name else ())
            release(left, remove_empty=True)
    with hold_part(parent.absolute() / f"{UNFINISHED}{uuid.uuid4().hex[:12]}") as folder:
        yield folder


@contextlib.contextmanager
def hold_part(folder: Path) -> Iterator[Path]:
    """Yields a ``PART`` folder, empty and locked, and removes it at the end, its mark last."""
    with hold(folder, PART):
        try:
            remove(own_paths(folder, PART))  # a killed process left them
            yield folder
        finally:
            with contextlib.suppress(OSError):  # a worker may still write to it
                remove(own_paths(folder, PART))
            release(folder, remove_empty=True)


def release(folder: Path, remove_empty: bool) -> None:
    """Removes the lock, which the caller holds, and the mark if the folder is otherwise empty."""
    with contextlib.suppress(FileNotFoundError):  # somebody removed the folder
        paths = [path for path in folder.iterdir() if path.name != LOCK]
        if {TEMPORARY.sub("", path.name) for path in paths} <= {MARK}:
            remove(paths)
        (folder / LOCK).unlink(missing_ok=True)
    if remove_empty:
        with contextlib.suppress(OSError):
            folder.rmdir()


@contextlib.contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Holds the lock on the file ``path``, which the system releases with the process.

    The file, which may not be a link, and its folder are created; the holder may remove both. It
    is an error if another process holds the lock.
    """
    for _ in range(LOCK_ATTEMPTS):
        with contextlib.suppress(FileExistsError):  # opening the lock reports a file in the way
            path.parent.mkdir(parents=True)
        with contextlib.ExitStack() as closing:
            try:
                number = os.open(path, _NEVER_WAIT | os.O_RDWR | os.O_CREAT, 0o666)
                file = closing.enter_context(open(number, "r+b", buffering=0))
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not os.path.samestat(os.fstat(number), path.stat()):
                    continue  # its last holder has just removed the file
            except FileNotFoundError:
                continue
            except BlockingIOError as error:
                raise Error(
                    f"{_process(file)} writes to {path.parent}; wait for it, or give another folder"
                ) from error
            except OSError as error:
                error.filename = error.filename or str(path)  # that of flock has none
                raise
            file.truncate(0)
            file.write(f"{os.getpid()}\n".encode())
            yield
            return
    raise FileNotFoundError(f"{path.parent} cannot be created: give another folder")


def lock_holder(path: Path) -> str:
    """Returns the process that holds the lock file ``path``, empty if none; changes nothing."""
    try:
        with open(os.open(path, _NEVER_WAIT | os.O_RDONLY), "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return _process(file)
    except OSError:  # there is none
        pass
    return ""


def _process(file: IO[bytes]) -> str:
    number = file.read(20).decode("ascii", "replace").strip()
    return f"process {number}" if number else "another process"
