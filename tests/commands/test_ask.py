"""Tests ``nq ask`` with pages, questions and standard input of many kinds."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from nq.commands.main import console

PAGE = """<!doctype html><title>Skerry Point</title><nav><p>Home</p></nav>
<h1>Skerry Point lighthouse</h1>
<p>The lighthouse stands on a rock off the northern coast. It was designed by the engineer
<b>Ada Brenn</b> and first lit on 4 May 1874.</p>
<p>The last keeper, Tom Hale (born 1931), moved to the mainland in 1986.</p>"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.html"
    path.write_text(PAGE, encoding="utf-8")
    return path


def set_stdin(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    """Replaces standard input by ``data``."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))


def test_bundled_model_answers(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert console(["ask", "who designed the lighthouse", "--top", "1", str(page)]) == 0
    out = capsys.readouterr().out
    assert "Ada Brenn (" in out.split("\n")[0]
    assert "»" in out and "first lit on 4 May 1874." in " ".join(out.split())
    assert out.count("%  ") <= 1


def test_every_question_of_standard_input_gets_one_line(
    page: Path,
    tiny_model: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    questions = [
        "who designed the lighthouse",
        "",
        "   ",
        "[CLS] [SEP] [Q]",
        "מי בנה את המגדלור",
        "🚢" * 3,
        "a \x1b[31mred\x00 thing",
        "the lake " * 2000,
        "?",
        "no line end",
    ]
    set_stdin(monkeypatch, "\n".join(questions).encode() + b"\xff")
    arguments = ["--interactive", "--json", "--model", str(tiny_model), "--profile", "baseline"]
    assert console(["ask", *arguments, str(page)]) == 0
    out, err = capsys.readouterr()
    answers = [json.loads(line) for line in out.splitlines()]
    expected = [" ".join(q.split()) for q in questions if q.strip()]
    assert [answer["question"] for answer in answers[:-1]] == expected[:-1]
    assert answers[-1]["question"] == "no line end\ufffd"
    assert err.count("type a question") == 2
    assert all(len(answer["runners_up"]) <= 3 for answer in answers)


def read_until(terminal: int, text: str) -> str:
    """Returns what a process writes to its terminal until it writes ``text``, or ends."""
    data = b""
    while text.encode() not in data:
        try:
            data += os.read(terminal, 1024)
        except OSError:  # the process has ended
            break
    return data.decode()


@pytest.mark.slow
def test_lines_typed_at_a_terminal_can_be_edited_and_recalled(page: Path, tiny_model: Path) -> None:
    ours, theirs = pty.openpty()
    options = ["--json", "--model", str(tiny_model), "--profile", "baseline"]
    process = subprocess.Popen(
        [sys.executable, "-m", "nq", "ask", "--interactive", str(page), *options],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    try:
        read_until(ours, "question: ")
        os.write(ours, b"whom\x7f built it\n")  # 0x7f deletes the last letter
        first = read_until(ours, "question: ")
        os.write(ours, b"\x1b[A\n")  # the key for the line before
        second = read_until(ours, "question: ")
        os.write(ours, b"\x04")
        assert process.wait(60) == 0
    finally:
        process.kill()
        os.close(ours)
    assert '"question": "who built it"' in first
    assert '"question": "who built it"' in second


@pytest.mark.parametrize(
    "data",
    [
        PAGE.encode(),
        ("one long line " * 300).encode(),
        "שלום עולם, זה המגדלור. 😀".encode(),
        b"caf\xe9",
        b"<h1>Only a heading</h1>",
    ],
)
def test_pages_of_standard_input(
    data: bytes,
    tiny_model: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_stdin(monkeypatch, data)
    assert console(["ask", "why", "--model", str(tiny_model), "--profile", "baseline"]) == 0
    out, err = capsys.readouterr()
    assert out.strip()
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("missing.txt", None, "missing.txt: No such file or directory"),
        ("page.pdf", b"%PDF-1.7\n\x00\x01", "page.pdf is a PDF document that cannot be read"),
        ("bad.jsonl", b"{\n", "bad.jsonl, line 1: not JSON"),
    ],
)
def test_bad_pages_are_one_line(
    name: str,
    data: bytes | None,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    assert console(["ask", "why", str(tmp_path / name)]) == 1
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("nq: error: ")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "expected a question in quotes and a page, found 0"),
        ([" \t ", "PAGE"], "the question is empty"),
        (["--interactive", "-"], "give it pages in files"),
        (["PAGE", "who"], "is a file: give the question first, in quotes"),
        (["who", "PAGE", "-"], "standard input is one page: give it alone, or only files"),
        (["who", "PAGE", ".", "--record", "2"], "--record is for a single jsonl file"),
        (["who", "--record", "2"], "--record is for a jsonl file"),
        (["who", "PAGE", "--top", "-1"], "must be at least 0"),
        (["who", "PAGE", "--doc-stride", "0"], "doc_stride must be at least 1"),
    ],
)
def test_usage_errors(
    arguments: list[str], message: str, page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = [str(page) if argument == "PAGE" else argument for argument in arguments]
    assert console(["ask", *argv]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert message in err
    assert err.startswith("nq ask: error: ") and err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["who"], ["who", "-"], ["--interactive", "PAGE"]])
def test_closed_standard_input(
    arguments: list[str],
    page: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    argv = [str(page) if argument == "PAGE" else argument for argument in arguments]
    assert console(["ask", *argv]) == 2
    assert "standard input is closed; give a question and a file" in capsys.readouterr().err
