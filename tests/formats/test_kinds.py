"""Tests which files are refused as a whole, and that one bad line never is a reason for it."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import tarfile
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pytest

from nq.formats import inputs, pages
from nq.formats.tfrecord_file import write_records
from tests.nq_records import simplified, to_line, write_lines

RECORDS = [simplified(i, words=5) for i in range(3)]
LINES = b"\n".join(map(to_line, RECORDS))
TEXT = LINES.decode()


def archive_zip(compression: int) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        archive.writestr("a.jsonl", LINES)
    return file.getvalue()


def archive_tar() -> bytes:
    file, member = io.BytesIO(), tarfile.TarInfo("a.jsonl")
    member.size = len(LINES)
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.addfile(member, io.BytesIO(LINES))
    return file.getvalue()


def tfrecords(folder: Path) -> bytes:
    write_records(folder / "tfrecords", [b"one", b"two"])
    return (folder / "tfrecords").read_bytes()


def feather(folder: Path) -> bytes:
    pyarrow.feather.write_feather(pa.table({"a": [1]}), str(folder / "feather"))
    return (folder / "feather").read_bytes()


@pytest.mark.parametrize(
    ("data", "name", "advice"),
    [
        (archive_zip(zipfile.ZIP_STORED), "a zip archive", "extract the files in it"),
        (archive_zip(zipfile.ZIP_DEFLATED), "a zip archive", "extract the files in it"),
        (archive_tar(), "a tar archive", "extract the files in it"),
        (gzip.compress(archive_tar()), "a tar archive in a gzip file", "extract"),
        (gzip.compress(gzip.compress(LINES)), "a gzip file in a gzip file", "gunzip"),
        (bz2.compress(LINES), "a bzip2 file", "decompress it with bunzip2"),
        (bz2.compress(b""), "a bzip2 file", "decompress it with bunzip2"),
        (lzma.compress(LINES), "an xz file", "decompress it with unxz"),
        (b"\x28\xb5\x2f\xfd\x04\x00", "a zstd file", "decompress it with unzstd"),
        (b"%PDF-1.7\n%\xe2\xe3", "a PDF document", "export its text"),
        (b"SQLite format 3\0", "an SQLite database", "one JSON object a line"),
        (TEXT.encode("utf-16"), "UTF-16 text", "iconv -f UTF-16 -t UTF-8"),
        (TEXT.encode("utf-16-le"), "UTF-16 text", "iconv"),
        (TEXT.encode("utf-16-be"), "UTF-16 text", "iconv"),
        (TEXT.encode("utf-32"), "UTF-32 text", "iconv -f UTF-32 -t UTF-8"),
        (json.dumps(RECORDS).encode(), "a JSON array", "jq -c '.[]'"),
        (json.dumps(RECORDS, indent=2).encode(), "a JSON array", "jq -c '.[]'"),
        (b"[\n" + b",\n".join(map(to_line, RECORDS)) + b"\n]\n", "a JSON array", "jq"),
        (json.dumps(RECORDS[0], indent="\t").encode(), "pretty-printed JSON", "jq -c ."),
        (gzip.compress(json.dumps(RECORDS).encode()), "a JSON array in a gzip file", "jq"),
        (b"\xef\xbb\xbf" + json.dumps(RECORDS).encode(), "a JSON array", "jq"),
        (b"<!DOCTYPE html>\n<html>", "an HTML or XML file", "nq ask"),
        (b"id,query\n" + b"1,who\n" * 100, "no file of records, by its first 100", "another"),
    ],
)
def test_a_file_of_another_kind_is_refused_in_one_line(
    tmp_path: Path, data: bytes, name: str, advice: str
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(data)
    with pytest.raises(ValueError, match="is ") as caught:
        inputs.check_files([str(path)])
    assert str(caught.value).startswith(f"{path} is {name}")
    assert advice in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match=f"is {name}"):
        next(inputs.read_examples(path))
    with pytest.raises(ValueError, match=f"is {name}"):
        pages.read_page(path)


@pytest.mark.parametrize(("make", "name"), [(tfrecords, "TFRecord"), (feather, "Arrow")])
def test_binary_files_of_libraries_are_refused(tmp_path: Path, make: object, name: str) -> None:
    path = tmp_path / "a"
    path.write_bytes(make(tmp_path))  # type: ignore[operator]
    with pytest.raises(ValueError, match=f"is an? {name} file: "):
        inputs.check_files([str(path)])


@pytest.mark.parametrize(
    "first",
    [
        *(
            b"[",
            b"{",
            b"[{",
            b"hello",
            b"null",
            b"<html>",
            b"%PDF",
            b"\xff\xfe",
            b"BZhello",
            b"ORC a",
        ),
        *(
            to_line([RECORDS[0]]),
            b'{\x00"\x00',
            to_line(RECORDS[0])[:-9],
            b"\x00" * 300,
            b"x" * 10**6,
        ),
    ],
)
def test_a_bad_first_line_does_not_cost_the_others(tmp_path: Path, first: bytes) -> None:
    for name in ("a.jsonl", "a.jsonl.gz"):
        path = write_lines(tmp_path / name, [first, *RECORDS])
        inputs.check_files([str(path)])
        assert len(list(inputs.read_examples(path, skip_bad=True))) == len(RECORDS)


@pytest.mark.parametrize(
    "data", [b"", b"\n\n", b"[1, 2]", b"hello", LINES, b" \n" + LINES, b"\x1f\x8bdamaged"]
)
def test_other_files_are_read_line_by_line(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(data)
    inputs.check_files([str(path)])


@pytest.mark.parametrize(
    ("data", "name"),
    [(b"%PDF-1.7\n", "a PDF document"), (gzip.compress(b"text"), "a gzip file")],
)
def test_pages_of_another_kind_are_refused(tmp_path: Path, data: bytes, name: str) -> None:
    path = tmp_path / "page"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=rf"page is {name}: .*; expected plain text or HTML"):
        pages.read_page(path)
