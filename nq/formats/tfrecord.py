"""Windows as TFRecord records, in the layout of the original's reader.

A record is a serialized ``tf.train.Example`` of int64 lists:

    unique_ids [1]    example id + window number, as in the original (ids of neighbouring
                      examples collide; the 2020 port names the feature ``unique_id``)
    input_ids, input_mask, segment_ids [L]

    for inference:
    token_map [L]     document token of each position
    example_keys [2]  file number and line of the example, which are unique
    window_ids [2]    number of the window, and the example's number of windows

    for training, as in the original:
    start_positions, end_positions, answer_types [1]
    (a type of -1 marks a window without a target, for a training with a teacher only)

Both directions work on many windows at once and need no TensorFlow. In a file each record is
framed as ``length (uint64), crc(length), data, crc(data)``, little-endian, where ``crc`` is a
masked CRC-32C (https://www.tensorflow.org/tutorials/load_data/tfrecord).
Wire format: https://protobuf.dev/programming-guides/encoding/ and
tensorflow/core/example/{example,feature}.proto.
"""

import hashlib
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import google_crc32c
import numpy as np

from nq.errors import DamagedError
from nq.records import Columns, Features, IntArray, Source

INPUTS = ("input_ids", "input_mask", "segment_ids")
TARGETS = ("start_positions", "end_positions", "answer_types")
KEYS = {"example_keys": 2, "window_ids": 2}
"""Features that identify a window, with their lengths."""
_VARINT_BITS = 7


def encode_records(
    features: Features, source: Source, id_name: str = "unique_ids"
) -> Iterator[bytes]:
    """Yields one serialized ``tf.train.Example`` for each window of an example, in order."""
    if not len(features):
        return
    windows, number = features.windows, features.example_id
    if isinstance(number, str):
        number = int.from_bytes(hashlib.sha256(number.encode()).digest()[:7])
    first = np.array(number % (1 << 64), np.uint64)
    columns: dict[str, IntArray] = {id_name: (first + windows.astype(np.uint64)).view(np.int64)}
    columns |= {name: getattr(features, name) for name in INPUTS}
    if features.answer_types is None:
        columns |= {
            "example_keys": np.tile(source.key, (len(features), 1)),
            "window_ids": np.stack([windows, np.full_like(windows, features.n_windows)], axis=1),
            "token_map": features.token_map,
        }
    else:
        columns |= {name: getattr(features, name) for name in TARGETS}
    rows = [_entries(name, np.asarray(values)) for name, values in sorted(columns.items())]
    for entries in zip(*rows, strict=True):
        yield _field(1, b"".join(entries))


def _field(number: int, payload: bytes) -> bytes:
    """Returns a length-delimited protobuf field."""
    length, out = len(payload), bytearray([number << 3 | 2])
    while length > 0x7F:
        out.append(length & 0x7F | 0x80)
        length >>= _VARINT_BITS
    out.append(length)
    return bytes(out) + payload


def _entries(name: str, values: IntArray) -> list[bytes]:
    """Returns the map entry ``name -> int64 list`` of a ``Features`` for each row of ``values``."""
    key = _field(1, name.encode())
    return [
        _field(1, key + _field(2, _field(3, _field(1, packed))))
        for packed in pack_varints(values.reshape(len(values), -1))
    ]


def pack_varints(rows: IntArray) -> Sequence[bytes]:
    """Returns each row of ``[n, m]`` int64 as the bytes of a packed repeated int64."""
    values = np.ascontiguousarray(rows, np.int64).view(np.uint64)
    if not values.size:
        return [b""] * len(values)
    if values.max() < 1 << _VARINT_BITS:  # masks: one byte each
        return [row.tobytes() for row in values.astype(np.uint8)]
    lengths = np.ones(values.shape, np.int64)
    for bits in range(_VARINT_BITS, 64, _VARINT_BITS):
        longer = values >= np.uint64(1 << bits)
        if not longer.any():
            break
        lengths += longer
    flat = lengths.ravel()
    ends = np.cumsum(flat)
    shifts = _VARINT_BITS * (np.arange(ends[-1]) - np.repeat(ends - flat, flat))
    out = (np.repeat(values.ravel(), flat) >> shifts.astype(np.uint64)).astype(np.uint8) | 0x80
    out[ends - 1] &= 0x7F  # no more bytes behind the last one of a value
    data, row_ends = out.tobytes(), ends.reshape(values.shape)[:, -1].tolist()
    return [data[a:b] for a, b in zip([0, *row_ends[:-1]], row_ends, strict=True)]


