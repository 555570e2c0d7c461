"""The preprocessing job: the files that it writes, when it reuses them, and its errors."""

import gc
import json
import os
import re
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nq.beam.prepare import Prepared, Request, prepare, prepare_again
from nq.config import WindowConfig
from nq.errors import DamagedError, Error
from nq.formats import inputs
from nq.formats.tfrecord import encode_records, raw_records
from nq.preprocess.features import features, training_features
from nq.preprocess.store import COMPLETED, DEAD_LETTERS, MANIFEST, find_completed
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.records import Example
from nq.storage import LOCK, MARK, PART, UNFINISHED, hold
from tests import nq_records
from tests.child_processes import children
from tests.formats.reading import values_of
from tests.full_disk import small_files
from tests.nq_records import simplified, write_lines
from tests.tiny_models import write_vocab

CONFIG = WindowConfig(max_seq_length=48, max_query_length=12, doc_stride=16)
SHARD = "windows-00000-of-00001.tfrecord"
EXAMPLES = "examples-00000-of-00001.tfrecord"
FILES = {SHARD, MANIFEST, COMPLETED, DEAD_LETTERS, EXAMPLES, MARK}


def make_request(folder: Path) -> Request:
    """A request for two files, one of each dialect, with bad records in both."""
    good = [simplified(i, words=20 + i % 50) for i in range(40)]
    first = write_lines(folder / "b.jsonl.gz", [*good[:30], b"null", *good[30:], b"[]"])
    bad = '"\u2028\x85"'.encode()
    second = write_lines(folder / "a.jsonl", [nq_records.v1(100), bad, nq_records.v1(101)])
    return Request((str(first), str(second)), str(write_vocab(folder / "vocab.txt")), CONFIG)


@pytest.fixture
def job_request(tmp_path: Path) -> Request:
    return make_request(tmp_path)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def completed(job_request: Request, out: Path, monkeypatch: pytest.MonkeyPatch) -> Prepared:
    """The finished job of ``job_request`` in ``out``, as a later job finds it."""
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "apache_beam", None)
        return replace(prepare(job_request, out), reused=True)


def records(prepared: Prepared) -> list[bytes]:
    return [record for shard in prepared.shards for record in raw_records(shard)]


def names(folder: Path) -> set[str]:
    return {p.name for p in folder.iterdir()}


def folder_bytes(folder: Path) -> dict[str, bytes]:
    """Every file's bytes, without the time that the job took and the checksum over it."""
    files = {p.name: p.read_bytes() for p in folder.iterdir() if p.name != MARK}
    varying = rb'"seconds": [\d.]+|\n  "sha256": .*'
    return files | {MANIFEST: re.sub(varying, b"", files[MANIFEST])}


@pytest.mark.parametrize("training", [None, (0.5, 7)])
def test_records_are_those_of_the_plain_functions_in_order(
    job_request: Request, out: Path, training: tuple[float, int] | None
) -> None:
    prepared = prepare(replace(job_request, training=training), out)
    tokenizer = load_tokenizer(job_request.tokenizer)
    expected = list[bytes]()
    for index, path in enumerate(job_request.files):
        for source, item in inputs.read_records(path, index):
            if isinstance(item, Example):
                rows = features(item, tokenizer, CONFIG)
                if training:
                    rows = training_features(item, tokenizer, CONFIG, *training)
                expected += encode_records(rows, source, CONFIG.switches.id_name)
    assert names(out) == FILES - ({EXAMPLES} if training else set())
    assert records(prepared) == expected
    assert (prepared.examples, prepared.windows, prepared.dead_letters) == (42, len(expected), 3)
    letters = map(json.loads, prepared.dead_letter_file.read_bytes().splitlines())
    assert [(Path(x["file"]).name, x["line"], x["reason"]) for x in letters] == [
        ("b.jsonl.gz", 31, "expected a JSON object, found null"),
        ("b.jsonl.gz", 42, "expected a JSON object, found an array"),
        ("a.jsonl", 2, "expected a JSON object, found a string"),
    ]
    first = "line 31: expected a JSON object, found null"
    assert prepared.first_dead_letter() == f"{job_request.files[0]}, {first}"


