"""Folders of windows: their files, when they are reused and continued, and their errors."""

import contextlib
import errno
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import accumulate, chain, islice, product
from pathlib import Path
from typing import Any

import pytest

from nq import worker
from nq.config import WindowConfig
from nq.errors import Error
from nq.formats import inputs
from nq.formats.tfrecord import encode_records, raw_records
from nq.preprocess import prepared, shards
from nq.preprocess.features import Sampling, features, training_features
from nq.preprocess.prepared import Request, Windows, open_windows, prepare, preparing
from nq.preprocess.shards import MANIFEST, SHARD_BYTES, read_manifest
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.questions import Questions
from nq.records import Example, Source
from nq.storage import DEAD_LETTERS, LOCK, MARK, PART, UNFINISHED, hold
from tests.formats.reading import values_of
from tests.support import nq_records
from tests.support.child_processes import children
from tests.support.folders import flip, of_earlier_version
from tests.support.full_disk import small_files
from tests.support.nq_records import simplified, write_lines
from tests.support.tiny_models import VOCABULARY, write_vocab

CONFIG = WindowConfig(max_seq_length=48, max_query_length=12, doc_stride=16)
SHARD, EXAMPLES = "windows-00000.tfrecord", "examples-00000.tfrecord"
FILES = {SHARD, EXAMPLES, MANIFEST, DEAD_LETTERS, MARK}
SMALL = 20_000
"""Bytes of a shard of a few examples."""
RECORDS, GOOD, TWICE = 47, 42, "example_id 7 "


def make_request(folder: Path) -> Request:
    """A request for two files, one of each dialect, with bad records, and ids that occur twice."""
    good = [simplified(i, words=20 + i % 50) for i in range(40)]
    first = write_lines(folder / "b.jsonl.gz", [*good[:30], b"null", good[7], *good[30:], b"[]"])
    bad, again = '"\u2028\x85"'.encode(), simplified(7, words=9)
    second = [nq_records.v1(100), bad, again, nq_records.v1(101)]
    write_lines(folder / "a.jsonl", second)
    files = str(first), str(folder / "a.jsonl")
    return Request(Questions(files), load_tokenizer(write_vocab(folder / "vocab.txt")), CONFIG)


@pytest.fixture
def job_request(tmp_path: Path) -> Request:
    return make_request(tmp_path)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def completed(job_request: Request, out: Path, monkeypatch: pytest.MonkeyPatch) -> Windows:
    """The finished job of ``job_request`` in ``out``."""
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "apache_beam", None)
        return prepare(job_request, out)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lines of the records that are decoded, in order."""
    lines, decode = list[int](), inputs.decode_row

    def counting(source: Any, *rest: Any) -> Any:
        lines.append(source.line)
        return decode(source, *rest)

    monkeypatch.setattr(inputs, "decode_row", counting)
    return lines


def records(made: Windows) -> list[bytes]:
    return [record for shard in made.shards for record in raw_records(shard)]


def names(folder: Path) -> set[str]:
    return {p.name for p in folder.iterdir()}


def folder_bytes(folder: Path) -> dict[str, bytes]:
    """Every file's bytes, without the time that the job took and the checksum over it."""
    files = {p.name: p.read_bytes() for p in folder.iterdir() if p.name != MARK}
    varying = rb'"seconds": [\d.]+|\n  "sha256": .*'
    return files | {MANIFEST: re.sub(varying, b"", files[MANIFEST])}


def first_examples(request: Request) -> Iterator[tuple[Source, Example]]:
    """Yields the examples of the input, of each id the first."""
    seen = set()
    for index, path in enumerate(request.questions.files):
        for source, item in inputs.read_records(path, index):
            if isinstance(item, Example) and item.example_id not in seen:
                seen.add(item.example_id)
                yield source, item


@pytest.mark.parametrize("shard_bytes", [1, SMALL, SHARD_BYTES])
@pytest.mark.parametrize("training", [None, Sampling(0.5, 7)])
def test_records_are_those_of_the_plain_functions_in_order(
    job_request: Request,
    out: Path,
    training: Sampling | None,
    shard_bytes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shards, "SHARD_BYTES", shard_bytes)
    made = prepare(replace(job_request, training=training), out)
    expected = list[list[bytes]]()
    for source, item in first_examples(job_request):
        rows = features(item, job_request.tokenizer, CONFIG)
        if training:
            rows = training_features(item, job_request.tokenizer, CONFIG, training)
        expected.append(list(encode_records(rows, source, CONFIG.switches.id_name)))
    assert records(made) == list(chain(*expected))
    assert (made.counts.examples, made.counts.dead_letters) == (GOOD, RECORDS - GOOD)
    assert made.counts.windows == sum(map(len, expected))
    shard_ends = accumulate(len(list(raw_records(shard))) for shard in made.shards)
    assert set(shard_ends) <= set(accumulate(map(len, expected)))  # those of examples
    assert all(shard.stat().st_size >= shard_bytes for shard in made.shards[:-1])
    assert made.n_shards == GOOD or shard_bytes > 1
    assert (made.n_shards > 1) == (shard_bytes <= SMALL)
    windows = {path.name for path in made.shards}
    examples = set() if training else {name.replace("windows", "examples") for name in windows}
    assert names(out) == windows | examples | FILES - {EXAMPLES}
    letters = [json.loads(line) for line in made.dead_letter_file.read_bytes().splitlines()]
    places = [f"{Path(letter['file']).name} {letter['line']}" for letter in letters]
    assert places == ["b.jsonl.gz 31", "b.jsonl.gz 32", "b.jsonl.gz 43", "a.jsonl 2", "a.jsonl 3"]
    assert [TWICE in x["reason"] for x in letters] == [False, True, False, False, True]
    reason = letters[0]["reason"]
    assert made.first_dead_letter() == f"{job_request.questions.files[0]}, line 31: {reason}"


