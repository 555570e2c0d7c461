"""``nq preprocess`` from the command line."""

import json
from pathlib import Path

import pytest

from tests.conftest import Commands
from tests.support.child_processes import python
from tests.support.nq_records import changed, simplified, to_line, write_lines
from tests.support.terminal_output import without_progress
from tests.support.tiny_models import write_vocab

SMALL = ("--set", "max_seq_length=48,max_query_length=12,doc_stride=16")
GOOD, BROKEN = 200, 40
KINDS = (  # ways to be broken, and how the reason begins
    (b'{"example_id": 1, "question_text": "wh', "not JSON"),
    (to_line(simplified()).replace(b"moon", b"m\xf6on", 1), "not UTF-8"),
    (changed(simplified(), "document_text", ...), "no document"),
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
    write_vocab(tmp_path / "vocab.txt")
    command = ("--data", "mixed.jsonl", "--tokenizer", "vocab.txt", "--output", "out", *SMALL)
    done = python("-m", "nq", "preprocess", *command, "--json", folder=tmp_path)
    assert (done.returncode, without_progress(done.stderr)) == (0, "")
    result = json.loads(done.stdout)
    assert (result["examples"], result["dead_letters"]) == (GOOD, BROKEN)
    assert set(result) == {
        *("examples", "windows", "dead_letters", "unread_blocks", "truncated_pages"),
        *("without_windows", "shards", "reused", "time", "output"),
    }
    text = (tmp_path / "out" / "skipped.jsonl").read_text(encoding="utf-8")
    letters = [json.loads(line) for line in text.splitlines()]
    assert [letter["line"] for letter in letters] == sorted(bad)
    assert {letter["file"] for letter in letters} == {"mixed.jsonl"}
    for letter in letters:
        assert letter["reason"].startswith(bad[letter["line"]][1])
        assert letter["record"]

    printed = commands.out("preprocess", *command, "--strict", code=1)
    assert printed.startswith(f"{GOOD} ") and "reused" in printed
    (line,) = commands.err.splitlines()
    assert f"{BROKEN} " in line and "mixed.jsonl, line 1" in line
