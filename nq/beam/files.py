"""Files that every worker sees, by a path or by a URI such as ``s3://bucket/dev.jsonl.gz``.

URIs are read and written by Beam's ``FileSystems``; extras of Apache Beam such as
``apache-beam[aws]`` bring their schemes. All readers of nq read files on a disk, so that a file
with a URI is first copied: compressed text cannot be divided; who reads a share reads it all.
"""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast

from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from nq.beam.runner import parse_options
from nq.errors import Error
from nq.formats import decoding, input_files, inputs
from nq.formats.input_files import SHARD_SUFFIXES, is_uri
from nq.formats.questions import PageFolder
from nq.records import DeadLetter, Example, Source

BYTES = "application/octet-stream"
COPY_PREFIX = "nq-copy-"
SCHEMES = {"s3": ("boto3", "aws"), "gs": ("apitools", "gcp"), "hdfs": ("hdfs", "hadoop")}
"""The package that Beam needs for a scheme, and the extra of Beam that brings it."""


def find_files(patterns: Sequence[str]) -> list[str]:
    """Returns the files that match patterns, in order.

    Args:
        patterns: files, globs and folders, as ``input_files.find_files`` takes them, or URIs of
            files, with ``*`` and ``?``, or of folders, with a slash at the end.

    Raises:
        FileNotFoundError: a pattern matches nothing.
        ValueError: a pattern is no file, or the package for a scheme is not installed.
        OSError: a file system cannot be reached.
    """
    files: dict[str, None] = {}
    for pattern in patterns:
        names = _matches(pattern) if is_uri(pattern) else input_files.find_files([pattern])
        files |= dict.fromkeys(names)
    return list(files)


def _matches(pattern: str) -> list[str]:
    is_folder = pattern.endswith("/")
    names = sorted(match_files(f"{pattern}*" if is_folder else pattern))
    if is_folder:
        names = [name for name in names if name.endswith(SHARD_SUFFIXES)]
    if not names:
        raise FileNotFoundError(
            f"no file matches {pattern}; give a file, a glob in quotes, or a folder that ends in /"
        )
    return names


def check_packages(paths: Sequence[str]) -> None:
    """Checks that the packages are installed that Beam needs for the schemes of URIs.

    Raises:
        Error: one is missing; Beam itself fails later, in several ways.
    """
    for path in paths:
        scheme = path.partition("://")[0] if is_uri(path) else ""
        package, extra = SCHEMES.get(scheme, ("", ""))
        if package and importlib.util.find_spec(package) is None:
            raise Error(
                f"{path}: {package} is not installed: run pip install 'apache-beam[{extra}]' for "
                f"{scheme}://"
            )


def match_files(pattern: str) -> list[str]:
    """Returns the paths of all files that match a path or URI with ``*`` and ``?``.

    Raises:
        ValueError: the package for the scheme is not installed.
        OSError: the file system cannot be reached.
    """
    (found,) = FileSystems.match([pattern])
    return [metadata.path for metadata in found.metadata_list]


def open_file(path: str) -> IO[bytes]:
    """Opens a file for reading, as it is: gzip is not decompressed."""
    file = FileSystems.open(path, BYTES, CompressionTypes.UNCOMPRESSED)
    return cast(IO[bytes], file)


def create_file(path: str) -> IO[bytes]:
    """Opens a new file for writing; in an object store it appears when it is closed."""
    file = FileSystems.create(path, BYTES, CompressionTypes.UNCOMPRESSED)
    return cast(IO[bytes], file)


def copy_file(source: str, target: str) -> None:
    """Copies a file, in pieces; each of both is a path or a URI."""
    with open_file(source) as reader, create_file(target) as writer:
        shutil.copyfileobj(reader, writer)


def join(folder: str, *names: str) -> str:
    """Returns the path or URI of what is in a folder."""
    return str(FileSystems.join(folder, *names))


@contextlib.contextmanager
def new_folder(parent: str, name: str) -> Iterator[str]:
    """Makes a folder of this name, which is removed with its files when the block ends.

    Raises:
        OSError: it cannot be made.
    """
    folder = join(parent, name)
    FileSystems.mkdirs(folder)
    try:
        yield folder
    finally:
        with contextlib.suppress(Exception):  # workers that still run may write to it
            FileSystems.delete([folder])


@contextlib.contextmanager
def local_copy(path: str) -> Iterator[str]:
    """Yields the path of a file on a disk: ``path`` itself, or of a copy if it is a URI.

    The copy has the name of the file, and is removed when the block ends.
    """
    if not is_uri(path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix=COPY_PREFIX) as folder:
        copy = Path(folder) / Path(path).name
        copy_file(path, str(copy))
        yield str(copy)


def read_records(
    path: str,
    file_index: int = 0,
    share: tuple[int, int] = (0, 1),
    limit: int | None = None,
    pages: PageFolder | None = None,
) -> Iterator[tuple[Source, Example | DeadLetter]]:
    """Yields what ``decoding.read_records`` does, of a file with a path or a URI."""
    with local_copy(path) as copy:
        yield from decoding.read_records(copy, file_index, share, limit, pages=pages, name=path)


def count_records(path: str, limit: int | None = None) -> int:
    """Returns what ``decoding.count_records`` does, of a file with a path or a URI."""
    with local_copy(path) as copy:
        return decoding.count_records(copy, limit)


def check(
    files: Sequence[str], limit: int | None = None, pages: PageFolder | None = None
) -> dict[str, str]:
    """Checks input files as a run without Beam does.

    Returns:
        The SHA-256 of each file, by its path or URI.

    Raises:
        Error: every record is bad.
        OSError: a file cannot be read.
        ValueError: a file as a whole is of no use.
    """
    digests = {}
    for path in files:
        with local_copy(path) as copy:
            try:
                inputs.check_files([copy])
            except ValueError as error:
                raise ValueError(str(error).replace(copy, path)) from error
            digests[path] = input_files.sha256(copy)
    inputs.check_records(files, limit, pages, read_records)
    return digests


def status(path: str) -> Any:
    """Returns what changes with a file: its size and its time."""
    (found,) = FileSystems.match([path])
    return [(one.size_in_bytes, one.last_updated_in_seconds) for one in found.metadata_list]


def check_unchanged(statuses: Mapping[str, Any]) -> None:
    """Checks that files have not changed.

    Args:
        statuses: what ``status`` returned for each file.

    Raises:
        Error: a file has changed, or is gone.
    """
    for path, before in statuses.items():
        if status(path) != before:
            raise Error(
                f"{path} has changed since this command began to read it: run the command again "
                "when the file is complete"
            )


def absolute(path: str) -> str:
    """Returns the path of a file from the root, since workers have other working folders."""
    return path if is_uri(path) else str(Path(path).absolute())


def set_options(options: Sequence[str]) -> None:
    """Sets the options of Beam's file systems, such as an endpoint of S3, for this process."""
    FileSystems.set_options(parse_options(options))
