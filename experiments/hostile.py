"""Measures time and peak memory of a command on records that are made to cost much of both.

    python -m experiments.hostile
    python -m experiments.hostile --command answer --cases "48 overlapping blocks, 5 MB"

Each case is a file with the hostile record between two good ones, and a process of its own.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from experiments.text_tables import markdown
from nq.commands import arguments, terminal

MIB = 1 << 20
KIB = 1 << 10
PIECE = 1 << 20
"""Bytes that are written at once."""

Record = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """What a command did with a case.

    Args:
        case: its name.
        input_bytes: size of the file.
        seconds: of the whole process.
        peak_mib: largest resident memory of the process or one of its children.
        exit_code: of the process.
        examples, dead_letters: counts of the command.
        reason: of the first dead letter, or the error.
    """

    case: str
    input_bytes: int
    seconds: float
    peak_mib: float
    exit_code: int
    examples: int
    dead_letters: int
    reason: str


def page(tokens: Sequence[str], spans: Sequence[tuple[int, int]], question: str = "who") -> bytes:
    """Returns a simplified record with these tokens and top-level candidates."""
    candidates = [{"start_token": a, "end_token": b, "top_level": True} for a, b in spans]
    record = {
        "example_id": 7,
        "question_text": question,
        "document_text": " ".join(tokens),
        "long_answer_candidates": candidates,
    }
    return json.dumps(record, ensure_ascii=False).encode()


def good(number: int) -> bytes:
    """Returns a small good record."""
    return page(["<P>", "it", "rains", "</P>"], [(0, 4)]).replace(b"7", str(number).encode(), 1)


def overlapping(n_bytes: int, blocks: int) -> bytes:
    """Returns a record of about so many bytes, with so many blocks that are the whole page."""
    tokens = ["<P>", *["moon"] * (n_bytes // 5), "</P>"]
    return page(tokens, [(0, len(tokens))] * blocks)


def numbered(n: int, spans: Sequence[tuple[int, int]]) -> bytes:
    """Returns a page of n different words."""
    return page([f"{i:x}" for i in range(n)], spans)


def wide(n: int) -> bytes:
    """Returns a record of NQ v1.0 with n tokens."""
    tokens = [
        {"token": f"{i:x}", "start_byte": i, "end_byte": i + 1, "html_token": False}
        for i in range(n)
    ]
    record = {
        "example_id": 7,
        "question_text": "who",
        "document_tokens": tokens,
        "long_answer_candidates": [{"start_token": 0, "end_token": n, "top_level": True}],
    }
    return json.dumps(record).encode()


def tydi(text: str) -> bytes:
    """Returns a record of TyDi QA with one passage."""
    span = {"plaintext_start_byte": 0, "plaintext_end_byte": len(text.encode())}
    record = {
        "example_id": 7,
        "question_text": "who",
        "document_plaintext": text,
        "passage_answer_candidates": [span],
    }
    return json.dumps(record, ensure_ascii=False).encode()


def repeated(text: bytes, n_bytes: int) -> Iterator[bytes]:
    """Yields so many bytes of a repeated text, in pieces."""
    piece = text * (PIECE // len(text))
    for _ in range(n_bytes // len(piece)):
        yield piece


N = 60_000
CASES: dict[str, Callable[[], Iterator[bytes]]] = {
    "good records only": lambda: iter([]),
    "gzip: one line of 256 MiB": lambda: repeated(b"[],", 256 * MIB),
    "gzip: 256 MiB of line ends": lambda: repeated(b"\n", 256 * MIB),
    "gzip: a million bad lines": lambda: repeated(b'{"example_id": 1}\n', 17 * MIB),
    "32 MiB of JSON objects": lambda: repeated(b'{"":0},', 32 * MIB - PIECE),
    "million levels of JSON": lambda: iter([b"[" * 10**6 + b"]" * 10**6]),
    "48 overlapping blocks, 1 MB": lambda: iter([overlapping(10**6, 48)]),
    "48 overlapping blocks, 5 MB": lambda: iter([overlapping(5 * 10**6, 48)]),
    "48 overlapping blocks, 200 KB": lambda: iter([overlapping(2 * 10**5, 48)]),
    "60,000 tokens, each a block": lambda: iter([numbered(N, [(i, i + 1) for i in range(N)])]),
    "60,000 tokens, 60,000 whole pages": lambda: iter([numbered(N, [(0, N)] * N)]),
    "60,000 tags, 30 blocks a tag": lambda: iter(
        [page(["<P>"] * N, [(i % N, min(i % N + 30, N)) for i in range(N)])]
    ),
    "600,000 different words": lambda: iter([numbered(600_000, [(0, 600_000)])]),
    "NQ v1.0 of 125,000 tokens": lambda: iter([wide(125_000)]),
    "NQ v1.0 of 500,000 tokens": lambda: iter([wide(500_000)]),
    "a word of 3.9 million letters": lambda: iter([page(["x" * 3_900_000], [(0, 1)])]),
    "a word of 3.9 million ideographs": lambda: iter([page(["月" * 3_900_000], [(0, 1)])]),
    "4 words of 970,000 ideographs": lambda: iter(
        [page([chr(0x4E00 + i) * 970_000 for i in range(4)], [(0, 4)])]
    ),
    "a question of 99,000 characters": lambda: iter([page(["a"] * N, [(0, N)], "w q " * 24_750)]),
    "TyDi QA: 3.9 million Thai letters": lambda: iter([tydi("พ" * 3_900_000)]),
    "TyDi QA: 3.9 million Latin letters": lambda: iter([tydi("moon " * 780_000)]),
}


def write_case(path: Path, hostile: Iterator[bytes]) -> None:
    """Writes the file of a case, compressed, with a good record at both ends."""
    with gzip.open(path, "wb", compresslevel=6) as file:
        file.write(good(1) + b"\n")
        for piece in hostile:
            file.write(piece)
        file.write(b"\n" + good(2) + b"\n")


def measure(case: str, command: str, folder: Path) -> Row:
    """Runs the command on a case."""
    path = folder / "case.jsonl.gz"
    write_case(path, CASES[case]())
    outputs = ["--output", str(folder / "out"), "--json"]
    if command == "answer":
        outputs += ["--no-track"]
    started = time.perf_counter()
    with (folder / "stdout").open("w+b") as stdout, (folder / "stderr").open("w+b") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "nq", command, "--data", str(path), *outputs],
            stdout=stdout,
            stderr=stderr,
        )
        _, status, usage = os.wait4(process.pid, 0)  # with the peak of its own children
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - started
    result = json.loads((folder / "stdout").read_bytes() or b"{}")
    letters = folder / "out" / "skipped.jsonl"
    reason = (folder / "stderr").read_text("utf-8", "replace").splitlines()[-1:]
    if letters.is_file() and letters.stat().st_size:
        with letters.open("rb") as file:
            reason = [json.loads(file.readline())["reason"]]
    return Row(
        case,
        path.stat().st_size,
        seconds,
        usage.ru_maxrss * KIB / MIB,
        process.returncode,
        result.get("examples", 0),
        result.get("dead_letters", 0),
        " ".join(reason),
    )


def table(rows: Sequence[Row]) -> str:
    """Returns the measurements as a Markdown table."""
    head = ("case", "file", "seconds", "peak", "exit", "examples", "dead letters", "first reason")
    return markdown(
        head,
        *(
            [
                *(row.case, f"{row.input_bytes / MIB:.2f} MiB", f"{row.seconds:.1f}"),
                *(f"{row.peak_mib:.0f} MiB", f"{row.exit_code}", f"{row.examples}"),
                *(f"{row.dead_letters}", row.reason),
            ]
            for row in rows
        ),
    )


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.hostile",
        description="Measures time and peak memory of a command on hostile records.",
    )
    parser.add_argument("--command", choices=("preprocess", "answer"), default="preprocess")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), metavar="CASE")
    arguments.add_common(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Runs the command."""
    rows = []
    with terminal.ProgressBar("hostile", "cases") as bar:
        for case in args.cases:
            with tempfile.TemporaryDirectory() as folder:
                rows.append(measure(case, args.command, Path(folder)))
            bar(1, len(args.cases))
    if args.json:
        terminal.print_json({"command": args.command, "rows": [asdict(row) for row in rows]})
    else:
        print(table(rows), end="")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    return terminal.run(run, parser(), argv)


if __name__ == "__main__":
    raise SystemExit(main())
