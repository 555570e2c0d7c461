"""Reads and writes records of the training data, in simplified NQ format, with repaired tags."""

import gzip
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson

from nq.storage import atomic_write

Record = dict[str, Any]

_BROKEN = re.compile(r"<(Table|Tr|Th|Td|Ul|Ol|Dl|Li|Dd|Dt)((?: [\w-]+=[^ <>]*)+)>")


def data_files(folder: Path, part: str) -> list[Path]:
    """Returns the files of a part of the data, ``train`` or ``dev``; an error without any."""
    files = sorted((folder / part).glob("*.jsonl.gz"))
    if not files:
        raise FileNotFoundError(f"{folder} has no {part}/*.jsonl.gz: give the folder of the data")
    return files


def read_records(files: Iterable[Path]) -> Iterator[Record]:
    """Yields the records of files."""
    for path in files:
        with gzip.open(path, "rb") as lines:
            for record in map(orjson.loads, lines):
                yield {**record, "document_text": with_whole_tags(record["document_text"])}


def write_records(path: Path, records: Iterable[Record]) -> None:
    """Writes records to a file, completely or not at all."""
    with atomic_write(path) as file, gzip.open(file, "wb", compresslevel=1) as lines:
        for record in records:
            lines.write(orjson.dumps(record) + b"\n")


def with_whole_tags(text: str) -> str:
    """Returns the text of a page in which each part of a tag with attributes is a tag.

    Tags that were split at blanks would be words of the page. The number of tokens is kept.

    >>> with_whole_tags('<Th colspan="2"> Edition')
    '<Th> <Th> Edition'
    """
    return _BROKEN.sub(lambda tag: " ".join([f"<{tag[1]}>"] * (1 + tag[2].count(" "))), text)
