"""The preprocessing job: the files that it writes, when it reuses them, and its errors."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import json
import os
import re
import resource
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nq.config import WindowConfig
from nq.errors import Error
from nq.formats import inputs
from nq.formats.tfrecord import encode_records
from nq.formats.tfrecord_file import read_records
from nq.preprocess import request as request_module
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


def make_request(folder: Path) -> Request:
    """A request for two files, one of each dialect, with bad records in both."""
    good = [simplified(i, words=20 + i % 50) for i in range(40)]
    first = write_lines(folder / "b.jsonl.gz", [*good[:30], b"null", *good[30:], b"[]"])
    bad = '"\u2028\x85"'.encode()
    second = write_lines(folder / "a.jsonl", [nq_records.v1(100), bad, nq_records.v1(101)])
    return Request((str(first), str(second)), str(nq_records.write_vocab(folder)), CONFIG)


@pytest.fixture
def job_request(tmp_path: Path) -> Request:
    return make_request(tmp_path)


@pytest.fixture(scope="module")
def finished_job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    prepare(make_request(folder), folder / "out")
    return folder


@pytest.fixture
def completed(finished_job: Path, out: Path) -> Prepared:
    """A finished job in ``out``, of the request ``job_request``."""
    shutil.copytree(finished_job / "out", out)
    prepared = find_completed(out, make_request(finished_job).description)
    assert prepared
    return prepared


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def records(prepared: Prepared) -> list[bytes]:
    return [record for shard in prepared.shards for record in read_records(shard)]


def expected_records(job_request: Request) -> list[list[bytes]]:
    """The records of each example by plain functions, without Beam."""
    config, training = job_request.windows, job_request.training
    tokenizer = load_tokenizer(job_request.tokenizer, config.compat)
    records = []
    for index, path in enumerate(job_request.files):
        for source, item in inputs.read_records(path, index):
            if isinstance(item, Example):
                if training:
                    rows = training_features(item, tokenizer, config, *training)
                else:
                    rows = features(item, tokenizer, config)
                records.append(list(encode_records(rows, source, config.switches.id_name)))
    return records


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


# --- the files -----------------------------------------------------------------------


def test_records_are_those_of_the_plain_functions_in_order(
    finished_job: Path, completed: Prepared, out: Path
) -> None:
    prepared, job_request = completed, make_request(finished_job)
    assert names(out) == {SHARD, MANIFEST, COMPLETED, DEAD_LETTERS, LOCK}
    assert records(prepared) == flat(expected_records(job_request))
    assert (prepared.examples, prepared.windows) == (42, len(records(prepared)))
    assert prepared.dead_letters == 3
    assert dead_letters(prepared) == [
        ("b.jsonl.gz", 31, "expected a JSON object, found null"),
        ("b.jsonl.gz", 42, "expected a JSON object, found an array"),
        ("a.jsonl", 2, "expected a JSON object, found a string"),
    ]
    first = "line 31: expected a JSON object, found null"
    assert prepared.first_dead_letter() == f"{job_request.files[0]}, {first}"


@pytest.mark.slow
def test_two_workers_write_the_same_records(job_request: Request, out: Path) -> None:
    prepared = prepare(job_request, out, workers=2)
    assert len(prepared.shards) == 2
    written = [list(read_records(shard)) for shard in prepared.shards]
    expected = expected_records(job_request)
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


@pytest.mark.slow
def test_workers_import_no_modules_of_the_working_folder(
    job_request: Request, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pickle.py").write_text("raise SystemExit('a script of the user')")
    monkeypatch.chdir(tmp_path)
    assert prepare(job_request, out, workers=2).examples


def test_training_records(job_request: Request, out: Path) -> None:
    training = replace(job_request, training=(0.5, 7))
    prepared = prepare(training, out)
    assert records(prepared) == flat(expected_records(training))
    assert 0 < prepared.windows < len(flat(expected_records(job_request)))


def test_one_worker_writes_the_same_bytes_each_time(tmp_path: Path) -> None:
    for i in range(7):
        write_lines(tmp_path / f"{i}.jsonl", [simplified(i * 10 + j, words=30) for j in range(3)])
    files = inputs.find_files([str(tmp_path)])
    job_request = Request(tuple(files), str(nq_records.write_vocab(tmp_path)), CONFIG)
    first, second = (prepare(job_request, tmp_path / name) for name in ("one", "two"))
    assert [s.read_bytes() for s in first.shards] == [s.read_bytes() for s in second.shards]
    assert records(first) == flat(expected_records(job_request))


def test_limit_counts_records_of_all_files(job_request: Request, out: Path) -> None:
    prepared = prepare(replace(job_request, limit=43), out)
    assert (prepared.examples, prepared.dead_letters) == (41, 2)


def test_limit_with_a_damaged_file(job_request: Request, out: Path) -> None:
    first = Path(job_request.files[0])
    first.write_bytes(first.read_bytes()[:-30])
    prepared = prepare(replace(job_request, limit=100), out)
    assert prepared.examples < 42
    assert any("cut off" in reason for _, _, reason in dead_letters(prepared))


@pytest.mark.parametrize("lines", [[], [b"bad", b"worse"]])
def test_without_a_good_record(job_request: Request, out: Path, lines: list[bytes]) -> None:
    Path(job_request.files[0]).write_bytes(b"\n".join(lines))
    prepared = prepare(replace(job_request, files=job_request.files[:1]), out)
    assert (prepared.examples, prepared.windows, prepared.dead_letters) == (0, 0, len(lines))
    assert records(prepared) == []
    assert (out / COMPLETED).exists()


def test_a_folder_of_any_name_with_hidden_files(job_request: Request, tmp_path: Path) -> None:
    out = tmp_path / "[x]*? it's ü" / "out"
    out.mkdir(parents=True)
    (out / ".gitignore").write_text("*")
    prepared = prepare(job_request, out)
    assert prepared.windows == len(records(prepared)) > 0
    assert (out / ".gitignore").read_text() == "*"


def test_input_names_that_are_not_utf8(job_request: Request, tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.jsonl"))
    write_lines(path, [simplified(), b"bad"])
    prepared = prepare(replace(job_request, files=(str(path),)), tmp_path / "out")
    assert (prepared.examples, prepared.dead_letters) == (1, 1)
    assert prepared.first_dead_letter().startswith(f"{tmp_path}/\\xff.jsonl, line 2: not JSON")


def test_large_input_takes_all_cores(tmp_path: Path) -> None:
    for name, size in (("small", 1000), ("large", LARGE_INPUT_BYTES)):
        with (tmp_path / name).open("wb") as file:
            file.truncate(size)
    assert default_workers([str(tmp_path / "small")]) == 1
    assert default_workers([str(tmp_path / "large")]) == len(os.sched_getaffinity(0))


# --- without Beam ---------------------------------------------------------------------------


@pytest.fixture
def without_beam(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if Apache Beam were not installed."""
    monkeypatch.setitem(sys.modules, "apache_beam", None)