def test_a_folder_of_any_name_with_files_of_a_killed_job_and_of_others(
    job_request: Request, tmp_path: Path
) -> None:
    out = tmp_path / "[x]*? it's ü" / "out"
    with hold(out / f"{UNFINISHED}abc", PART):
        (out / f"{UNFINISHED}abc" / "beam-temp-results-1").mkdir()
    (out / MARK).write_text('{"kind": "windows"}')
    (out / LOCK).touch()
    (out / "windows-00003-of-00004.tfrecord").write_bytes(b"half")
    (out / ".gitignore").write_text("*")
    prepared = prepare(job_request, out)
    assert names(out) == FILES | {".gitignore"}
    assert prepared.windows == len(records(prepared)) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "workers"),
    [
        ({}, 3),
        ({"training": (0.5, 7), "limit": 33, "first_file": 3}, 2),
    ],
    ids=str,
)
def test_the_plain_loop_writes_the_bytes_of_any_number_of_workers(
    job_request: Request,
    tmp_path: Path,
    changes: dict[str, Any],
    workers: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job_request = replace(job_request, **changes)
    by_beam = prepare(job_request, tmp_path / "beam", workers)
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    by_loop = prepare(job_request, tmp_path / "loop")
    assert folder_bytes(tmp_path / "loop") == folder_bytes(tmp_path / "beam")
    counts = by_loop.examples, by_loop.dead_letters
    assert counts == (by_beam.examples, by_beam.dead_letters)
    assert sum(counts) == (job_request.limit or 45 * bool(job_request.files))


def test_an_equal_request_reuses_the_folder(
    job_request: Request, completed: Prepared, tmp_path: Path, out: Path
) -> None:
    before = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    moved = [Path(f).rename(elsewhere / Path(f).name) for f in job_request.files]
    assert prepare(replace(job_request, files=tuple(map(str, moved))), out) == completed
    assert {path: path.stat().st_mtime_ns for path in out.iterdir()} == before


@pytest.mark.parametrize(
    "change",
    [
        {"windows": replace(CONFIG, doc_stride=8)},
        {"limit": 3},
        {"training": (0.1, 1)},
        {"files": 1},
        {},
        "tokenizer",
    ],
    ids=str,
)
def test_another_request_does_not_reuse_it(
    job_request: Request, completed: Prepared, out: Path, change: Any
) -> None:
    assert find_completed(out, job_request.description) == completed
    if change == {}:
        write_lines(Path(job_request.files[1]), [simplified(5)])
    elif change == "tokenizer":
        with Path(job_request.tokenizer).open("a", encoding="utf-8") as file:
            file.write("zebra\n")
        change = {}
    elif "files" in change:
        change = {"files": job_request.files[: change["files"]]}
    other = replace(job_request, **change)
    assert other.key != job_request.key
    assert find_completed(out, other.description) is None


@pytest.mark.parametrize("name", [MANIFEST, SHARD, DEAD_LETTERS, EXAMPLES])
@pytest.mark.parametrize("damage", ["missing", "cut", "flipped"])
def test_damage_is_found_logged_and_made_good(
    job_request: Request,
    completed: Prepared,
    out: Path,
    name: str,
    damage: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = folder_bytes(out)
    if damage == "missing":
        (out / name).unlink()
    elif damage == "flipped":
        data = bytearray((out / name).read_bytes())
        data[-20] ^= 4
        (out / name).write_bytes(data)
    else:
        os.truncate(out / name, (out / name).stat().st_size // 2)
    if name in (SHARD, EXAMPLES) and damage == "flipped":  # its records have checksums
        with pytest.raises(DamagedError, match=r"cut off or damaged near byte .* checksums$") as e:
            list(completed.read(job_request))
        again = prepare_again(job_request, out, e.value)
    else:
        with pytest.raises(DamagedError, match=rf"{name} is (damaged: .*|missing)$"):
            find_completed(out, job_request.description)
        again = prepare(job_request, out)
    assert replace(again, seconds=completed.seconds, reused=True) == completed
    assert folder_bytes(out) == before
    (message,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert name in message and message.endswith("; the windows are prepared again")


def test_the_folder_has_the_examples_of_the_input(
    job_request: Request, completed: Prepared
) -> None:
    expected = [
        (source, item)
        for index, path in enumerate(job_request.files)
        for source, item in inputs.read_records(path, index)
        if isinstance(item, Example)
    ]
    examples = list(completed.read(job_request))
    assert [one.source for one in examples] == [source for source, _ in expected]
    for one, (source, item) in zip(examples, expected, strict=True):
        assert values_of(one.example) == values_of(item)
        assert set(map(tuple, one.rows["example_keys"])) == {(source.file_index, source.line)}
    assert sum(map(len, examples)) == completed.windows


@pytest.mark.parametrize("moment", ["before", "during"])
def test_an_input_that_changes_is_an_error_and_leaves_no_windows(
    job_request: Request, out: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    changing = Path(job_request.files[1])
    assert job_request.description
    lines = changing.read_bytes().splitlines(keepends=True)
    status = changing.stat()

    def change() -> None:
        changing.write_bytes(b"".join(reversed(lines)))  # of the same size, and the same time
        os.utime(changing, ns=(status.st_atime_ns, status.st_mtime_ns))

    if moment == "before":
        change()
    else:
        monkeypatch.setattr("nq.beam.prepare.clear", lambda folder: change())
    with pytest.raises(Error, match=r"a\.jsonl has changed"):
        prepare(job_request, out)
    assert not {COMPLETED, MANIFEST, SHARD} & (names(out) if out.exists() else set())


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "size"), [(1, 20_000), (2, 500)])
def test_an_error_while_writing_is_one_line(
    job_request: Request, out: Path, workers: int, size: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """The output of workers has more than 500 bytes, too."""
    with small_files(size), pytest.raises(OSError, match="File too large") as caught:
        prepare(job_request, out, workers)
    assert Path(caught.value.filename).parent == out
    assert not out.exists()
    assert capfd.readouterr() == ("", "")
    del caught
    gc.collect()  # here, where the warning that Beam left the file open is filtered


def test_a_killed_worker_is_an_error_and_does_not_hang(
    job_request: Request, out: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def kill_one() -> None:
        while not (workers := children("nq.beam.worker")):
            time.sleep(0.05)
        workers[0].kill()

    killer = threading.Thread(target=kill_one)
    killer.start()
    with pytest.raises(Error, match="a worker process was killed, perhaps for want of memory"):
        prepare(job_request, out, workers=2)
    killer.join()
    assert not out.exists()
    assert capfd.readouterr() == ("", "")
