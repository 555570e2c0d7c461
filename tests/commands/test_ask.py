"""Tests ``nq ask`` with pages, questions and standard input of many kinds."""

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Commands
from tests.support import document_files

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


def test_every_question_of_standard_input_gets_one_line(
    page: Path, tiny_model: Path, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = [
        "who designed the lighthouse",
        "",
        "   ",
        "[CLS] [SEP] [Q]",
        "מי בנה את המגדלור",
        "a \x1b[31mred\x00 thing",
        "the lake " * 2000,
        "no line end",
    ]
    data = io.BytesIO("\n".join(questions).encode() + b"\xff")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(data, encoding="utf-8"))
    arguments = ["--interactive", "--json", "--model", tiny_model, "--profile", "baseline"]
    out = commands.out("ask", *arguments, page)
    answers = [json.loads(line) for line in out.splitlines()]
    expected = [" ".join(q.split()) for q in questions if q.strip()]
    assert [answer["question"] for answer in answers[:-1]] == expected[:-1]
    assert answers[-1]["question"] == "no line end\ufffd"
    assert commands.err.count("type a question") == 2
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
def test_lines_typed_at_a_terminal_can_be_edited_and_recalled(
    page: Path, converted_model: Path
) -> None:
    ours, theirs = pty.openpty()
    options = ["--json", "--model", str(converted_model), "--profile", "openvino"]
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
        assert process.wait() == 0
    finally:
        process.kill()
        os.close(ours)
    assert '"question": "who built it"' in first
    assert '"question": "who built it"' in second


@pytest.mark.slow
def test_a_folder_is_read_and_what_is_left_out_is_told(
    tmp_path: Path, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("docs")
    (folder / "deep" / ".hidden").mkdir(parents=True)
    Path("page.html").write_text(PAGE, encoding="utf-8")
    harbour = "# Dunmore\n\nThe harbour was built by **Mary Poole** in 1902.\n"
    (folder / "deep" / "harbour.md").write_text(harbour, encoding="utf-8")
    school = document_files.pdf(["Dunmore."], ["The school was opened by Jim Dale in 1911."])
    (folder / "school.pdf").write_bytes(school)
    (folder / "locked.pdf").write_bytes(document_files.pdf(["x"], password="secret"))
    (folder / "nul.txt").write_bytes(b"a\0b")
    for ignored in ("deep/.hidden/a.txt", ".a.txt", "picture.png"):
        (folder / ignored).write_text("The harbour was built by nobody.")
    answer = commands.json("ask", "who built the harbour", "page.html", "docs")
    assert (answer["answer"], answer["document"]) == ("Mary Poole", "docs/deep/harbour.md")
    (place,) = answer["short_answers"]
    assert harbour[place["start_char"] : place["end_char"]] == "Mary Poole"
    skipped = [text.split()[0] for text in answer["skipped_documents"]]
    assert skipped == ["docs/locked.pdf", "docs/nul.txt"]
    assert "2 of 5 documents cannot be read: docs/locked.pdf" in commands.err
    options = ["--set", "max_contexts=3", "--top", "0"]
    out = commands.out("ask", "who opened the school", "docs", "page.html", *options)
    assert out.startswith("Jim Dale (")
    assert "found in docs/school.pdf, page 2 (" in out
    assert "3 blocks" in commands.err
    assert "--record" in commands.error("ask", "who", "docs", "--record", "2", code=2)


@pytest.mark.slow
def test_a_document_that_takes_too_much_memory_is_skipped(
    tmp_path: Path, tiny_model: Path, commands: Commands
) -> None:
    (tmp_path / "a.txt").write_text("The harbour was built by Mary Poole in 1902.")
    (tmp_path / "b.pdf").write_bytes(document_files.expanding_pdf())
    (tmp_path / "c.pdf").write_bytes(document_files.expanding_pdf(100_000, n_pages=40))
    assert max(path.stat().st_size for path in tmp_path.iterdir()) < 1 << 16
    options = ["--top", "0", "--model", tiny_model, "--profile", "baseline"]
    answer = commands.json("ask", "who built the harbour", tmp_path, *options)
    first, second = answer["skipped_documents"]
    assert "b.pdf" in first and "out of memory" in first
    assert "c.pdf" in second and "25400" in second