def folder_bytes(folder: Path) -> dict[str, bytes]:
    """Every file's bytes, without the time that the job took."""
    files = {p.name: p.read_bytes() for p in folder.iterdir()}
    return files | {MANIFEST: re.sub(rb'"seconds": [\d.]+', b"", files[MANIFEST])}


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"training": (0.5, 7)},
        {"limit": 33},
        {"limit": 43},
        {"first_file": 3},
        {"windows": replace(CONFIG, max_contexts=1)},
        {"windows": replace(CONFIG, compat="kisialiou")},
        {"files": ()},
    ],
    ids=str,
)
def test_the_plain_loop_writes_the_bytes_of_beam(
    job_request: Request, tmp_path: Path, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    job_request = replace(job_request, **changes)
    by_beam = prepare(job_request, tmp_path / "beam", workers=1)
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    by_loop = prepare(job_request, tmp_path / "loop", workers=1)
    assert folder_bytes(tmp_path / "loop") == folder_bytes(tmp_path / "beam")
    assert by_loop.examples == by_beam.examples


@pytest.mark.usefixtures("without_beam")
@pytest.mark.parametrize(("workers", "options"), [(2, []), (None, ["--runner=DirectRunner"])])
def test_what_needs_beam_names_the_extra(
    job_request: Request, out: Path, workers: int | None, options: list[str]
) -> None:
    with pytest.raises(
        Error, match=r"^Apache Beam is not installed: run pip install 'nq\[beam\]'$"
    ):
        prepare(job_request, out, workers, options)
    assert not out.exists()


@pytest.mark.usefixtures("without_beam")
def test_a_full_disk_stops_the_plain_loop(job_request: Request, out: Path) -> None:
    with largest_file(20_000), pytest.raises(OSError, match="File too large"):
        prepare(job_request, out)
    assert names(out) == {LOCK}


# --- reuse --------------------------------------------------------------------------------


def test_an_equal_request_reuses_the_folder(
    job_request: Request, completed: Prepared, tmp_path: Path, out: Path
) -> None:
    before = state(out)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    moved = [Path(f).rename(elsewhere / Path(f).name) for f in job_request.files]
    again = prepare(replace(job_request, files=tuple(map(str, moved))), out)
    assert again == completed
    assert state(out) == before


@pytest.mark.parametrize(
    "change", ["settings", "limit", "training", "input", "tokenizer", "fewer files", "version"]
)
def test_another_request_does_not_reuse_it(
    job_request: Request,
    completed: Prepared,
    out: Path,
    change: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key = job_request.key
    assert find_completed(out, job_request.description) == completed
    if change == "input":
        write_lines(Path(job_request.files[1]), [simplified(5)])
    elif change == "tokenizer":
        with Path(job_request.tokenizer).open("a", encoding="utf-8") as file:
            file.write("zebra\n")
    elif change == "version":
        monkeypatch.setattr(request_module, "__version__", "0")
    other = {
        "settings": replace(job_request, windows=replace(CONFIG, doc_stride=8)),
        "limit": replace(job_request, limit=3),
        "training": replace(job_request, training=(0.1, 1)),
        "fewer files": replace(job_request, files=job_request.files[:1]),
    }.get(change, replace(job_request))
    assert other.key != key
    assert find_completed(out, other.description) is None


@pytest.mark.parametrize(
    "damage", ["no mark", "no manifest", "{", "[1]", "{}", "no shard", "cut shard"]
)
def test_a_damaged_folder_is_not_reused(
    job_request: Request, completed: Prepared, out: Path, damage: str
) -> None:
    assert find_completed(out, job_request.description) == completed
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
    assert find_completed(out, job_request.description) is None


def test_an_older_manifest_has_no_unread_blocks(
    job_request: Request, completed: Prepared, out: Path
) -> None:
    manifest = json.loads((out / MANIFEST).read_text())
    del manifest["counts"]["unread_blocks"], manifest["counts"]["truncated_pages"]
    (out / MANIFEST).write_text(json.dumps(manifest))
    assert find_completed(out, job_request.description) == completed
    assert (completed.unread_blocks, completed.truncated_pages) == (0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_unread_blocks_are_counted(job_request: Request, out: Path, workers: int) -> None:
    windows = replace(CONFIG, max_contexts=1)  # the null context alone
    prepared = prepare(replace(job_request, windows=windows), out, workers)
    assert (prepared.unread_blocks, prepared.truncated_pages) == (42, 42)
    assert find_completed(out, replace(job_request, windows=windows).description) == replace(
        prepared, reused=True
    )


@pytest.mark.usefixtures("completed")
def test_another_request_replaces_the_windows(job_request: Request, out: Path) -> None:
    other = replace(job_request, windows=replace(CONFIG, max_seq_length=40))
    again = prepare(other, out)
    assert not again.reused
    assert names(out) == {SHARD, MANIFEST, COMPLETED, DEAD_LETTERS, LOCK}
    assert records(again) == flat(expected_records(other))
    assert prepare(other, out) == replace(again, reused=True)


# --- files of others, and failures -------------------------------------------------------


def test_files_of_a_killed_job_are_removed(job_request: Request, out: Path) -> None:
    out.mkdir()
    (out / LOCK).touch()
    (out / f"{UNFINISHED}abc" / "beam-temp-windows-1").mkdir(parents=True)
    (out / "windows-00003-of-00004.tfrecord").write_bytes(b"half")
    (out / "notes.txt").write_text("mine")
    prepare(job_request, out)
    assert names(out) == {SHARD, MANIFEST, COMPLETED, DEAD_LETTERS, LOCK, "notes.txt"}
    assert (out / SHARD).stat().st_size > 0


def test_a_folder_with_other_files_is_not_touched(job_request: Request, out: Path) -> None:
    out.mkdir()
    for name in (MANIFEST, SHARD, "x", "y", ".hidden"):
        (out / name).write_text("mine")
    before = state(out)
    with pytest.raises(Error, match=r"holds other files \(manifest.json, .*, x, …\); give an"):
        prepare(job_request, out)
    assert state(out) == before


def test_output_that_cannot_be_a_folder(job_request: Request, out: Path) -> None:
    out.write_text("mine")
    with pytest.raises(FileExistsError, match="out"):
        prepare(job_request, out)
    with pytest.raises(NotADirectoryError, match="out"):
        prepare(job_request, out / "below")
    assert out.read_text() == "mine"


def test_two_jobs_do_not_share_a_folder(job_request: Request, out: Path) -> None:
    out.mkdir()
    with (out / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Error, match=r"another job writes to .*; wait for it, or give"):
            prepare(job_request, out)
    assert names(out) == {LOCK}


def test_a_bad_tokenizer_is_an_error_before_anything_is_written(
    job_request: Request, out: Path
) -> None:
    Path(job_request.tokenizer).write_text("a\nb\n")
    with pytest.raises(ValueError, match=r"lacks \[CLS\]"):
        prepare(job_request, out)
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


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_while_writing_is_one_line(
    job_request: Request, out: Path, workers: int, capfd: pytest.CaptureFixture[str]
) -> None:
    with largest_file(20_000), pytest.raises(Error) as caught:
        prepare(job_request, out, workers)
    assert str(caught.value) == "OSError: [Errno 27] File too large (in step Write)"
    assert names(out) == {LOCK}
    assert capfd.readouterr() == ("", "")
    del caught
    gc.collect()  # here, where the warning that Beam left the file open is filtered


def test_a_killed_worker_is_an_error_and_does_not_hang(
    job_request: Request, out: Path, capfd: pytest.CaptureFixture[str]
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
        prepare(job_request, out, workers=2)
    killer.join()
    assert names(out) == {LOCK}
    assert capfd.readouterr() == ("", "")
