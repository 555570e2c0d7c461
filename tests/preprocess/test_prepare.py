"""The Beam job in this process: what it writes, when it reuses it, and what it leaves alone."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import json
import os
import resource
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import google_crc32c
import pytest

from nq.config import WindowConfig
from nq.errors import Error
from nq.formats import inputs
from nq.formats.tfrecord import encode_records
from nq.preprocess import store as layout
from nq.preprocess.beam.runner import WORKER_PIDS
from nq.preprocess.features import features, training_features
from nq.preprocess.prepare import LARGE_INPUT_BYTES, Prepared, Request, default_workers, prepare
from nq.preprocess.store import (
    COMPLETED,
    DEAD_LETTERS,
    LOCK,
    MANIFEST,
    UNFINISHED,
    find_completed,
)
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.records import Example
from tests import nq_records
from tests.nq_records import simplified, write_lines

CONFIG = WindowConfig(max_seq_length=48, max_query_length=12, doc_stride=16)
SHARD = "windows-00000-of-00001.tfrecord"


def ask(folder: Path) -> Request:
    """For two files, one of each dialect, with bad records in both, written to ``folder``."""
    good = [simplified(i, words=20 + i % 50) for i in range(40)]
    first = write_lines(folder / "b.jsonl.gz", [*good[:30], b"null", *good[30:], b"[]"])
    bad = '"\u2028\x85"'.encode()
    second = write_lines(folder / "a.jsonl", [nq_records.v1(100), bad, nq_records.v1(101)])
    return Request((str(first), str(second)), str(nq_records.write_vocab(folder)), CONFIG)


@pytest.fixture
def asked(tmp_path: Path) -> Request:
    return ask(tmp_path)


@pytest.fixture(scope="module")
def example_of_a_job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    prepare(ask(folder), folder / "out")
    return folder


@pytest.fixture
def made(example_of_a_job: Path, out: Path) -> Prepared:
    """A finished job in ``out``, of the request ``asked``."""
    shutil.copytree(example_of_a_job / "out", out)
    found = find_completed(out, ask(example_of_a_job).describe())
    assert found
    return found


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def read_shard(path: Path) -> list[bytes]:
    """The records of a TFRecord file, with their checksums verified."""

    def checksum(data: bytes) -> bytes:
        crc: int = google_crc32c.value(data)
        return ((((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF).to_bytes(4, "little")

    data, found = path.read_bytes(), []
    while data:
        end = 12 + int.from_bytes(data[:8], "little")
        assert data[8:12] == checksum(data[:8])
        assert data[end : end + 4] == checksum(data[12:end])
        found.append(data[12:end])
        data = data[end + 4 :]
    return found


def records(prepared: Prepared) -> list[bytes]:
    return [record for shard in prepared.shards for record in read_shard(shard)]


def expected_records(asked: Request) -> list[list[bytes]]:
    """What plain functions make of each example, without Beam."""
    tokenizer = load_tokenizer(asked.tokenizer, asked.windows.compat)
    found = []
    for index, path in enumerate(asked.files):
        for source, item in inputs.read_records(path, index):
            if isinstance(item, Example):
                if asked.training:
                    made = training_features(item, tokenizer, asked.windows, *asked.training)
                else:
                    made = features(item, tokenizer, asked.windows)
                found.append(list(encode_records(made, source, asked.windows.compat)))
    return found


def flat(lists: list[list[bytes]]) -> list[bytes]:
    return [record for records in lists for record in records]


def dead_letters(prepared: Prepared) -> list[tuple[str, int, str]]:
    letters = map(json.loads, prepared.dead_letter_file.read_text(encoding="utf-8").splitlines())
    return [(Path(x["file"]).name, x["line"], x["reason"]) for x in letters]


def state(folder: Path) -> dict[str, Any]:
    """Every file below a folder with its bytes and its time."""
    files = (p for p in folder.rglob("*") if p.is_file())
    return {str(p): (p.read_bytes(), p.stat().st_mtime_ns) for p in files}


def names(folder: Path) -> set[str]:
    return {p.name for p in folder.iterdir()}


# --- what it writes -----------------------------------------------------------------------


def test_writes_what_plain_functions_make_in_order(
    example_of_a_job: Path, made: Prepared, out: Path
) -> None:
    prepared, asked = made, ask(example_of_a_job)
    assert names(out) == {SHARD, MANIFEST, COMPLETED, DEAD_LETTERS, LOCK}
    assert records(prepared) == flat(expected_records(asked))
    assert (prepared.examples, prepared.windows) == (42, len(records(prepared)))
    assert prepared.dead_letters == 3
    assert dead_letters(prepared) == [
        ("b.jsonl.gz", 31, "expected a JSON object, found null"),
        ("b.jsonl.gz", 42, "expected a JSON object, found an array"),
        ("a.jsonl", 2, "expected a JSON object, found a string"),
    ]
    first = "line 31: expected a JSON object, found null"
    assert prepared.first_dead_letter() == f"{asked.files[0]}, {first}"


def test_two_workers_write_the_same_records(asked: Request, out: Path) -> None:
    prepared = prepare(asked, out, workers=2)
    assert len(prepared.shards) == 2
    written = [read_shard(shard) for shard in prepared.shards]
    expected = expected_records(asked)
    assert sorted(flat(written)) == sorted(flat(expected))
    for windows in expected:  # of one example: side by side in one shard
        (shard,) = (s for s in written if windows[0] in s)
        start = shard.index(windows[0])
        assert shard[start : start + len(windows)] == windows
    assert [line for _, line, _ in dead_letters(prepared)] == [31, 42, 2]
    assert names(out) == {
        *(s.name for s in prepared.shards),
        MANIFEST,
        COMPLETED,
        DEAD_LETTERS,
        LOCK,
    }


def test_workers_take_no_modules_of_the_working_folder(
    asked: Request, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pickle.py").write_text("raise SystemExit('a script of the user')")
    monkeypatch.chdir(tmp_path)
    assert prepare(asked, out, workers=2).examples


def test_training_records(asked: Request, out: Path) -> None:
    training = replace(asked, training=(0.5, 7))
    prepared = prepare(training, out)
    assert records(prepared) == flat(expected_records(training))
    assert 0 < prepared.windows < len(flat(expected_records(asked)))


def test_one_worker_writes_the_same_bytes_each_time(tmp_path: Path) -> None:
    for i in range(7):
        write_lines(tmp_path / f"{i}.jsonl", [simplified(i * 10 + j, words=30) for j in range(3)])
    files = inputs.find_files([str(tmp_path)])
    asked = Request(tuple(files), str(nq_records.write_vocab(tmp_path)), CONFIG)
    first, second = (prepare(asked, tmp_path / name) for name in ("one", "two"))
    assert [s.read_bytes() for s in first.shards] == [s.read_bytes() for s in second.shards]
    assert records(first) == flat(expected_records(asked))


def test_limit_counts_records_of_all_files(asked: Request, out: Path) -> None:
    prepared = prepare(replace(asked, limit=43), out)
    assert (prepared.examples, prepared.dead_letters) == (41, 2)


def test_limit_with_a_damaged_file(asked: Request, out: Path) -> None:
    first = Path(asked.files[0])
    first.write_bytes(first.read_bytes()[:-30])
    prepared = prepare(replace(asked, limit=100), out)
    assert prepared.examples < 42
    assert any("cut off" in reason for _, _, reason in dead_letters(prepared))


@pytest.mark.parametrize("lines", [[], [b"bad", b"worse"]])
def test_without_a_good_record(asked: Request, out: Path, lines: list[bytes]) -> None:
    Path(asked.files[0]).write_bytes(b"\n".join(lines))
    prepared = prepare(replace(asked, files=asked.files[:1]), out)
    assert (prepared.examples, prepared.windows, prepared.dead_letters) == (0, 0, len(lines))
    assert records(prepared) == []
    assert (out / COMPLETED).exists()


def test_a_folder_of_any_name_with_hidden_files(asked: Request, tmp_path: Path) -> None:
    out = tmp_path / "[x]*? it's ü" / "out"
    out.mkdir(parents=True)
    (out / ".gitignore").write_text("*")
    prepared = prepare(asked, out)
    assert prepared.windows == len(records(prepared)) > 0
    assert (out / ".gitignore").read_text() == "*"


def test_input_names_that_are_no_text(asked: Request, tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.jsonl"))
    write_lines(path, [simplified(), b"bad"])
    prepared = prepare(replace(asked, files=(str(path),)), tmp_path / "out")
    assert (prepared.examples, prepared.dead_letters) == (1, 1)
    assert prepared.first_dead_letter().startswith(f"{tmp_path}/\\xff.jsonl, line 2: not JSON")


def test_large_input_takes_all_cores(tmp_path: Path) -> None:
    for name, size in (("small", 1000), ("large", LARGE_INPUT_BYTES)):
        with (tmp_path / name).open("wb") as file:
            file.truncate(size)
    assert default_workers([str(tmp_path / "small")]) == 1
    assert default_workers([str(tmp_path / "large")]) == len(os.sched_getaffinity(0))


# --- reuse --------------------------------------------------------------------------------


def test_an_equal_request_reuses_what_is_there(
    asked: Request, made: Prepared, tmp_path: Path, out: Path
) -> None:
    before = state(out)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    moved = [Path(f).rename(elsewhere / Path(f).name) for f in asked.files]
    again = prepare(replace(asked, files=tuple(map(str, moved))), out)
    assert again == made
    assert state(out) == before


@pytest.mark.parametrize(
    "change", ["settings", "limit", "training", "input", "tokenizer", "fewer files", "version"]
)
def test_another_request_finds_nothing(
    asked: Request,
    made: Prepared,
    out: Path,
    change: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key = asked.key()
    assert find_completed(out, asked.describe()) == made
    if change == "input":
        write_lines(Path(asked.files[1]), [simplified(5)])
    elif change == "tokenizer":
        with Path(asked.tokenizer).open("a", encoding="utf-8") as file:
            file.write("zebra\n")
    elif change == "version":
        monkeypatch.setattr(layout, "__version__", "0")
    other = {
        "settings": replace(asked, windows=replace(CONFIG, doc_stride=8)),
        "limit": replace(asked, limit=3),
        "training": replace(asked, training=(0.1, 1)),
        "fewer files": replace(asked, files=asked.files[:1]),
    }.get(change, asked)
    assert other.key() != key
    assert find_completed(out, other.describe()) is None


@pytest.mark.parametrize(
    "damage", ["no mark", "no manifest", "{", "[1]", "{}", "no shard", "cut shard"]
)
def test_what_is_not_whole_is_not_reused(
    asked: Request, made: Prepared, out: Path, damage: str
) -> None:
    assert find_completed(out, asked.describe()) == made
    if damage == "no mark":
        (out / COMPLETED).unlink()
    elif damage == "no manifest":
        (out / MANIFEST).unlink()
    elif damage == "no shard":
        (out / SHARD).unlink()
    elif damage == "cut shard":
        os.truncate(out / SHARD, 100)
    else:
        (out / MANIFEST).write_text(damage)
    assert find_completed(out, asked.describe()) is None


@pytest.mark.usefixtures("made")
def test_another_job_takes_the_folder_over(asked: Request, out: Path) -> None:
    other = replace(asked, windows=replace(CONFIG, max_seq_length=40))
    again = prepare(other, out)
    assert not again.reused
    assert names(out) == {SHARD, MANIFEST, COMPLETED, DEAD_LETTERS, LOCK}
    assert records(again) == flat(expected_records(other))
    assert prepare(other, out) == replace(again, reused=True)


# --- other people's files, and failures ---------------------------------------------------


def test_leftovers_of_a_killed_job_are_cleared(asked: Request, out: Path) -> None:
    out.mkdir()
    (out / LOCK).touch()
    (out / f"{UNFINISHED}abc" / "beam-temp-windows-1").mkdir(parents=True)
    (out / "windows-00003-of-00004.tfrecord").write_bytes(b"half")
    (out / "notes.txt").write_text("mine")
    prepare(asked, out)
    assert names(out) == {SHARD, MANIFEST, COMPLETED, DEAD_LETTERS, LOCK, "notes.txt"}
    assert (out / SHARD).stat().st_size > 0


def test_a_folder_of_others_is_left_alone(asked: Request, out: Path) -> None:
    out.mkdir()
    for name in (MANIFEST, SHARD, "x", "y", ".hidden"):
        (out / name).write_text("mine")
    before = state(out)
    with pytest.raises(Error, match=r"holds other files \(manifest.json, .*, x, …\); give an"):
        prepare(asked, out)
    assert state(out) == before


def test_output_that_cannot_be_a_folder(asked: Request, out: Path) -> None:
    out.write_text("mine")
    with pytest.raises(FileExistsError, match="out"):
        prepare(asked, out)
    with pytest.raises(NotADirectoryError, match="out"):
        prepare(asked, out / "below")
    assert out.read_text() == "mine"


def test_two_jobs_do_not_share_a_folder(asked: Request, out: Path) -> None:
    out.mkdir()
    with (out / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Error, match=r"another job writes to .*; wait for it, or give"):
            prepare(asked, out)
    assert names(out) == {LOCK}


def test_a_bad_tokenizer_is_told_before_anything_is_written(asked: Request, out: Path) -> None:
    Path(asked.tokenizer).write_text("a\nb\n")
    with pytest.raises(ValueError, match=r"lacks \[CLS\]"):
        prepare(asked, out)
    assert not out.exists()


@contextlib.contextmanager
def largest_file(size: int) -> Iterator[None]:
    """As if the disk were full: no process may write a file beyond ``size`` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_while_writing_is_told_in_a_line(
    asked: Request, out: Path, workers: int, capfd: pytest.CaptureFixture[str]
) -> None:
    with largest_file(20_000), pytest.raises(Error) as caught:
        prepare(asked, out, workers)
    assert str(caught.value) == "OSError: [Errno 27] File too large (in step Write)"
    assert names(out) == {LOCK}
    assert capfd.readouterr() == ("", "")
    del caught
    gc.collect()  # here, where the warning that Beam left the file open is filtered


def test_a_killed_worker_is_told_and_does_not_hang(
    asked: Request, out: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def kill_one() -> None:
        while not (
            pids := [p for f in out.glob(f"*/{WORKER_PIDS}") for p in f.read_text().split()]
        ):
            time.sleep(0.05)
        os.kill(int(pids[0]), signal.SIGKILL)

    killer = threading.Thread(target=kill_one)
    killer.start()
    with pytest.raises(Error, match="a worker process was killed, perhaps for want of memory"):
        prepare(asked, out, workers=2)
    killer.join()
    assert names(out) == {LOCK}
    assert capfd.readouterr() == ("", "")
