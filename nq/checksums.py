"""Files with a checksum of their own, so that a damaged one is found when it is read.

A JSON object has the SHA-256 of its other members in the member ``sha256``. A file of arrays is an
``.npz``, a ZIP archive, whose comment has the SHA-256 of the bytes before the comment's length;
``numpy.load`` ignores the comment. Files of earlier versions have no checksum and are read as well.
"""

from __future__ import annotations

import errno
import hashlib
import json
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from nq.errors import DamagedError
from nq.files import atomic_write

SHA256 = "sha256"
_COMMENT_START = b"sha256:"
_COMMENT_SIZE = len(_COMMENT_START) + hashlib.sha256().digest_size
_LENGTH = struct.Struct("<H")
_READ_BYTES = 1 << 20
_BAD_ARCHIVE = (
    *(ValueError, LookupError, EOFError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, struct.error),
)


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Writes a JSON object with its checksum.

    Args:
        path: the file, which is replaced when all is written.
        values: the members, none of which is named ``sha256``.
    """
    with atomic_write(path) as file:
        sealed = {**values, SHA256: _digest_json(values)}
        file.write(json.dumps(sealed, indent=2).encode() + b"\n")


def read_json(path: Path) -> dict[str, Any]:
    """Returns the members of a JSON object without its checksum, if it has one.

    Raises:
        FileNotFoundError: there is no file.
        DamagedError: it has no JSON object, or the checksum does not match.
    """
    try:
        values = json.loads(path.read_bytes())
    except ValueError as error:
        raise DamagedError(f"{path} is damaged: {error}") from error
    if not isinstance(values, dict):
        raise DamagedError(f"{path} is damaged: expected a JSON object")
    if SHA256 in values and values.pop(SHA256) != _digest_json(values):
        raise DamagedError(f"{path} is damaged: its checksum does not match")
    return values


def _digest_json(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Writes an ``.npz`` file with its checksum.

    Args:
        path: the file, which is replaced when all is written.
        arrays: the arrays by name.
    """
    with atomic_write(path) as file:
        np.savez(file, allow_pickle=False, **arrays)
        file.seek(-_LENGTH.size, 2)  # the archive ends with the length of its empty comment
        end = file.tell()
        file.flush()
        with open(file.name, "rb") as written:
            comment = _COMMENT_START + _digest_bytes(written, end)
        file.write(_LENGTH.pack(len(comment)) + comment)


def read_arrays(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Returns the arrays of an ``.npz`` file.

    Raises:
        FileNotFoundError: there is no file.
        DamagedError: the file is cut off, or its checksum or one of its arrays does not match.
    """
    with open(path, "rb") as file:
        end = max(0, file.seek(0, 2) - _COMMENT_SIZE - _LENGTH.size)
        file.seek(end)
        comment = file.read()[_LENGTH.size :]
        file.seek(0)
        if comment.startswith(_COMMENT_START):
            if comment != _COMMENT_START + _digest_bytes(file, end):
                raise DamagedError(f"{path} is damaged: its checksum does not match")
            file.seek(0)
        try:
            with np.load(file) as arrays:
                return dict(arrays)
        except (*_BAD_ARCHIVE, OSError) as error:
            if isinstance(error, OSError) and error.errno != errno.EINVAL:  # a wrong offset
                raise
            raise DamagedError(f"{path} is damaged: {error}") from error


def _digest_bytes(file: IO[bytes], size: int) -> bytes:
    """Returns the SHA-256 of the next ``size`` bytes of a file."""
    digest = hashlib.sha256()
    while size > 0 and (data := file.read(min(size, _READ_BYTES))):
        digest.update(data)
        size -= len(data)
    return digest.digest()
