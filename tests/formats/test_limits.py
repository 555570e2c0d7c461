"""Tests the limits of a record: each gives a dead letter, and none takes memory without bound."""

from __future__ import annotations

import gzip
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nq.config import WindowConfig
from nq.formats import decoding, lines, pages
from nq.formats.fields import RecordError
from nq.formats.limits import LIMITS, RecordLimits
from nq.preprocess import features as features_module
from nq.preprocess.features import features
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.records import DeadLetter
from tests import nq_records
from tests.formats.hugging_face_rows import row, write
from tests.formats.test_tydi import make_record
from tests.nq_records import simplified, to_line, write_lines

GOOD = to_line(simplified())
CONFIG = WindowConfig(max_seq_length=48, max_query_length=12, doc_stride=16)
ROOT = Path(__file__).parents[2]
READ_AND_MEASURE = """
import re, sys
from nq.formats import decoding
for source, item in decoding.read_records(sys.argv[1]):
    print(source.line, getattr(item, "reason", "good"))
# unlike getrusage, this peak does not begin with that of the process that started this one
print(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
"""


def outcomes(path: Path, limits: RecordLimits) -> list[str]:
    """Returns the reason of each record, empty for a good one."""
    items = [item for _, item in decoding.read_records(str(path), limits=limits)]
    return [item.reason if isinstance(item, DeadLetter) else "" for item in items]


@pytest.mark.parametrize(
    ("limit", "value", "found"),
    [
        ("bytes", len(GOOD) - 1, f"{len(GOOD)} bytes"),
        ("values", 30, "34 JSON values"),
        ("characters", 300, "360 characters on the page"),
        ("question_characters", 27, "28 characters in the question"),
        ("id_characters", 0, "1 characters in the example_id"),
        ("tokens", 60, "68 tokens"),
        ("candidates", 1, "2 candidates"),
        ("block_tokens", 60, "65 tokens in top-level candidates"),
    ],
)
def test_a_record_beyond_a_limit_is_a_dead_letter(
    tmp_path: Path, limit: str, value: int, found: str
) -> None:
    path = write_lines(tmp_path / "a.jsonl", [GOOD])
    (reason,) = outcomes(path, replace(LIMITS, **{limit: value}))
    assert reason == f"too large: {found}, the limit is {value}"
    count = int(found.split(maxsplit=1)[0])
    assert outcomes(path, replace(LIMITS, **{limit: count})) == [""]


def test_the_same_limits_hold_for_every_dialect(tmp_path: Path) -> None:
    dialects = [simplified(words=70), nq_records.v1(words=70), make_record()]
    path = write_lines(tmp_path / "a.jsonl", dialects)
    for reason in outcomes(path, replace(LIMITS, tokens=20)):
        assert reason.startswith("too large: ")
        assert reason.endswith(" tokens, the limit is 20")
    assert outcomes(path, LIMITS) == ["", "", ""]


@pytest.mark.parametrize(
    ("limit", "value", "unit"),
    [("bytes", 2000, "bytes"), ("values", 400, "JSON values"), ("tokens", 60, "tokens")],
)
def test_rows_of_parquet_have_limits(tmp_path: Path, limit: str, value: int, unit: str) -> None:
    pages = [decoding.decode_example(to_line(nq_records.v1(i, words=50 * i))) for i in (1, 0, 2)]
    path = write(tmp_path / "a.parquet", [row(page) for page in pages])
    reasons = outcomes(path, replace(LIMITS, **{limit: value}))
    assert [bool(reason) for reason in reasons] == [False, False, True]
    assert reasons[2].endswith(f" {unit}, the limit is {value}")


def test_equal_values_of_parquet_are_counted_before_they_are_expanded(tmp_path: Path) -> None:
    good = row(decoding.decode_example(to_line(nq_records.v1(1))))
    table = pa.Table.from_pylist([good])
    n = 1 << 20
    lists = pa.ListArray.from_arrays([0, n], pa.repeat(pa.scalar(True), n))
    document = table["document"].combine_chunks()
    fields = {field.name: document.field(field.name) for field in document.type}
    tokens = fields["tokens"]
    parts = {field.name: tokens.field(field.name) for field in tokens.type} | {"is_html": lists}
    fields["tokens"] = pa.StructArray.from_arrays(list(parts.values()), list(parts))
    hostile = pa.StructArray.from_arrays(list(fields.values()), list(fields))
    path = tmp_path / "a.parquet"
    index = table.schema.get_field_index("document")
    pq.write_table(table.set_column(index, "document", hostile), path)
    # Counted after Arrow had expanded the row, the values of all columns would be in the sum.
    assert outcomes(path, replace(LIMITS, values=n - 1)) == [
        f"too large: {n} JSON values, the limit is {n - 1}"
    ]


