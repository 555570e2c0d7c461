"""A file system of Beam under a scheme of its own, whose files are in folders of this machine."""

import posixpath
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from apache_beam.io.filesystem import FileMetadata, FileSystem
from apache_beam.io.localfilesystem import LocalFileSystem

SCHEME = "folder"
PREFIX = f"{SCHEME}://"
PLUGIN = "tests.beam.folder_file_system.FolderFileSystem"


def uri(path: object) -> str:
    """Returns the URI of a path from the root."""
    return f"{PREFIX}{path}"


def plain(path: str) -> str:
    """Returns the path of a URI."""
    assert path.startswith(PREFIX), f"{path} reached the file system without its scheme"
    return path.removeprefix(PREFIX)


def _local(name: str, n_uris: int = 1) -> Callable[..., Any]:
    """Returns a method that calls the one of Beam's local file system with the paths of URIs."""

    def paths(uris: str | list[str]) -> str | list[str]:
        return list(map(plain, uris)) if isinstance(uris, list) else plain(uris)

    def method(self: Any, *arguments: Any, **named: Any) -> Any:
        uris, others = arguments[:n_uris], arguments[n_uris:]
        return getattr(self.local, name)(*map(paths, uris), *others, **named)

    return method


class FolderFileSystem(FileSystem):  # type: ignore[misc]
    """``folder:///tmp/a`` is the file ``/tmp/a``."""

    mkdirs, create, open = _local("mkdirs"), _local("create"), _local("open")
    exists, size = _local("exists"), _local("size")
    last_updated, checksum = _local("last_updated"), _local("checksum")
    copy, rename = _local("copy", 2), _local("rename", 2)

    def __init__(self, pipeline_options: Any) -> None:
        super().__init__(pipeline_options)
        self.local = LocalFileSystem(pipeline_options)

    def delete(self, paths: list[str]) -> None:
        """Deletes files; as in a store of objects, a folder is nothing."""
        self.local.delete([path for path in map(plain, paths) if not Path(path).is_dir()])

    @classmethod
    def scheme(cls) -> str:
        return SCHEME

    def join(self, basepath: str, *paths: str) -> str:
        return uri(posixpath.join(plain(basepath), *paths))

    def split(self, path: str) -> tuple[str, str]:
        head, tail = posixpath.split(plain(path))
        return uri(head), tail

    def has_dirs(self) -> bool:
        return True

    def _url_dirname(self, url_or_path: str) -> str:
        return uri(posixpath.dirname(plain(url_or_path)))

    def _list(self, dir_or_prefix: str) -> Iterator[FileMetadata]:
        for one in self.local._list(plain(dir_or_prefix)):
            yield FileMetadata(uri(one.path), one.size_in_bytes, one.last_updated_in_seconds)

    def metadata(self, path: str) -> FileMetadata:
        one = self.local.metadata(plain(path))
        return FileMetadata(uri(one.path), one.size_in_bytes, one.last_updated_in_seconds)
