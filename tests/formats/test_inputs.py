"""Tests of input files: how they are found and read, which are refused, and limits of a record."""

import gzip
import json
import lzma
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from nq.bundle import bundled_model
from nq.config import WindowConfig
from nq.evaluation.official import read_gold, read_predictions
from nq.formats import input_files, inputs
from nq.formats.fields import LIMITS
from nq.formats.lines import BOM
from nq.formats.tfrecord import frame
from nq.model.folder import CONFIG, ModelFolder
from nq.preprocess.features import features
from nq.preprocess.prepared import make_windows
from nq.preprocess.tokenizers import NAMES as TOKENIZERS
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.questions import read_examples
from nq.records import DeadLetter, Example, Source
from tests.conftest import Commands
from tests.formats.hugging_face_rows import row as hugging_face_row
from tests.formats.hugging_face_rows import write as write_parquet
from tests.formats.reading import decode_line, ids, items, reasons, records
from tests.support import nq_records
from tests.support.nq_records import COMPRESS, simplified, to_line, write_lines
from tests.support.peak_memory import limited_memory

RECORDS = [simplified(i, words=5) for i in range(3)]
LINES = b"\n".join(map(to_line, RECORDS))
TEXT = LINES.decode()
OWN = {"question": "who", "context": "It rains."}
GOOD = to_line(simplified())
NOISE = b"".join(
    to_line(simplified(i) | {"noise": random.Random(i).randbytes(3000).hex()}) + b"\n"
    for i in range(20)
)

# --- lines --------------------------------------------------------------------------------


@pytest.fixture(params=[*COMPRESS.values()], ids=[*COMPRESS])
def compress(request: pytest.FixtureRequest) -> Any:
    """A function that compresses bytes."""
    return request.param


