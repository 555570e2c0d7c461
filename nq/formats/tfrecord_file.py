"""TFRecord files: records one after the other, read in order or at random, without TensorFlow.

Each record is framed as ``length (uint64), crc(length), data, crc(data)``, little-endian, where
``crc`` is a masked CRC-32C (https://www.tensorflow.org/tutorials/load_data/tfrecord).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import google_crc32c

from nq.errors import DamagedError

_LENGTH, _HEADER, _CRC = struct.Struct("<Q"), struct.Struct("<QI"), struct.Struct("<I")
_MASK_DELTA = 0xA282EAD8
FRAME_BYTES = _HEADER.size + _CRC.size
"""Bytes of a record besides its data."""


def _masked_crc(data: bytes) -> int:
    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def frame(data: bytes) -> bytes:
    """Returns a record as it is in the file."""
    length = _LENGTH.pack(len(data))
    crcs = _CRC.pack(_masked_crc(length)), _CRC.pack(_masked_crc(data))
    return b"".join((length, crcs[0], data, crcs[1]))


def is_tfrecord(head: bytes) -> bool:
    """Returns whether a file begins with the length of a record and its checksum."""
    if len(head) < _HEADER.size:
        return False
    length, crc = _HEADER.unpack_from(head)
    return bool(crc == _masked_crc(_LENGTH.pack(length)))


def read_records(path: Path, offset: int = 0) -> Iterator[bytes]:
    """Yields the data of each record of a TFRecord file, from the byte ``offset`` on."""
    with path.open("rb") as file:
        file.seek(offset)
        while (length := _read_length(file)) is not None:
            yield _read_data(file, length)


def record_offsets(path: Path) -> list[tuple[int, int]]:
    """Returns the offset and the length, in bytes, of each record's data in a TFRecord file.

    Only the headers are read; ``read_record_at`` reads the data and verifies it.
    """
    offsets = []
    size = path.stat().st_size
    with path.open("rb") as file:
        while (length := _read_length(file)) is not None:
            offset = file.tell()
            if offset + length + _CRC.size > size:
                raise _damaged(file)
            offsets.append((offset, length))
            file.seek(offset + length + _CRC.size)
    return offsets


def read_record_at(file: IO[bytes], offset: int, length: int) -> bytes:
    """Returns the data of one record, of whose place ``record_offsets`` tells."""
    file.seek(offset)
    return _read_data(file, length)


def _read_length(file: IO[bytes]) -> int | None:
    """Returns the length of the next record in bytes, ``None`` at the end of the file."""
    header = file.read(_HEADER.size)
    if not header:
        return None
    if not is_tfrecord(header):
        raise _damaged(file)
    return int(_LENGTH.unpack_from(header)[0])


def _read_data(file: IO[bytes], length: int) -> bytes:
    data, crc = file.read(length), file.read(_CRC.size)
    if len(crc) < _CRC.size or _CRC.unpack(crc)[0] != _masked_crc(data):
        raise _damaged(file)
    return data


def _damaged(file: IO[bytes]) -> DamagedError:
    return DamagedError(
        f"{file.name} is cut off or damaged near byte {file.tell()}: expected a TFRecord file "
        "with matching checksums"
    )