@pytest.mark.parametrize(
    ("text", "depth"),
    [(b"[" * 3000, 3000), (b'{"a":' * 1025, 1025), (rb'["\"[",' + b"[" * 1024, 1025)],
)
def test_the_depth_of_json_is_counted(tmp_path: Path, text: bytes, depth: int) -> None:
    (reason,) = outcomes(write_lines(tmp_path / "a", [text]), LIMITS)
    assert reason == f"too large: {depth} levels of nested JSON, the limit is 1024"


def test_brackets_in_strings_are_not_depth() -> None:
    assert lines.json_depth(b'{"a[[": ["\\"[{", [1]]}') == 3
    assert lines.json_depth(b"") == lines.json_depth(b"7") == 0


def test_a_long_line_is_skipped_to_its_end(tmp_path: Path) -> None:
    limits = replace(LIMITS, bytes=len(GOOD) + 10)
    lines = [GOOD, b"x" * (3 << 20), GOOD, b"x" * (len(GOOD) + 11), GOOD + b" " * 10, b"x" * 5000]
    expected = ["", f"too large: {3 << 20} bytes", "", f"too large: {len(GOOD) + 11} bytes", ""]
    for name in ("a.jsonl", "b.jsonl.gz"):
        path = write_lines(tmp_path / name, lines)
        reasons = outcomes(path, limits)
        assert [reason.partition(",")[0] for reason in reasons] == [
            *expected,
            "too large: 5000 bytes",
        ]
    without_end = tmp_path / "c.jsonl"
    without_end.write_bytes(GOOD + b"\n" + b"x" * 9000)
    assert outcomes(without_end, limits)[1].startswith("too large: 9000 bytes, ")


@pytest.mark.slow
def test_a_gzip_bomb_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "bomb.jsonl.gz"
    with gzip.open(path, "wb") as file:
        file.write(GOOD + b"\n")
        for _ in range(256):
            file.write(b"[],[" * (1 << 18))
        file.write(b"\n" + GOOD)
    assert path.stat().st_size < 2 << 20
    command = [sys.executable, "-c", READ_AND_MEASURE, str(path)]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    *lines, peak_kib = printed.splitlines()
    assert lines == [
        "1 good",
        f"2 too large: {256 << 20} bytes, the limit is {LIMITS.bytes}",
        "3 good",
    ]
    assert int(peak_kib) < 400 << 10


def test_windows_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = load_tokenizer(nq_records.write_vocab(tmp_path))
    example = decoding.decode_example(to_line(simplified(words=200)))
    n = len(features(example, tokenizer, CONFIG))
    for limit, count in (("windows", n), ("window_pieces", n * CONFIG.max_seq_length)):
        monkeypatch.setattr(features_module, "LIMITS", replace(LIMITS, **{limit: count}))
        assert len(features(example, tokenizer, CONFIG)) == n
        monkeypatch.setattr(features_module, "LIMITS", replace(LIMITS, **{limit: count - 1}))
        with pytest.raises(RecordError, match=f"too large: {count} .*, the limit is {count - 1}"):
            features(example, tokenizer, CONFIG)


def test_pages_have_limits() -> None:
    for decode in (pages.page_from_text, pages.page_from_html):
        with pytest.raises(ValueError, match=r"the page is too large: \d+ (characters|tokens)"):
            decode("moon " * 1_100_000)
    with pytest.raises(ValueError, match=r"a\.txt is too large: 33554433 bytes"):
        pages.decode_page(b"x" * (LIMITS.bytes + 1), "a.txt")


def test_limits_are_far_above_the_largest_pages() -> None:
    page = {"characters": 10**6, "tokens": 125_000, "block_tokens": 400_000, "candidates": 10_000}
    record = {"bytes": 15 << 20, "depth": 20, "values": 10**6, "id_characters": 20}
    record["word_characters"] = 2000
    windows = {"windows": 2000, "window_pieces": 10**6, "question_characters": 300}
    squad = {
        "document_bytes": 45 << 20,
        "document_values": 3 * 10**6,
        "answers": 1000,
    }  # SQuAD 2.0, train
    largest = RecordLimits(**page, **record, **windows, **squad)
    for limit in fields(RecordLimits):
        assert getattr(LIMITS, limit.name) >= 2 * getattr(largest, limit.name)
