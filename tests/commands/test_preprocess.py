"""``nq preprocess`` from the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nq.formats.tfrecord import raw_records
from nq.preprocess.store import COMPLETED
from nq.storage import UNFINISHED
from tests import nq_records
from tests.conftest import Commands
from tests.nq_records import changed, simplified, to_line, write_lines
from tests.terminal_output import without_progress

ROOT = Path(__file__).parents[2]
SMALL = ("--max-seq-length", "48", "--max-query-length", "12", "--doc-stride", "16")
GOOD, BROKEN = 200, 40
CANDIDATES = "long_answer_candidates"
KINDS = (  # ten ways to be broken, and how the reason begins
    (b'{"example_id": 1, "question_text": "wh', "not JSON"),
    ([simplified()], "expected a JSON object, found an array"),
    (to_line(simplified()).replace(b"moon", b"m\xf6on", 1), "not UTF-8"),
    (changed(simplified(), "example_id", ...), "missing field 'example_id'"),
    (changed(simplified(), "document_text", ...), "no document"),
    (changed(simplified(), "document_text", 7), "field 'document_text' must be a string"),
    (changed(simplified(), "question_text", 7), "field 'question_text' must be a string"),
    (changed(simplified(), f"{CANDIDATES}.0.end_token", 999), f"{CANDIDATES}[0] [3, 999) is no"),
    (changed(simplified(), f"{CANDIDATES}.1.end_token", 1), f"{CANDIDATES}[1] ["),
    (
        changed(simplified(), "annotations.0.long_answer.candidate_index", 5),
        "annotations[0].long_answer.candidate_index is 5",
    ),
)


def start(folder: Path, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "nq", "preprocess", *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.slow
def test_good_and_broken_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: Commands
) -> None:
    monkeypatch.chdir(tmp_path)
    bad = {1 + i * 6: KINDS[i % len(KINDS)] for i in range(BROKEN)}  # by line number
    lines = [
        bad[n][0] if n in bad else simplified(n, words=20) for n in range(1, GOOD + BROKEN + 1)
    ]
    write_lines(tmp_path / "mixed.jsonl", lines)
    nq_records.write_vocab(tmp_path)
    command = ("--data", "mixed.jsonl", "--tokenizer", "vocab.txt", "--output", "out", *SMALL)
    process = start(tmp_path, *command, "--json")
    stdout, stderr = process.communicate()
    assert (process.returncode, without_progress(stderr)) == (0, "")
    result = json.loads(stdout)
    assert (result["examples"], result["dead_letters"]) == (GOOD, BROKEN)
    assert set(result) == {
        *("examples", "windows", "dead_letters", "unread_blocks", "truncated_pages"),
        *("shards", "reused", "time", "output"),
    }
    text = (tmp_path / "out" / "skipped.jsonl").read_text(encoding="utf-8")
    letters = [json.loads(line) for line in text.splitlines()]
    assert [letter["line"] for letter in letters] == sorted(bad)
    assert {letter["file"] for letter in letters} == {"mixed.jsonl"}
    for letter in letters:
        assert letter["reason"].startswith(bad[letter["line"]][1])
        assert letter["record"]

    printed = commands.out("preprocess", *command, "--strict", code=1)
    assert printed.startswith("200 examples, ")
    assert " windows\nreused, made before in " in printed
    (line,) = commands.err.splitlines()
    assert line.startswith("nq: error: 40 bad records, the first in mixed.jsonl, line 1: not JSON")


def started(folder: Path, workers: int) -> subprocess.Popen[str]:
    """A job of some seconds that has already made its first windows."""
    lines = [to_line(simplified(i, words=300)) for i in range(3000)]
    write_lines(folder / "long.jsonl", lines)
    nq_records.write_vocab(folder)
    command = ("--data", "long.jsonl", "--tokenizer", "vocab.txt", "--output", "out", *SMALL)
    process = start(folder, *command, "--workers", workers)
    while not any(p.stat().st_size for p in (folder / "out").glob("*/progress/*")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    return process


@pytest.mark.slow
def test_killed_and_started_again(tmp_path: Path, commands: Commands) -> None:
    process = started(tmp_path, workers=1)
    process.kill()
    process.communicate()
    out = tmp_path / "out"
    assert not (out / COMPLETED).exists()
    assert list(out.glob(f"{UNFINISHED}*"))
    data = (tmp_path / "long.jsonl").read_bytes().splitlines()[:50]
    write_lines(tmp_path / "long.jsonl", data)
    command = ["preprocess", "--data", tmp_path / "long.jsonl", *SMALL]
    command += ["--tokenizer", tmp_path / "vocab.txt", "--output"]
    killed, undisturbed = (commands.json(*command, to) for to in (out, tmp_path / "undisturbed"))
    assert not killed["reused"]
    assert killed["examples"] == 50
    assert [Path(p).read_bytes() for p in killed["shards"]] == [
        Path(p).read_bytes() for p in undisturbed["shards"]
    ]
    assert not list(out.glob(f"{UNFINISHED}*"))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.extended)])
def test_standard_input_and_pipes(tmp_path: Path, workers: int) -> None:
    data = write_lines(tmp_path / "a.jsonl.gz", [*(simplified(i) for i in range(20)), b"bad"])
    nq_records.write_vocab(tmp_path)
    options = f"--tokenizer vocab.txt --workers {workers} --json {' '.join(SMALL)}"
    nq = f"{sys.executable} -m nq preprocess {options}"
    results = []
    lines = (f"cat {data} | {nq} --data -", f"{nq} --data <(zcat {data})", f"{nq} --data {data}")
    names = ("zero", "one", "two")
    for line, name in zip(lines, names, strict=True):
        done = subprocess.run(
            ["bash", "-c", f"{line} --output {name}"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (name, done.stderr)
        results.append(json.loads(done.stdout))
    assert [(r["examples"], r["dead_letters"]) for r in results] == [(20, 1)] * 3
    letters = [json.loads((tmp_path / name / "skipped.jsonl").read_bytes()) for name in names]
    assert [letter["file"] for letter in letters] == ["standard input", "a pipe", str(data)]
    assert {letter["line"] for letter in letters} == {21}
    records = {
        tuple(
            sorted(r for shard in (tmp_path / name).glob("*.tfrecord") for r in raw_records(shard))
        )
        for name in names
    }
    assert len(records) == 1
    assert not list(tmp_path.glob("nq-input-*"))


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        ("--direct_num_workers=x", 2, "argument --direct_num_workers: invalid int value: 'x'"),
        ("--negatives 2", 2, "negatives must be in [0, 1]"),
        ("--model x", 2, "argument --model: not allowed with argument --tokenizer"),
        ("--data nothing*", 1, "no file matches nothing*"),
        ("--tokenizer nothing", 1, "no tokenizer in nothing"),
        ("--output /dev/null/out", 1, "/dev/null is a file"),
        ("--runner=Nope", 1, "runner: Nope"),
    ],
)
def test_an_error_of_the_user_is_one_line(
    arguments: str, code: int, expected: str, tmp_path: Path, commands: Commands
) -> None:
    data = write_lines(tmp_path / "a.jsonl", [simplified(i) for i in range(4)])
    command = ["--data", data, "--tokenizer", nq_records.write_vocab(tmp_path), *SMALL]
    command += ["--output", tmp_path / "out", *arguments.split()]
    assert expected in commands.error("preprocess", *command, code=code)
    assert code == 1 or not (tmp_path / "out").exists()
