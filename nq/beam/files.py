"""Files and models that every worker sees, by a path or by a URI such as ``s3://bucket/dev.jsonl``.

URIs are read and written by Beam's ``FileSystems``; extras of Apache Beam such as
``apache-beam[aws]`` bring their schemes. All formats are read from files on a disk, so that a file
with a URI is first copied: compressed text cannot be divided; who reads a share reads it all.
"""

import atexit
import contextlib
import glob
import importlib.util
import re
import shutil
import tempfile
import threading
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nq.beam.runner import CompressionTypes, FileSystem, FileSystems, parse_options
from nq.errors import DamagedError, Error
from nq.formats.input_files import SHARD_SUFFIXES, Files, Patterns, find_files, is_uri, path_list
from nq.model.folder import ModelFolder
from nq.storage import sha256
from nq.text import visible

COPY_PREFIX = "nq-copy-"
SCHEMES = {"s3": ("boto3", "aws"), "gs": ("apitools", "gcp"), "hdfs": ("hdfs", "hadoop")}
"""The package that Beam needs for a scheme, and the extra of Beam that brings it."""
_STAGED = re.compile(r"model-([0-9a-f]{64})\.zip$")
_unpacked: dict[str, Path] = {}
_unpacking = threading.Lock()


def set_options(options: Sequence[str], paths: Sequence[str]) -> None:
    """Sets the options of Beam's file systems, and checks that there is one for each path."""
    FileSystems.set_options(parse_options(options))
    for path in filter(is_uri, paths):
        scheme = path.partition("://")[0]
        package, extra = SCHEMES.get(scheme, ("", ""))
        if package and importlib.util.find_spec(package) is None:
            raise Error(f"{path}: {package} is missing: run pip install 'apache-beam[{extra}]'")
        if scheme not in {one.scheme() for one in FileSystem.get_all_subclasses()}:
            known = "://, ".join(SCHEMES)
            raise Error(f"{path}: Beam has no file system for it: give a path, or {known}://")


def match_files(pattern: str) -> list[str]:
    """Returns the paths of all files that match a path or URI with ``*`` and ``?``."""
    (match,) = FileSystems.match([pattern])
    return [metadata.path for metadata in match.metadata_list]


def check_no_pattern(folder: Path) -> None:
    """Checks that Beam, which takes paths for patterns, finds the files in a folder."""
    if glob.escape(str(folder)) != visible(str(folder)):
        problem = f"Beam takes *, ? and [ in {folder} for patterns, and refuses odd bytes"
        raise Error(f"{problem}: give another folder")


def copy_file(source: str, target: str) -> None:
    """Copies a file as it is; each of both is a path or a URI."""
    as_it_is: dict[str, Any] = {"compression_type": CompressionTypes.UNCOMPRESSED}
    with (
        FileSystems.open(source, **as_it_is) as reader,
        FileSystems.create(target, **as_it_is) as writer,
    ):
        shutil.copyfileobj(reader, writer)


@contextlib.contextmanager
def new_folder(parent: str, name: str, *others: str) -> Iterator[str]:
    """Makes a folder at a path or URI, which is removed with its files when the block ends.

    The ``others``, which need not exist, are removed before.
    """

    def remove(*folders: str) -> None:
        for folder in folders:
            with contextlib.suppress(Exception):  # workers that still run may write to it
                FileSystems.delete(match_files(f"{folder}/**"))  # stores of objects have no folders
                FileSystems.delete([folder])

    folder, *left = (FileSystems.join(parent, one) for one in (name, *others))
    remove(*left)
    FileSystems.mkdirs(folder)
    try:
        yield folder
    finally:
        remove(folder)


class BeamFiles(Files):
    """Files with a path, or with a URI that a file system of Beam reads.

    Patterns with a URI are of files, with ``*`` and ``?``, or of folders, with a slash at the end.
    """

    def __init__(self) -> None:
        self._digests: dict[Any, str] = {}

    def found(self, patterns: Patterns) -> contextlib.AbstractContextManager[list[str]]:
        files: dict[str, None] = {}
        for pattern in path_list("files", patterns):
            if not is_uri(pattern):
                files |= dict.fromkeys(find_files([pattern]))
                continue
            names = sorted(match_files(f"{pattern}*" if pattern.endswith("/") else pattern))
            if pattern.endswith("/"):
                names = [name for name in names if name.endswith(SHARD_SUFFIXES)]
            if not names:
                problem = f"no file matches {pattern}"
                raise FileNotFoundError(f"{problem}: give a file, a glob, or FOLDER/")
            files |= dict.fromkeys(names)
        return contextlib.nullcontext(list(files))

    @contextlib.contextmanager
    def local_copy(self, path: str) -> Iterator[str]:
        if not is_uri(path):
            yield path
            return
        with tempfile.TemporaryDirectory(prefix=COPY_PREFIX) as folder:
            copy = Path(folder) / Path(path).name
            status = _status(path)
            copy_file(path, str(copy))
            if status not in self._digests:
                self._digests[status] = sha256(copy)
            yield str(copy)

    def digest(self, path: str) -> str:
        """Returns the SHA-256 of a file; one with a URI is read again if size or time differ."""
        if not is_uri(path):
            return sha256(path)
        if (status := _status(path)) not in self._digests:
            with self.local_copy(path):
                pass
        return self._digests[status]


BEAM = BeamFiles()


def _status(path: str) -> tuple[str, int, float]:
    (match,) = FileSystems.match([path])
    (file,) = match.metadata_list
    return path, file.size_in_bytes, file.last_updated_in_seconds


def absolute(path: str) -> str:
    """Returns the path of a file from the root, since workers have other working folders."""
    return path if is_uri(path) else str(Path(path).absolute())


def stage_model(folder: Path, parent: str) -> str:
    """Copies a model as a zip archive to a shared folder and returns the archive's path."""
    with tempfile.TemporaryDirectory(prefix=COPY_PREFIX) as temporary:
        copy = Path(temporary) / "model"
        ModelFolder(folder).copy(copy)
        archive = copy.with_suffix(".zip")
        with zipfile.ZipFile(archive, "w") as file:
            for path in sorted(copy.iterdir()):
                file.write(path, path.name)
        staged = str(FileSystems.join(parent, f"model-{sha256(archive)}.zip"))
        copy_file(str(archive), staged)
    return staged


def local_folder(model: str) -> Path:
    """Returns the folder of a model on this machine; unpacks an archive of ``stage_model``."""
    name = _STAGED.search(model)
    if name is None:
        return Path(model)
    with _unpacking:
        if model not in _unpacked:
            folder = Path(tempfile.mkdtemp(prefix=COPY_PREFIX))
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            archive = folder / "model.zip"
            copy_file(model, str(archive))
            if sha256(archive) != name[1]:
                raise DamagedError(f"{model} is damaged: its SHA-256 is not that in its name")
            with zipfile.ZipFile(archive) as file:  # which writes in this folder, and no links
                file.extractall(folder / "model")
            archive.unlink()
            _unpacked[model] = folder / "model"
        return _unpacked[model]
