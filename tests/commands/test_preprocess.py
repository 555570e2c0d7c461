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
BROKEN = {  # lines by number, and how the reason begins
    2: (b'{"example_id": 1, "question_text": "wh', "not JSON"),
    3: (to_line(simplified()).replace(b"moon", b"m\xf6on", 1), "not UTF-8"),
    5: (changed(simplified(), "document_text", ...), "no document"),
}


@pytest.mark.slow
def test_good_and_broken_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: Commands
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [BROKEN[n][0] if n in BROKEN else simplified(n) for n in range(1, 7)]
    write_lines(tmp_path / "mixed.jsonl", lines)
    write_vocab(tmp_path / "vocab.txt")
    command = ("--data", "mixed.jsonl", "--tokenizer", "vocab.txt", "--output", "out", *SMALL)
    done = python("-m", "nq", "preprocess", *command, "--json", folder=tmp_path)
    assert (done.returncode, without_progress(done.stderr)) == (0, "")
    result = json.loads(done.stdout)
    assert (result["examples"], result["dead_letters"]) == (3, 3)
    assert {"windows", "shards", "reused", "time", "output"} <= set(result)
    text = (tmp_path / "out" / "skipped.jsonl").read_text(encoding="utf-8")
    letters = {letter["line"]: letter for letter in map(json.loads, text.splitlines())}
    assert letters.keys() == BROKEN.keys()
    for line, (_, reason) in BROKEN.items():
        assert letters[line]["file"] == "mixed.jsonl" and letters[line]["record"]
        assert letters[line]["reason"].startswith(reason)
    printed = commands.out("preprocess", *command, "--strict", code=1)
    assert printed.startswith("3 ") and "reused" in printed
    (error,) = commands.err.splitlines()
    assert "3 bad" in error and "mixed.jsonl, line 2" in error
