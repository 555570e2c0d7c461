"""Records that are made to cost much time or memory, each between two good ones."""

from __future__ import annotations

import argparse
import gzip
import json
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from experiments.attacks.frame import DONE, SKIPPED, WRONG, Row, chosen, run_process
from nq.runs.result import DEAD_LETTERS

MIB = 1 << 20
N = 60_000
COMMAND = "-m nq preprocess --data case.jsonl.gz --output out --json"


def record(**fields: Any) -> bytes:
    """Returns a record as a line without its end."""
    values = {"example_id": 7, "question_text": "who", **fields}
    return json.dumps(values, ensure_ascii=False).encode()


def page(tokens: Sequence[str], spans: Sequence[tuple[int, int]], **fields: Any) -> bytes:
    """Returns a simplified record with these tokens and top-level candidates."""
    blocks = [{"start_token": start, "end_token": end, "top_level": True} for start, end in spans]
    return record(document_text=" ".join(tokens), long_answer_candidates=blocks, **fields)


def good(number: int) -> bytes:
    """Returns a small good record."""
    return page(["<P>", "it", "rains", "</P>"], [(0, 4)], example_id=number)


def overlapping(n_bytes: int) -> bytes:
    """Returns a record of about so many bytes, with 48 blocks that are the whole page."""
    tokens = ["<P>", *["moon"] * (n_bytes // 5), "</P>"]
    return page(tokens, [(0, len(tokens))] * 48)


def numbered(n: int, spans: Sequence[tuple[int, int]]) -> bytes:
    """Returns a page of n different words."""
    return page([f"{i:x}" for i in range(n)], spans)


def wide(n: int) -> bytes:
    """Returns a record of NQ v1.0 with n tokens."""
    tokens = [
        {"token": f"{i:x}", "start_byte": i, "end_byte": i + 1, "html_token": False}
        for i in range(n)
    ]
    whole = {"start_token": 0, "end_token": n, "top_level": True}
    return record(document_tokens=tokens, long_answer_candidates=[whole])


def tydi(text: str) -> bytes:
    """Returns a record of TyDi QA with one passage."""
    span = {"plaintext_start_byte": 0, "plaintext_end_byte": len(text.encode())}
    return record(document_plaintext=text, passage_answer_candidates=[span])


def repeated(text: bytes, mib: int) -> Iterator[bytes]:
    """Yields so much of a repeated text, in pieces."""
    piece = text * (MIB // len(text))
    for _ in range(mib):
        yield piece


RECORDS: dict[str, tuple[str, Callable[[], Iterator[bytes] | bytes]]] = {
    "good records only": (DONE, lambda: b""),
    "gzip: one line of 256 MiB": (SKIPPED, lambda: repeated(b"[],", 256)),
    "gzip: 256 MiB of line ends": (DONE, lambda: repeated(b"\n", 256)),
    "gzip: a million bad lines": (SKIPPED, lambda: repeated(b'{"example_id": 1}\n', 17)),
    "32 MiB of JSON objects": (SKIPPED, lambda: repeated(b'{"":0},', 31)),
    "million levels of JSON": (SKIPPED, lambda: b"[" * 10**6 + b"]" * 10**6),
    "48 overlapping blocks, 200 KB": (SKIPPED, lambda: overlapping(200_000)),
    "48 overlapping blocks, 1 MB": (SKIPPED, lambda: overlapping(1_000_000)),
    "48 overlapping blocks, 5 MB": (SKIPPED, lambda: overlapping(5_000_000)),
    "60,000 tokens, each a block": (DONE, lambda: numbered(N, [(i, i + 1) for i in range(N)])),
    "60,000 tokens, 60,000 whole pages": (SKIPPED, lambda: numbered(N, [(0, N)] * N)),
    "60,000 tags, 30 blocks a tag": (
        DONE,
        lambda: page(["<P>"] * N, [(i, min(i + 30, N)) for i in range(N)]),
    ),
    "600,000 different words": (SKIPPED, lambda: numbered(600_000, [(0, 600_000)])),
    "NQ v1.0 of 125,000 tokens": (DONE, lambda: wide(125_000)),
    "NQ v1.0 of 500,000 tokens": (SKIPPED, lambda: wide(500_000)),
    "a word of 3.9 million letters": (SKIPPED, lambda: page(["x" * 3_900_000], [(0, 1)])),
    "a word of 3.9 million ideographs": (SKIPPED, lambda: page(["月" * 3_900_000], [(0, 1)])),
    "4 words of 970,000 ideographs": (
        SKIPPED,
        lambda: page([chr(0x4E00 + i) * 970_000 for i in range(4)], [(0, 4)]),
    ),
    "a question of 99,000 characters": (
        DONE,
        lambda: page(["a"] * N, [(0, N)], question_text="w q " * 24_750),
    ),
    "TyDi QA: 3.9 million Thai letters": (SKIPPED, lambda: tydi("พ" * 3_900_000)),
    "TyDi QA: 3.9 million Latin letters": (DONE, lambda: tydi("moon " * 780_000)),
}
"""What is between two good records, and the verdict that is right."""


def rows(args: argparse.Namespace, folder: Path, rng: random.Random) -> Iterator[Row]:
    """Prepares each record; it is skipped for a reason, or prepared, and both good ones are too."""
    for name in chosen(args, RECORDS):
        case = folder / name.replace("/", " ")
        case.mkdir()
        expected, make = RECORDS[name]
        hostile = make()
        with gzip.open(case / "case.jsonl.gz", "wb", compresslevel=6) as file:
            file.write(good(1) + b"\n")
            for piece in [hostile] if isinstance(hostile, bytes) else hostile:
                file.write(piece)
            file.write(b"\n" + good(2) + b"\n")
        end = run_process(COMMAND, case, args.limit_s)
        verdict, text = end.verdict(), end.last
        if verdict == DONE:
            counts = json.loads(end.out)
            skipped = (case / "out" / DEAD_LETTERS).read_bytes().splitlines()[:1]
            text = json.loads(skipped[0])["reason"] if skipped else ""
            verdict = WRONG if counts["examples"] < 2 else SKIPPED if skipped else DONE
        yield Row(name, "nq preprocess", verdict, (expected,), text, *end.cost)