def inference_shapes(length: int) -> dict[str, list[int]]:
    """Returns the names and shapes of the features for inference."""
    rows = {name: [length] for name in (*INPUTS, "token_map")}
    return rows | {name: [width] for name, width in KEYS.items()}


def training_shapes(length: int) -> dict[str, list[int]]:
    """Returns the names and shapes of the features for training."""
    return {**{name: [length] for name in INPUTS}, **{name: [] for name in TARGETS}}


def decode_records(records: Sequence[bytes], shapes: Mapping[str, list[int]]) -> Columns:
    """Returns features of records of ``encode_records`` as int32 arrays ``[N, *shape]``."""
    parsed = [_packed_features(record) for record in records]
    columns: Columns = {}
    for name, shape in shapes.items():
        packed = [features.get(name.encode(), b"") for features in parsed]
        try:
            rows = unpack_varints(packed, math.prod(shape))
        except ValueError as error:
            raise ValueError(f"feature {name} of a record: {error}") from error
        columns[name] = rows.astype(np.int32).reshape(len(parsed), *shape)
    return columns


def _packed_features(record: bytes) -> dict[bytes, bytes]:
    """Returns the packed int64 list of each feature of a record, by name."""
    result = {}
    for _, features in _fields(record):
        for _, entry in _fields(features):
            by_number = dict(_fields(entry))
            kinds = dict(_fields(by_number.get(2, b"")))
            result[by_number[1]] = dict(_fields(kinds.get(3, b""))).get(1, b"")
    return result


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields number and payload of each field of a message whose fields are length-delimited."""
    at = 0
    while at < len(data):
        number, at, length, shift = data[at] >> 3, at + 1, 0, 0
        while True:
            byte = data[at]
            at += 1
            length |= (byte & 0x7F) << shift
            shift += _VARINT_BITS
            if byte < 0x80:
                break
        yield number, data[at : at + length]
        at += length


def unpack_varints(rows: Sequence[bytes], width: int) -> IntArray:
    """Returns the int64 values ``[n, width]`` of packed rows; the inverse of ``pack_varints``.

    >>> unpack_varints(pack_varints(np.array([[3, -1], [300, 0]])), 2).tolist()
    [[3, -1], [300, 0]]
    """
    data = np.frombuffer(b"".join(rows), np.uint8)
    ends = np.flatnonzero(data < 0x80)
    row_ends = np.cumsum([len(row) for row in rows], dtype=np.int64) - 1
    if len(ends) != len(rows) * width or not np.array_equal(ends[width - 1 :: width], row_ends):
        raise ValueError(f"expected {width} values in each of {len(rows)} rows")
    if len(data) == len(ends):  # one byte each
        return data.astype(np.int64).reshape(-1, width)
    lengths = np.diff(ends, prepend=-1)
    starts = ends - lengths + 1
    shifts = _VARINT_BITS * (np.arange(len(data)) - np.repeat(starts, lengths))
    bits = (data & 0x7F).astype(np.uint64) << shifts.astype(np.uint64)
    return np.bitwise_or.reduceat(bits, starts).view(np.int64).reshape(-1, width)


_LENGTH, _HEADER, _CRC = struct.Struct("<Q"), struct.Struct("<QI"), struct.Struct("<I")


def _masked_crc(data: bytes) -> int:
    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


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


def raw_records(path: Path) -> Iterator[bytes]:
    """Yields the data of each record of a TFRecord file."""
    with path.open("rb") as file:
        while (length := _read_length(file)) is not None:
            yield _read_data(file, length)


def record_offsets(path: Path) -> list[tuple[int, int]]:
    """Returns offset and length, in bytes, of each record's data, of which none is read."""
    offsets, size = [], path.stat().st_size
    with path.open("rb") as file:
        while (length := _read_length(file)) is not None:
            offset = file.tell()
            if offset + length + _CRC.size > size:
                raise _damaged(file)
            offsets.append((offset, length))
            file.seek(offset + length + _CRC.size)
    return offsets


def read_record_at(file: IO[bytes], offset: int, length: int) -> bytes:
    """Returns the data of the record at a place of ``record_offsets``."""
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