def test_compressed_files_are_detected_by_their_first_bytes(
    tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    plain = write_lines(tmp_path / "a.jsonl", [simplified(1), nq_records.v1(2)])
    one, several = tmp_path / "c.jsonl", tmp_path / "d.bin"
    one.write_bytes(compress(to_line(simplified(3)) + b"\n"))
    parts = [compress(b""), one.read_bytes(), bytes(8), compress(to_line(nq_records.v1(4)))]
    several.write_bytes(b"".join([*parts, bytes(8)]))
    assert [*ids(plain), *ids(one), *ids(several)] == [1, 2, 3, 3, 4]


def test_what_expands_is_read_in_little_memory(
    tmp_path: Path, compress: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LIMITS, "bytes", 1 << 20)
    path, n_bytes = tmp_path / "a.jsonl", 256 << 20
    path.write_bytes(compress(bytes(n_bytes)) + compress(b"\n" + GOOD))
    with limited_memory(n_bytes // 3):
        assert numbers(path) == [[n_bytes, 1 << 20], []]


def test_bom_line_ends_and_blank_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(BOM + GOOD + b"\r\n\r\n  \t\n" + GOOD + b"\n\n" + GOOD)
    assert [line for line, _ in records(path)] == [1, 4, 6]
    assert reasons(path) == ["", "", ""]
    path.write_bytes((BOM + GOOD + b"\n") * 2 + BOM + b"\n" + BOM + BOM + GOOD)
    assert reasons(path)[:2] == ["", ""]
    assert "byte order mark" in reasons(path)[2]
    for data in (b"", gzip.compress(b""), b"\n\n"):
        path.write_bytes(data)
        assert items(path) == []


def test_a_compressed_file_that_is_cut_off_is_read_up_to_there(
    tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    whole, path = b"".join(map(compress, NOISE.splitlines(keepends=True))), tmp_path / "a.jsonl"
    for data in (whole[: len(whole) // 2], whole + b"garbage", whole + whole[:3]):
        path.write_bytes(data)
        inputs.check(str(path))
        *good, last = items(path)
        assert isinstance(last, DeadLetter) and len(good) >= 9
        assert not [one for one in good if isinstance(one, DeadLetter)]
        assert last.source.path == str(path) and last.source.line >= len(good) + 1
        assert len([item for i in range(3) for item in items(path, share=(i, 3))]) == len(good) + 1


def flipped(data: bytes, place: int) -> bytes:
    """Returns data in which a bit is another."""
    return data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]


def test_nothing_of_a_damaged_compressed_file_is_used(
    tmp_path: Path, commands: Commands, compress: Callable[[bytes], bytes]
) -> None:
    whole, path = compress(NOISE), tmp_path / "a.jsonl.gz"
    middle, near_end = len(whole) // 2, len(whole) - (8 if compress is COMPRESS[".gz"] else 4)
    damaged = [
        whole[:middle] + b"\xff" * 50 + whole[middle + 50 :],
        flipped(whole, near_end) + whole,
        whole + flipped(whole, near_end),
        *(flipped(whole, len(whole) * n // 9) for n in (3, 5, 7)),
    ]
    prepare = ["preprocess", "--output", tmp_path / "out", "--data", path, "--limit", 1]
    for data in damaged:
        path.write_bytes(data)
        readers: list[Callable[[], Any]] = [
            lambda: next(read_examples(path, skip_bad=True)),
            lambda: inputs.read_page(path, 1),
            lambda: items(path),
            lambda: read_gold(path),
            lambda: read_predictions(path),
        ]
        for read in readers:
            with pytest.raises(ValueError, match=f"{path} .*damaged"):
                read()
        assert f"{path} " in commands.error(*prepare)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("write", [write_lines, write_parquet])
@pytest.mark.parametrize(("n", "limit"), [(1, 0), (1, 7), (2, 4), (3, None)])
def test_shares_and_limit_cover_every_record_once(
    tmp_path: Path, write: Callable[..., Path], n: int, limit: int | None
) -> None:
    rows = [hugging_face_row(nq_records.v1(i, words=3)) for i in range(11)]
    path, numbers = str(write(tmp_path / "a", rows)), list(range(11))[:limit]
    for i in range(n):
        several = list(inputs.read_records(path, 3, (i, n), limit))
        assert [one.example_id for _, one in several if isinstance(one, Example)] == numbers[i::n]
        assert [source.line for source, _ in several] == [k + 1 for k in numbers[i::n]]
    assert inputs.count_records(path, limit) == len(numbers)


# --- files that are found -----------------------------------------------------------------


def test_find_files(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl.xz", "c.json", "notes.md", "[x].jsonl", ".hidden.jsonl"):
        (tmp_path / name).touch()
    (tmp_path / "sub.jsonl").mkdir()

    def find(*patterns: str) -> list[str]:
        return [Path(p).name for p in input_files.find_files([str(tmp_path / p) for p in patterns])]

    assert find("") == ["[x].jsonl", "a.jsonl.xz", "b.jsonl", "c.json"]
    assert find("b.jsonl", "*.jsonl*") == ["b.jsonl", "[x].jsonl", "a.jsonl.xz"]
    assert find("[x].jsonl", "notes.md", "./b.jsonl") == ["[x].jsonl", "notes.md", "b.jsonl"]
    for pattern in ("nothing*", "sub.jsonl"):
        with pytest.raises(FileNotFoundError, match=re.escape(pattern)):
            find(pattern)
    for other in ("/dev/null", 5):
        with pytest.raises(ValueError):
            input_files.find_files([other])  # type: ignore[list-item]


# --- files that are refused ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (gzip.compress(bytes(257) + b"ustar\0"), "compressed"),
        (b"PK\x03\x04" + bytes(26) + b"xl/" + bytes(99), "CSV"),
        (frame(b"one"), "TFRecord"),
        (TEXT.encode("utf-16"), "iconv -f UTF-16 -t UTF-8"),
        (lzma.compress(LINES, lzma.FORMAT_ALONE), "an lzma file: decompress it with unlzma"),
        (gzip.compress(b"\x1f\x9d\x90" + LINES), "(.Z) in a compressed file"),
        (json.dumps(RECORDS[0], indent="\t").encode(), "jq -c .;"),
        (b"<!DOCTYPE html>\n<html>", "nq ask"),
        (b"id,query\n" + b"1,who\n" * 100, "100"),
    ],
)
def test_a_file_of_another_kind_is_refused(tmp_path: Path, data: bytes, kind: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(data)
    for read in (read_examples, inputs.read_page):
        with pytest.raises(ValueError, match=f"{path}.*{re.escape(kind)}"):
            read(path)


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"results": [OWN]}, ".results[]"),
        ({"version": 2, "authors": [{"name": "Ada"}], "split": {"dev": [OWN]}}, ".split.dev[]"),
        ({"dev": {"q1": OWN, "q2": OWN}}, ".dev[]"),
        ({"results": [{"user_input": "who", "retrieved_contexts": ["It rains."]}]}, ".results[]"),
    ],
)
def test_the_advice_for_records_in_an_object_names_their_place(
    value: Any, place: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(value, indent=2))
    with pytest.raises(ValueError, match=re.escape(f"jq -c '{place}';")):
        read_examples(path)
    path.write_text(json.dumps(value))
    (reason,) = reasons(path)
    assert reason.endswith(f"jq -c '{place}'")


def test_of_zstd_without_checksum_a_line_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checked = COMPRESS[".zst"](LINES + b"\n")
    unchecked = zstandard.ZstdCompressor(write_checksum=False).compress(LINES + b"\n")
    skipped = b"\x50\x2a\x4d\x18\x03\0\0\0abc"
    expected = {
        "a.zst": (checked + skipped, 0),
        "b.zst": (checked + skipped + unchecked, 1),
        "c.zst": (checked[:4], 0),
        "d.gz": (gzip.compress(LINES), 0),
    }
    for name, (data, n_lines) in expected.items():
        caplog.clear()
        path = tmp_path / name
        path.write_bytes(data)
        list(read_examples(path, skip_bad=True))
        assert list(read_examples(path, skip_bad=True)) or name == "c.zst"
        messages = [one.getMessage() for one in caplog.records if "has no" in one.getMessage()]
        assert len(messages) == n_lines, name
        assert all(message.startswith(f"{path} has no checksum") for message in messages)


LFS = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 123\n"
SUFFIXES = ".jsonl", ".json.gz", ".parquet", ".csv", ".txt", ".html", ".pdf", ".docx"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_pointer_of_git_lfs_is_called_that(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_text(LFS)
    reads: list[Callable[[Path], Any]] = [inputs.read_page, read_examples]
    for read in (*reads, read_gold, read_predictions):
        with pytest.raises(ValueError, match=f"{path}.*git lfs pull"):
            read(path)


MODEL_FILES: dict[str, Callable[[Path], Any]] = {
    **dict.fromkeys(
        ("model.safetensors", "model.safetensors.index.json", CONFIG), ModelFolder.open
    ),
    **dict.fromkeys(TOKENIZERS, load_tokenizer),
}


@pytest.mark.parametrize("name", MODEL_FILES)
def test_a_pointer_in_a_model_folder_is_called_that(name: str, tmp_path: Path) -> None:
    shutil.copy(bundled_model() / CONFIG, tmp_path)
    (tmp_path / name).write_text(LFS)
    with pytest.raises(ValueError, match=f"{tmp_path / name}.*git lfs pull"):
        MODEL_FILES[name](tmp_path)


def test_a_bad_first_line_does_not_cost_the_others(tmp_path: Path) -> None:
    for first in (b"[", b"{", b"%PDF", b"\xff\xfe", b"BZhello", b'{\x00"\x00', b"x" * 10**6):
        assert ids(write_lines(tmp_path / "a.jsonl.gz", [first, *RECORDS])) == [0, 1, 2], first


# --- limits -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "value", "found"),
    [
        ("bytes", len(GOOD) - 1, len(GOOD)),
        ("values", 30, 34),
        ("question_characters", 27, 28),
        ("tokens", 60, 68),
        ("block_tokens", 60, 65),
    ],
)
def test_a_record_beyond_a_limit_is_a_dead_letter(
    tmp_path: Path, limit: str, value: int, found: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_lines(tmp_path / "a.jsonl", [GOOD])
    monkeypatch.setattr(LIMITS, limit, value)
    assert numbers(path) == [[found, value]]
    monkeypatch.setattr(LIMITS, limit, found)
    assert reasons(path) == [""]


def numbers(path: Path) -> list[list[int]]:
    return [[int(number) for number in re.findall(r"\d+", reason)] for reason in reasons(path)]


def test_a_long_line_is_skipped_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    longest = len(GOOD) + 10
    monkeypatch.setattr(LIMITS, "bytes", longest)
    lines = [GOOD, b"x" * (3 << 20), GOOD, b"x" * (longest + 1), GOOD + b" " * 10, b"x" * 5000]
    for name in ("a.jsonl", "b.jsonl.gz"):
        path = write_lines(tmp_path / name, lines)
        found = [*numbers(path)]
        assert [some[:1] for some in found] == [[], [3 << 20], [], [longest + 1], [], [5000]]
    path.write_bytes(GOOD + b"\n" + b"x" * 9000)
    assert numbers(path)[1][0] == 9000


def test_windows_have_a_limit(tiny_vocab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = WindowConfig(max_seq_length=48, max_query_length=12, doc_stride=16)
    example, tokenizer = decode_line(to_line(simplified(words=200))), load_tokenizer(tiny_vocab)
    n = len(features(example, tokenizer, config))
    for limit, count in (("windows", n), ("window_pieces", n * config.max_seq_length)):
        with monkeypatch.context() as patch:
            patch.setattr(LIMITS, limit, count - 1)
            letter = make_windows(Source(0, "a", 3), example, tokenizer, config)
        assert isinstance(letter, DeadLetter) and letter.record == example.question
        assert str(count) in letter.reason and letter.source.line == 3
