"""Tests standard input and pipes, which are copied to temporary files."""

import contextlib
import gzip
import io
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from nq.formats import inputs
from nq.formats.input_files import LOCAL, shown
from nq.questions import Questions, read_examples
from tests.support.nq_records import simplified, to_line

LINES = b"".join(to_line(simplified(i, words=5)) + b"\n" for i in range(3))


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An own folder for temporary files, which is empty again after each test."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert not list(folder.iterdir())


@contextlib.contextmanager
def written(data: bytes, path: Path | None = None) -> Iterator[int]:
    """Yields a descriptor of a pipe; another thread writes the data to it, or to ``path``."""
    read_end, write_end = os.pipe()

    def write() -> None:
        with open(path or write_end, "wb") as file:
            file.write(data)

    thread = threading.Thread(target=write)
    thread.start()
    yield read_end
    thread.join()
    os.close(read_end)
    if path:
        os.close(write_end)


def ids(files: list[str]) -> list[int | str]:
    return [example.example_id for example in read_examples(files)]


def test_a_descriptor_of_a_pipe_is_read_twice(temporary: Path) -> None:
    data = gzip.compress(LINES)
    with written(bytes(data)) as pipe, LOCAL.found([f"/dev/fd/{pipe}"]) as (path,):
        assert Path(path).read_bytes() == data
        assert Path(path).parent.parent == temporary
        assert [ids([path]), ids([path])] == [[0, 1, 2]] * 2
        assert [source.path for source, _ in inputs.read_records(path)] == ["a pipe"] * 3


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    with written(LINES + b"bad") as pipe:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(os.fdopen(pipe, "rb", closefd=False)))
        with LOCAL.found(["/dev/stdin", "-"]) as (path,):
            *_, (source, _) = inputs.read_records(path)
            assert (source.path, source.line) == ("standard input", 4)


def test_a_damaged_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytearray(gzip.compress(LINES))
    data[-8] ^= 4
    with written(bytes(data)) as pipe, pytest.raises(ValueError, match=r"^a pipe .*damaged"):
        next(read_examples(f"/dev/fd/{pipe}", skip_bad=True))
    with written(bytes(data)) as pipe:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(os.fdopen(pipe, "rb", closefd=False)))
        with (
            pytest.raises(ValueError, match=r"^standard input .*damaged"),
            Questions.open("-", limit=1),
        ):
            pass


def test_examples_of_pipes_and_files(tmp_path: Path) -> None:
    file, named = tmp_path / "a.jsonl", tmp_path / "pipe.jsonl"
    lines = [b"".join(to_line(simplified(i)) + b"\n" for i in (n, n + 1)) for n in (0, 2, 4)]
    file.write_bytes(lines[1])
    os.mkfifo(named)
    with written(lines[0]) as first, written(lines[2], named):
        assert ids([f"/dev/fd/{first}", str(file), str(named)]) == [*range(6)]
    with written(LINES) as pipe:
        assert next(read_examples(f"/dev/fd/{pipe}")).example_id == 0


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.jsonl"))
    path.write_bytes(LINES)
    assert shown(path.name) == r"caf\xe9.jsonl"
    ((source, _), *_) = inputs.read_records(str(path))
    assert source.path == f"{tmp_path}/caf\\xe9.jsonl"
