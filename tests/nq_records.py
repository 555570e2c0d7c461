"""Small records and a small vocabulary that tests write themselves."""

from __future__ import annotations

import gzip
import json
import string
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Record = dict[str, Any]

WORDS = ("the", "moon", "landing", "was", "in", "1969", ".", "who", "first", "walked", "armstrong")
MARKERS = ("[Q]", "[NoLongAnswer]", "[Paragraph=1]", "[Table=1]", "[ContextId=-1]", "[ContextId=0]")


def write_vocab(folder: Path) -> Path:
    """A BERT vocabulary of some words, all letters and digits, and some markers."""
    letters = string.ascii_lowercase + string.digits
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    pieces = [*special, *MARKERS, *WORDS, *letters, *(f"##{c}" for c in letters)]
    path = folder / "vocab.txt"
    path.write_text("".join(f"{p}\n" for p in dict.fromkeys(pieces)), encoding="utf-8")
    return path


def simplified(number: int = 7, words: int = 60) -> Record:
    """A simplified record with one paragraph, one table in it and two annotators."""
    text = [WORDS[i % len(WORDS)] for i in range(words)]
    tokens = ["<H1>", "Moon", "</H1>", "<P>", *text, "<Table>", "cell", "</Table>", "</P>"]
    end = len(tokens)
    annotation = {
        "annotation_id": 2**64 - 1,
        "yes_no_answer": "NONE",
        "long_answer": {"start_token": 3, "end_token": end, "candidate_index": 0},
        "short_answers": [{"start_token": 5, "end_token": 7}],
    }
    nothing = {
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
        "annotations": [annotation, nothing],
    }


def v1(number: int = 7, words: int = 60) -> Record:
    """The same record as NQ v1.0 has it."""
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
    """The record with the field at ``path`` replaced, or deleted where ``value`` is ``...``."""
    target: Any = record
    *way, last = [int(p) if p.isdigit() else p for p in path.split(".")]
    for step in way:
        target = target[step]
    if value is ...:
        del target[last]
    else:
        target[last] = value
    return record


def to_line(record: object) -> bytes:
    """A record as a line without its end; lone surrogates stay, as escapes."""
    return json.dumps(record).encode()


def write_lines(path: Path, lines: Iterable[object]) -> Path:
    """Writes lines or records, compressed if the name ends in .gz."""
    data = b"".join((x if isinstance(x, bytes) else to_line(x)) + b"\n" for x in lines)
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path