def test_a_folder_of_any_name_with_files_of_a_killed_job_and_of_others(
    job_request: Request, tmp_path: Path
) -> None:
    out = tmp_path / "[x]*? it's ü" / "out"
    with hold(out / f"{UNFINISHED}abc", PART):
        (out / f"{UNFINISHED}abc" / "beam-temp-results-1").mkdir()
    (out / MARK).write_text('{"kind": "windows"}')
    (out / LOCK).touch()
    (out / "windows-00003.tfrecord").write_bytes(b"half")
    (out / ".gitignore").write_text("*")
    made = prepare(job_request, out)
    assert names(out) == FILES | {".gitignore"}
    assert made.counts.windows == len(records(made)) > 0


def test_windows_are_complete_when_their_job_has_nothing_left_to_remove(
    job_request: Request, out: Path
) -> None:
    """Otherwise the folder of a job that is killed then would stay, since no job follows."""
    seen = [
        (manifest["complete"], len(list(out.glob(f"{UNFINISHED}*"))))
        for manifest in preparing(job_request, out)
    ]
    assert seen == [(False, 1), (True, 0)]


def test_an_equal_request_reuses_the_folder(
    job_request: Request, completed: Windows, tmp_path: Path, out: Path
) -> None:
    before = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    moved = [Path(f).rename(elsewhere / Path(f).name) for f in job_request.questions.files]
    again = prepare(replace(job_request, questions=Questions(tuple(map(str, moved)))), out)
    assert (again.reused, completed.reused) == (True, False)
    assert (again.counts, again.shards) == (completed.counts, completed.shards)
    assert {path: path.stat().st_mtime_ns for path in out.iterdir()} == before


