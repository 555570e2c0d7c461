"""The windows of each example as one element, which are written in the order of the input.

Beam's workers share the input, and write what they make to files of their own in any order. So that
the result does not depend on their number, they write *groups*: file, line and digest of an
example, followed by its windows as framed TFRecords. The groups are then copied in order.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Sequence
from pathlib import Path

from nq.formats.tfrecord_file import frame, read_record_at, record_offsets
from nq.preprocess.shards import ShardWriter
from nq.records import ExampleKey, Source

_PLACE = struct.Struct("<qqq")


def encode_group(source: Source, digest: int, records: Sequence[bytes]) -> bytes:
    """Returns the group of an example.

    Args:
        source: where the example was read.
        digest: see ``nq.preprocess.identity``.
        records: its serialized windows.
    """
    return _PLACE.pack(source.file_index, source.line, digest) + b"".join(map(frame, records))


def write_in_order(groups: Sequence[Path], writer: ShardWriter) -> list[tuple[ExampleKey, int]]:
    """Writes the windows of all groups in the order of the input.

    Args:
        groups: TFRecord files of groups.
        writer: of the shards.

    Returns:
        File number and line of each example, in order, with its digest.
    """
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(path.open("rb")) for path in groups]
        index = []
        for number, path in enumerate(groups):
            for offset, length in record_offsets(path):
                files[number].seek(offset)
                file, line, digest = _PLACE.unpack(files[number].read(_PLACE.size))
                index.append(((file, line), digest, number, offset, length))
        index.sort()
        for _, _, number, offset, length in index:
            writer.write(read_record_at(files[number], offset, length)[_PLACE.size :])
    return [(key, digest) for key, digest, *_ in index]
