"""Builds small records for tests."""

import bz2
import gzip
import json
import lzma
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import zstandard

Record = dict[str, Any]

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": lambda data: gzip.compress(data, mtime=0),
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}
"""How the content of a file is compressed whose name ends so."""

WORDS = ("the", "moon", "landing", "was", "in", "1969", ".", "who", "first", "walked", "armstrong")


def simplified(number: int = 7, words: int = 60) -> Record:
    """Returns a simplified record: a paragraph with a table inside, and two annotations."""
    text = [WORDS[i % len(WORDS)] for i in range(words)]
    tokens = ["<H1>", "Moon", "</H1>", "<P>", *text, "<Table>", "cell", "</Table>", "</P>"]
    end = len(tokens)
    annotation = {
        "annotation_id": 2**64 - 1,
        "yes_no_answer": "NONE",
        "long_answer": {"start_token": 3, "end_token": end, "candidate_index": 0},
        "short_answers": [{"start_token": 5, "end_token": 7}],
    }
    null = {
        "annotation_id": 2,
        "yes_no_answer": "NONE",
        "long_answer": {"start_token": -1, "end_token": -1, "candidate_index": -1},
        "short_answers": [],
    }
    return {
        "example_id": number,
        "document_title": "Moon",
        "question_text": "who first walked on the moon",
        "document_text": " ".join(tokens),
        "long_answer_candidates": [
            {"start_token": 3, "end_token": end, "top_level": True},
            {"start_token": end - 4, "end_token": end - 1, "top_level": False},
        ],
        "annotations": [annotation, null],
    }


def v1(number: int = 7, words: int = 60) -> Record:
    """Returns the same record in NQ v1.0."""
    record = simplified(number, words)
    tokens = record.pop("document_text").split(" ")
    record["document_html"] = " ".join(tokens)
    record["question_tokens"] = record["question_text"].split(" ")
    record["document_tokens"] = []
    start = 0
    for token in tokens:
        record["document_tokens"].append(
            {
                "token": token,
                "start_byte": start,
                "end_byte": start + len(token),
                "html_token": token.startswith("<"),
            }
        )
        start += len(token) + 1
    return record


def changed(record: Record, path: str, value: object) -> Record:
    """Replaces the field at ``path`` of ``record``, or deletes it if ``value`` is ``...``."""
    target: Any = record
    *parents, last = [int(p) if p.isdigit() else p for p in path.split(".")]
    for parent in parents:
        target = target[parent]
    if value is ...:
        del target[last]
    else:
        target[last] = value
    return record


def to_line(record: object) -> bytes:
    """Returns a record as a line without its end; lone surrogates become escapes."""
    return json.dumps(record).encode()


def write_lines(path: Path, lines: Iterable[object]) -> Path:
    """Writes lines or records, compressed if the file name ends in .gz, .bz2, .xz or .zst."""
    data = b"".join((x if isinstance(x, bytes) else to_line(x)) + b"\n" for x in lines)
    path.write_bytes(COMPRESS.get(path.suffix, bytes)(data))
    return path
