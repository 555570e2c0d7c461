"""TFRecord files: windows in the layout of the original's reader, and examples.

The record of a window is a serialized ``tf.train.Example`` of int64 lists:

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

The record of an example has what the stages after preprocessing need of the input: JSON, compressed
by zlib, of the example's key (number of the input file and line in it), the number of its windows,
and its fields.

Windows are encoded and decoded many at once, without TensorFlow. In a file each record is framed as
``length (uint64), crc(length), data, crc(data)``, little-endian, where ``crc`` is a masked CRC-32C
(https://www.tensorflow.org/tutorials/load_data/tfrecord).
Wire format: https://protobuf.dev/programming-guides/encoding/ and
tensorflow/core/example/{example,feature}.proto.
"""

import hashlib
import json
import math
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import google_crc32c
import numpy as np
import orjson

from nq.errors import DamagedError
from nq.records import (
    MODEL_INPUTS,
    WINDOW_COLUMNS,
    Annotation,
    Candidate,
    Columns,
    Example,
    ExampleKey,
    Features,
    IntArray,
    Original,
    Passage,
    Source,
    Span,
    YesNo,
)

TARGETS = ("start_positions", "end_positions", "answer_types")
KEYS = {"example_keys": 2, "window_ids": 2}
"""Features that identify a window, with their lengths."""
_VARINT_BITS = 7
_LEVEL = 4  # of the compression of examples


def encode_records(
    features: Features, source: Source, id_name: str = "unique_ids"
) -> Iterator[bytes]:
    """Yields one serialized ``tf.train.Example`` for each window of an example, in order."""
    if not len(features):
        return
    number = features.example_id
    if isinstance(number, str):
        number = int.from_bytes(hashlib.sha256(number.encode()).digest()[:7])
    first = np.array(number % (1 << 64), np.uint64)
    unique_ids = first + features.window_numbers.astype(np.uint64)
    columns: dict[str, IntArray] = {id_name: unique_ids.view(np.int64)}
    if features.answer_types is None:
        columns |= features.rows
        columns["example_keys"] = np.tile(source.key, (len(features), 1))
    else:
        columns |= {name: getattr(features, name) for name in (*MODEL_INPUTS, *TARGETS)}
    rows = [_entries(name, np.asarray(values)) for name, values in sorted(columns.items())]
    for entries in zip(*rows, strict=True):
        yield _field(1, b"".join(entries))


def _field(number: int, payload: bytes) -> bytes:
    """Returns a length-delimited protobuf field."""
    length = len(payload)
    out = bytearray([number << 3 | 2])
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
    data = out.tobytes()
    row_ends = ends.reshape(values.shape)[:, -1].tolist()
    return [data[a:b] for a, b in zip([0, *row_ends[:-1]], row_ends, strict=True)]


def inference_shapes(length: int) -> dict[str, list[int]]:
    """Returns the names and shapes of the features for inference."""
    rows = {name: [length] for name in WINDOW_COLUMNS}
    return rows | {name: [width] for name, width in KEYS.items()}


def training_shapes(length: int) -> dict[str, list[int]]:
    """Returns the names and shapes of the features for training."""
    shapes: dict[str, list[int]] = {name: [length] for name in MODEL_INPUTS}
    return shapes | {name: [] for name in TARGETS}


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
    result = {}
    for _, features in _fields(record):
        for _, entry in _fields(features):
            by_number = dict(_fields(entry))
            kinds = dict(_fields(by_number[2]))
            result[by_number[1]] = dict(_fields(kinds[3])).get(1, b"")
    return result


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields number and payload of each field of a message that ``_field`` made.

    >>> dict(_fields(_field(3, b"a") + _field(2, b"b" * 200)))[3]
    b'a'
    """
    at = 0
    while at < len(data):
        number = data[at] >> 3
        size = shift = 0
        at += 1
        while data[at] > 0x7F:
            size |= (data[at] & 0x7F) << shift
            shift += _VARINT_BITS
            at += 1
        size |= data[at] << shift
        start = at + 1
        at = start + size
        yield number, data[start:at]


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


def encode_example(key: ExampleKey, example: Example, n_windows: int) -> bytes:
    """Returns an example as a record."""
    try:
        data = orjson.dumps(
            (key, n_windows, example), np.ndarray.tolist, orjson.OPT_SERIALIZE_NUMPY
        )
    except TypeError:  # there are lone surrogates
        parts = key, n_windows, asdict(example)
        text = json.dumps(parts, default=np.ndarray.tolist, ensure_ascii=False)
        data = text.encode("utf-8", "surrogatepass")
    return zlib.compress(data, _LEVEL)


def decode_example(record: bytes) -> tuple[ExampleKey, Example, int]:
    """Returns key, example and number of windows; the inverse of ``encode_example``."""
    data = zlib.decompress(record)
    try:
        key, n_windows, values = orjson.loads(data)
    except orjson.JSONDecodeError:
        key, n_windows, values = json.loads(data.decode("utf-8", "surrogatepass"))
    candidates = [Candidate(Span(**c["span"]), c["top_level"]) for c in values["candidates"]]
    values |= {"candidates": candidates, "token_bytes": _pairs(values["token_bytes"])}
    if (annotations := values["annotations"]) is not None:
        values["annotations"] = tuple(map(_annotation, annotations))
    if (original := values["original"]) is not None:
        values["original"] = Original(**{**original, "chars": _pairs(original["chars"])})
    if (answers := values["answers"]) is not None:
        values["answers"] = tuple(answers)
    if (passages := values["passages"]) is not None:
        values["passages"] = tuple(Passage(**passage) for passage in passages)
    return tuple(key), Example(**values), n_windows


def _annotation(values: dict[str, Any]) -> Annotation:
    long = values["long"]
    shorts = tuple(Span(**short) for short in values["shorts"])
    return Annotation(long and Span(**long), values["candidate"], shorts, YesNo(values["yes_no"]))


def _pairs(values: list[list[int]] | None) -> Any:
    return None if values is None else np.array(values, np.int64).reshape(-1, 2)


_LENGTH = struct.Struct("<Q")
_HEADER = struct.Struct("<QI")
_CRC = struct.Struct("<I")


def _masked_crc(data: bytes) -> int:
    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def frame(data: bytes) -> bytes:
    """Returns a record as it is in the file."""
    length = _LENGTH.pack(len(data))
    header = length + _CRC.pack(_masked_crc(length))
    return header + data + _CRC.pack(_masked_crc(data))


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
    data = file.read(length)
    crc = file.read(_CRC.size)
    if len(crc) < _CRC.size or _CRC.unpack(crc)[0] != _masked_crc(data):
        raise _damaged(file)
    return data


def _damaged(file: IO[bytes]) -> DamagedError:
    return DamagedError(
        f"{file.name} is cut off or damaged near byte {file.tell()}: expected a TFRecord file "
        "with matching checksums"
    )
