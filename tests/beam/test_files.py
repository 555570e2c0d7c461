"""Tests files and models with a URI, in a file system of Beam."""

import gzip
import zipfile
from pathlib import Path

import pytest

from nq.beam import files
from nq.beam.transforms import read_share
from nq.errors import DamagedError, Error
from nq.questions import Questions, mention_unnamed_pages
from nq.records import Source
from nq.storage import sha256
from tests.beam.folder_file_system import uri
from tests.support.nq_records import simplified, to_line, write_lines

LINES = [simplified(1), b"bad", simplified(2), simplified(3)]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    write_lines(tmp_path / "data" / "a.jsonl", LINES)
    write_lines(tmp_path / "data" / "b.jsonl", [simplified(9)])
    (tmp_path / "data" / "notes.txt").write_text("no data")
    return tmp_path / "data"


def test_files_are_found_by_patterns(data: Path) -> None:
    a, b = (uri(data / name) for name in ("a.jsonl", "b.jsonl"))
    for patterns, expected in (
        ([uri(data / "*.jsonl")], [a, b]),
        ([f"{uri(data)}/"], [a, b]),
        ([b, a, b, str(data / "a.jsonl")], [b, a, str(data / "a.jsonl")]),
    ):
        with files.BEAM.found(patterns) as paths:
            assert paths == expected
    with pytest.raises(FileNotFoundError, match=r"folder://.*\.csv"):
        files.BEAM.found([uri(data / "*.csv")])
    with pytest.raises(ValueError, match="s3"):
        files.BEAM.found(["other-s3://bucket/dev.jsonl"])


def test_records_have_the_name_of_their_file(data: Path) -> None:
    path = uri(data / "a.jsonl")
    sources = [source for source, _ in read_share((0, 0, 2), [path], [3], None)]
    assert sources == [Source(0, path, 1), Source(0, path, 3)]


def digest(path: Path) -> str:
    with Questions.open([uri(path)], files=files.BEAM) as questions:
        return str(questions.key["inputs"][0]["sha256"])


def test_the_check_of_files(data: Path) -> None:
    path = data / "a.jsonl"
    assert digest(path) == sha256(path)
    write_lines(path, [b"bad", b"worse"])
    with pytest.raises(Error, match=r"folder://.*a\.jsonl, line"):
        digest(path)
    path.write_bytes(b"%PDF-1.7\n")
    with pytest.raises(ValueError, match=r"^folder://.*a\.jsonl .*PDF"):
        digest(path)
    path.write_bytes(gzip.compress(b"".join(map(to_line, LINES[::2])))[:-8] + b"\0" * 8)
    with pytest.raises(ValueError, match=r"^folder://.*a\.jsonl .*damaged"):
        digest(path)


def test_pages_that_no_question_of_a_uri_names(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_lines(data / "a.jsonl", [{"question": "is it deep", "page": "notes"}])
    (data / "other.txt").write_text("It is deep.")
    with Questions.open([uri(data / "a.jsonl")], pages=data, files=files.BEAM) as questions:
        mention_unnamed_pages(questions)
    (message,) = caplog.messages
    assert "1 of the 2 pages" in message and "other.txt" in message


def test_a_file_that_changes_is_noticed(data: Path) -> None:
    path = data / "a.jsonl"
    questions = Questions((uri(path),), system=files.BEAM)
    questions.check_same()
    write_lines(path, LINES * 2)
    with pytest.raises(Error, match=r"folder://.*a\.jsonl"):
        questions.check_same()


def test_a_damaged_copy_of_a_model_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    staged = files.stage_model(tiny_model, str(tmp_path))
    with open(staged, "r+b") as file:
        file.write(b"other")
    with pytest.raises(DamagedError, match=staged):
        files.local_folder(staged)


def test_a_copy_of_a_model_is_written_in_its_folder_alone(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("../outside", "")
    staged = archive.rename(tmp_path / f"model-{sha256(archive)}.zip")
    folder = files.local_folder(str(staged))
    assert list(folder.parent.rglob("outside")) == [folder / "outside"]


@pytest.mark.parametrize("name", ["[x]", "a*", "\udcff"])
def test_a_folder_that_beam_takes_for_a_pattern_is_refused(name: str) -> None:
    with pytest.raises(Error, match="patterns"):
        files.check_no_pattern(Path(name))
