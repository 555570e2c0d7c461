"""Tests of questions: which are read, in which order, what is checked, and what identifies them."""

import logging
import os
import re
from pathlib import Path
from random import randbytes
from typing import Any

import pytest

from nq.errors import Error
from nq.formats import inputs
from nq.formats.fields import RecordError
from nq.formats.input_files import find_files
from nq.formats.inputs import decode_row
from nq.formats.lines import MAX_LINES
from nq.formats.own_data import list_pages
from nq.questions import Questions, mention_unnamed_pages, read_examples
from nq.records import DeadLetter, Example, Source
from tests.formats.hugging_face_rows import row
from tests.formats.hugging_face_rows import write as write_parquet
from tests.support import nq_records
from tests.support.folders import write
from tests.support.nq_records import simplified, write_lines


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of a plain, a gzip and a parquet file, with two bad records and an id twice."""
    write_lines(tmp_path / "a.jsonl", [simplified(1), {"example_id": 5}, nq_records.v1(2)])
    write_lines(tmp_path / "b.jsonl.gz", [nq_records.v1(3), b"nonsense", nq_records.v1(1)])
    write_parquet(tmp_path / "c.parquet", [row(nq_records.v1(4))])
    return tmp_path


@pytest.fixture
def paged(tmp_path: Path) -> Questions:
    """Two questions about one of two pages."""
    for name in ("lake", "other"):
        write(tmp_path / "pages" / f"{name}.txt", f"The {name} is old.\n\nThe {name} is deep.")
    lines = [{"id": i, "question": "is it deep", "page": "lake"} for i in range(2)]
    path = write_lines(tmp_path / "q.jsonl", lines)
    return Questions((str(path),), list_pages(tmp_path / "pages"))


def kinds(questions: Questions, *behind: tuple[int, int]) -> list[int | str]:
    """Returns the id of each good record, and where each bad one is."""
    records = questions.behind(*behind) if behind else iter(questions)
    return [
        item.example_id if isinstance(item, Example) else f"{Path(at.path).name}:{at.line}"
        for at, item in records
    ]


def test_a_repeated_id_is_a_dead_letter_in_its_place(folder: Path) -> None:
    with Questions.open(folder) as questions:
        expected = [1, "a.jsonl:2", 2, 3, "b.jsonl.gz:2", "b.jsonl.gz:3", 4]
        assert kinds(questions) == kinds(questions) == expected
        assert [example.example_id for example in questions.examples()] == [1, 2, 3, 4]
        assert kinds(questions, (0, 3)) == [3, "b.jsonl.gz:2", 1, 4]  # without the ids before
        letter = next(one for at, one in questions if (at.file_index, at.line) == (1, 3))
    assert isinstance(letter, DeadLetter) and "example_id 1 " in letter.reason
    assert letter.record == nq_records.v1(1)["question_text"]
    for limit in (1, 4, 9):
        with Questions.open(folder, limit=limit) as questions:
            assert kinds(questions) == expected[:limit]


def test_read_examples(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    examples = read_examples([f"{folder}/*.parquet", folder / "a.jsonl"])
    assert [next(examples).example_id for _ in range(2)] == [4, 1]
    with pytest.raises(RecordError, match=r"a\.jsonl, line 2\b"):
        next(examples)
    assert not caplog.messages
    everything = read_examples(folder, skip_bad=True)
    assert [example.example_id for example in everything] == [1, 2, 3, 4]
    *letters, total = caplog.messages
    places = [("a.jsonl", 2), ("b.jsonl.gz", 2), ("b.jsonl.gz", 3)]
    for message, (name, line) in zip(letters, places, strict=True):
        assert f"{name}, line {line}: " in message
    assert re.search(r"\b3\b", total)


def test_questions_without_a_good_record_are_an_error(folder: Path, tmp_path: Path) -> None:
    bad = str(write_lines(tmp_path / "bad.jsonl", [{"question": "who"}, {"query": "x"}]))
    empty = str(write_lines(tmp_path / "empty.jsonl", []))
    for path, limit, named in (
        (bad, None, f"2 .*{bad}, line 1"),
        (bad, 1, f"{bad}, line 1"),
        (empty, None, empty),
    ):
        with pytest.raises(Error, match=named), Questions.open([path], limit=limit):
            pass
    with Questions.open([bad, empty, folder / "a.jsonl"]) as questions:
        assert len(list(questions)) == 5


def test_files_behind_the_limit_are_not_read_to_their_ends(folder: Path) -> None:
    noise = [simplified(10 + i) | {"noise": randbytes(999).hex()} for i in range(2 * MAX_LINES)]
    path = write_lines(folder / "b.jsonl.gz", noise)
    path.write_bytes(path.read_bytes()[:-8] + b"\0" * 8)
    for limit in (1, 3):
        with Questions.open(folder, limit=limit) as questions:
            assert len(list(questions)) == limit
    for beyond in (4, None):
        with (
            pytest.raises(ValueError, match=f"{path} .*damaged"),
            Questions.open(folder, limit=beyond),
        ):
            pass


def test_what_identifies_questions(paged: Questions, tmp_path: Path) -> None:
    assert paged.pages is not None
    before = Questions(paged.files, paged.pages).key
    moved = Path(paged.files[0]).rename(tmp_path / "moved.jsonl")
    pages = Path(paged.pages.folder).rename(tmp_path / "moved")
    with pytest.raises(FileNotFoundError):
        _ = paged.key
    again = Questions((str(moved),), list_pages(pages))
    key = again.key
    assert key["pages"] == before["pages"]
    again.check_same()
    Questions(again.files, again.pages, limit=1).check_same(key)
    with pytest.raises(Error, match="pages"):
        Questions(again.files).check_same(key)
    with pytest.raises(Error, match=r"found 2 .* expected 1"):
        Questions(again.files * 2, again.pages).check_same(key)
    page, status = pages / "lake.txt", (pages / "lake.txt").stat()
    page.write_text(page.read_text().replace("old", "new"))
    os.utime(page, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(Error, match=str(pages)):
        again.check_same()
    others = again.pages, list_pages(pages, "x"), None
    keys = [key, *(Questions(again.files, other).key for other in others)]
    assert len(set(map(str, keys))) == 4


def test_pages_that_no_question_names_are_mentioned(
    paged: Questions, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = write_lines(tmp_path / "other.jsonl", [{"question": "who", "page": "other"}])
    mention_unnamed_pages(paged, Questions((str(other),), paged.pages))
    mention_unnamed_pages(Questions(paged.files))
    assert not caplog.messages
    mention_unnamed_pages(paged)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "1 of the 2 pages" in record.getMessage() and "other.txt" in record.getMessage()


def test_first_records_are_decoded_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = kinds(Questions(tuple(find_files(folder))))
    decoded = list[tuple[int, int]]()

    def decode(source: Source, *others: Any) -> Any:
        decoded.append((source.file_index, source.line))
        return decode_row(source, *others)

    monkeypatch.setattr(inputs, "decode_row", decode)
    with Questions.open(folder) as questions:
        for n in (1, 3, 3):
            assert [example.example_id for example in questions.first(n)] == [1, 2, 3][:n]
        assert kinds(questions) == expected
    assert len(decoded) == len(set(decoded)) == len(expected)