def test_another_request_does_not_reuse_it(
    job_request: Request, completed: Windows, out: Path
) -> None:
    assert read_manifest(out, job_request.description)
    files = job_request.questions.files
    path = job_request.tokenizer.path
    others = [
        replace(job_request, windows=replace(CONFIG, doc_stride=8)),
        replace(job_request, training=Sampling(0.1, 1)),
        replace(job_request, questions=Questions(files, limit=3)),
        replace(job_request, questions=Questions(files[:1])),
    ]
    write_vocab(path, [*VOCABULARY, "zebra"])
    others.append(replace(job_request, tokenizer=load_tokenizer(path)))
    write_lines(Path(files[1]), [simplified(5)])
    others.append(replace(job_request, questions=Questions(files)))
    for other in others:
        assert other.key != job_request.key
        assert read_manifest(out, other.description) is None


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        *product([MANIFEST, SHARD, DEAD_LETTERS, EXAMPLES], ["missing", "cut", "flipped"]),
        (MANIFEST, "version"),
    ],
)
def test_damage_is_found_logged_and_made_good(
    job_request: Request,
    completed: Windows,
    out: Path,
    name: str,
    damage: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    before, expected = folder_bytes(out), [values_of(one.example) for one in completed]
    if damage == "missing":
        (out / name).unlink()
    elif damage == "flipped":
        flip(out / name, -20)
    elif damage == "version":
        of_earlier_version(out / name, shards={SHARD: 1})
    else:
        os.truncate(out / name, (out / name).stat().st_size // 2)
    again = prepare(job_request, out)
    is_seen = name in (SHARD, EXAMPLES) and damage == "flipped"  # its records have checksums
    assert again.reused == is_seen
    assert [values_of(one.example) for one in again] == expected
    assert not again.reused and again.counts == completed.counts
    assert folder_bytes(out) == before
    messages = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert len(messages) == (not (name == MANIFEST and damage == "missing"))
    assert all(name in message for message in messages)


def test_the_folder_has_the_examples_of_the_input(job_request: Request, completed: Windows) -> None:
    examples, expected = list(completed), list(first_examples(job_request))
    assert [one.source for one in examples] == [source for source, _ in expected]
    for one, (source, item) in zip(examples, expected, strict=True):
        assert values_of(one.example) == values_of(item)
        assert set(map(tuple, one.rows["example_keys"])) == {(source.file_index, source.line)}
    assert sum(map(len, examples)) == completed.counts.windows


@pytest.mark.parametrize("moment", ["before", "during"])
def test_an_input_that_changes_is_an_error_and_its_windows_are_not_used(
    job_request: Request, out: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    changing = Path(job_request.questions.files[1])
    assert job_request.description
    data, status = changing.read_bytes(), changing.stat()

    def change() -> Any:
        lines = data.splitlines(keepends=True)
        changing.write_bytes(b"".join(reversed(lines)))  # of the same size, and the same time
        os.utime(changing, ns=(status.st_atime_ns, status.st_mtime_ns))

    with monkeypatch.context() as patch, pytest.raises(Error, match=str(changing)):
        if moment == "before":
            change()
        else:
            make = prepared.make_windows
            patch.setattr(prepared, "make_windows", lambda *args: change() or make(*args))
        prepare(job_request, out)
    assert not out.exists()
    changing.write_bytes(data)
    sources = [one.source for one in prepare(job_request, out)]
    assert sources == [source for source, _ in first_examples(job_request)]


def test_an_error_while_writing_names_the_folder(job_request: Request, out: Path) -> None:
    with small_files(20_000), pytest.raises(OSError) as caught:
        prepare(job_request, out)
    assert (caught.value.errno, Path(caught.value.filename).parent) == (errno.EFBIG, out)
    assert not out.exists()


@pytest.mark.parametrize("n_shards", [1, 2, 5])
def test_an_interrupted_job_continues_behind_its_last_shard(
    job_request: Request,
    out: Path,
    tmp_path: Path,
    n_shards: int,
    decoded: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What has been published is read at once."""
    monkeypatch.setattr(shards, "SHARD_BYTES", SMALL)
    undisturbed = prepare(job_request, tmp_path / "undisturbed")
    expected = [source for source, _ in first_examples(job_request)]

    def interrupt(manifest: Mapping[str, Any]) -> None:
        if len(manifest["shards"]) == n_shards:
            so_far = Windows(job_request, out, manifest)
            count = manifest["counts"]["examples"]
            assert [one.source for one in islice(so_far, count)] == expected[:count]
            with (out / DEAD_LETTERS).open("a") as file:
                file.write("of a record behind the shard\n")
            raise KeyboardInterrupt

    decoded.clear()
    with pytest.raises(KeyboardInterrupt), contextlib.closing(preparing(job_request, out)) as made:
        for manifest in made:
            interrupt(manifest)
    assert len(decoded) < RECORDS
    seen = [dict(manifest) for manifest in preparing(job_request, out)]
    resumed = prepare(job_request, out)
    assert len(decoded) == RECORDS
    assert folder_bytes(out) == folder_bytes(tmp_path / "undisturbed")
    assert [one.source for one in resumed] == expected
    assert (resumed.n_shards, resumed.counts) == (undisturbed.n_shards, undisturbed.counts)
    assert seen[0]["place"] != seen[-1]["place"]


def test_damage_in_the_first_shards_of_an_interrupted_job(
    job_request: Request, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "SHARD_BYTES", SMALL)

    prepare(job_request, tmp_path / "undisturbed")
    for name in (SHARD, EXAMPLES):
        with contextlib.closing(preparing(job_request, out)) as made:
            for manifest in made:
                if len(manifest["shards"]) == 2:
                    break
        flip(out / name, -20)
        assert len(list(prepare(job_request, out))) == GOOD
        assert folder_bytes(out) == folder_bytes(tmp_path / "undisturbed")
        (out / MANIFEST).unlink()


# --- in a process beside this one ---------------------------------------------------------------

ONE_SHARD = """
import time
import nq.preprocess.shards as shards
shards.SHARD_BYTES = 1
write = shards.ShardWriter.write
def wait(writer, elements):
    for manifest in write(writer, elements):
        yield manifest
        time.sleep(600)
shards.ShardWriter.write = wait
"""
"""Makes the process wait when it has published its first shard."""


@pytest.mark.slow
def test_the_other_process_writes_what_prepare_writes(
    job_request: Request,
    completed: Windows,
    tmp_path: Path,
    out: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch, open_windows(job_request, tmp_path / "one") as made:
        patch.delattr("nq.storage.unfinished")  # the other process does the work
        assert len(children("makes windows")) == 1
        assert [one.source for one in made] == [s for s, _ in first_examples(job_request)]
    assert folder_bytes(tmp_path / "one") == folder_bytes(out)
    assert made.counts == completed.counts
    assert made.seconds > 0 and not made.reused
    with open_windows(job_request, tmp_path / "one") as again:
        assert again.reused and again.shards == made.shards and not children("makes windows")
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_the_work_of_a_killed_process_is_continued_here(
    job_request: Request, out: Path, decoded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    python = worker.python
    monkeypatch.setattr(
        worker, "python", lambda c, code, **others: python(c, ONE_SHARD + code, **others)
    )
    with open_windows(job_request, out) as made:
        examples = iter(made)
        first = next(examples)
        assert (made.n_shards, made.counts.examples, decoded) == (1, 1, [])
        children("makes windows")[0].kill()
        sources = [one.source for one in chain([first], examples)]
    assert sources == [source for source, _ in first_examples(job_request)]
    assert made.n_shards == 2 and not made.reused
