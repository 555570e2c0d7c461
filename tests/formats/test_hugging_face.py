"""Tests of Hugging Face's rows and parquet files: round trips, shares, bad rows and files."""

from __future__ import annotations

import copy
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nq.beam.prepare import Request, prepare
from nq.commands.preprocess import main
from nq.config import WindowConfig
from nq.evaluation.evaluate import Evaluation
from nq.formats import decoding, input_files
from nq.formats.fields import RecordError
from nq.formats.predictions import encode_prediction
from nq.records import DeadLetter, Example, Prediction
from tests import nq_records
from tests.formats.hugging_face_rows import SCHEMA, Row, assert_equal, row, write
from tests.nq_records import changed, to_line, write_lines
from tests.preprocess.synthetic_examples import any_words, pages

SHARED = Path(__file__).parents[3] / "shared" / "data"
REAL = [
    "native/v1.0-dev-full-1.jsonl.gz",
    "native/simplified-dev-sample.jsonl",
    "native/simplified-train-1.jsonl",
    "native/simplified-test-1.jsonl",
    "native/tydiqa-tiny-dev.jsonl.gz",
    "dev/nq-dev.jsonl.gz",
]
N_ROWS = 23


def make_row(number: int = 7) -> Row:
    return row(decoding.decode_example(to_line(nq_records.v1(number, words=3))))


def read(path: Path, **options: Any) -> list[Example | DeadLetter]:
    return [item for _, item in decoding.read_records(str(path), **options)]


def examples(path: Path, **options: Any) -> list[Example]:
    items = read(path, **options)
    assert all(isinstance(item, Example) for item in items)
    return [item for item in items if isinstance(item, Example)]


@pytest.fixture(scope="module")
def parquet_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(
        tmp_path_factory.mktemp("rows") / "a.parquet", [make_row(i) for i in range(N_ROWS)]
    )


# --- valid files --------------------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(st.lists(pages(any_words.filter(lambda w: " " not in w)), max_size=3), st.booleans())
def test_examples_are_restored_from_their_rows(expected: list[Example], with_bytes: bool) -> None:
    for page in expected:
        for a in page.annotations or ():
            assume(a.long is None or a.long.start < a.long.end)
    if with_bytes:
        expected = [
            replace(p, token_bytes=np.arange(2 * len(p.tokens)).reshape(-1, 2)) for p in expected
        ]
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / "a", [row(page) for page in expected], group_rows=2)
        for actual, example in zip(examples(path), expected, strict=True):
            assert_equal(actual, example)


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/data")
@pytest.mark.parametrize("name", REAL)
def test_real_examples_are_restored_and_scored(name: str, tmp_path: Path) -> None:
    expected = examples(SHARED / name, limit=60)
    path = write(tmp_path / "a.parquet", [row(example) for example in expected])
    evaluation = Evaluation()
    for actual, example in zip(examples(path), expected, strict=True):
        assert_equal(actual, example)
        for gold in (actual.annotations or ())[:1]:
            shorts = gold.shorts if gold.yes_no == "NONE" else ()
            prediction = Prediction(actual.example_id, gold.long, 1.0, shorts, 1.0, gold.yes_no)
            evaluation.add(actual, encode_prediction(prediction, actual.token_bytes))
    assert bool(evaluation.metrics()) == ("test" not in name)


def test_lists_of_objects_and_json_lines_are_read(tmp_path: Path) -> None:
    record = make_row()
    (expected,) = examples(write(tmp_path / "a.parquet", [record]))
    transposed = copy.deepcopy(record)
    for holder, name in (
        (transposed["document"], "tokens"),
        (transposed, "long_answer_candidates"),
        (transposed, "annotations"),
    ):
        value = holder[name]
        holder[name] = [dict(zip(value, v, strict=True)) for v in zip(*value.values(), strict=True)]
    pq.write_table(pa.Table.from_pylist([transposed]), tmp_path / "b.parquet")
    lines = write_lines(tmp_path / "c.jsonl.gz", [record, transposed])
    for actual in (*examples(tmp_path / "b.parquet"), *examples(lines)):
        assert_equal(actual, expected)


def test_parquet_is_detected_by_its_first_bytes(parquet_file: Path, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(parquet_file.read_bytes())
    write_lines(tmp_path / "b.parquet", [nq_records.simplified(99)])
    files = input_files.find_files([str(tmp_path), f"{parquet_file.parent}/*.parquet"])
    assert [Path(f).name for f in files] == ["a.jsonl", "b.parquet", "a.parquet"]
    numbers = [e.example_id for f in files for e in examples(Path(f))]
    assert numbers == [*range(N_ROWS), 99, *range(N_ROWS)]
    assert [decoding.count_records(f) for f in files] == [N_ROWS, 1, N_ROWS]


@pytest.mark.parametrize("limit", [None, 0, 1, 5, 12, N_ROWS, 99])
@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_shares_and_limit_cover_every_row_once(
    parquet_file: Path, n: int, limit: int | None
) -> None:
    numbers = list(range(N_ROWS))[:limit]
    for i in range(n):
        records = list(decoding.read_records(str(parquet_file), 3, (i, n), limit))
        assert [e.example_id for _, e in records if isinstance(e, Example)] == numbers[i::n]
        assert [source.line for source, _ in records] == [k + 1 for k in numbers[i::n]]
        assert {source.file_index for source, _ in records} <= {3}
    assert decoding.count_records(str(parquet_file), limit) == len(numbers)


def test_windows_of_rows_and_of_lines_are_equal(tmp_path: Path) -> None:
    vocab = str(nq_records.write_vocab(tmp_path))
    records = [nq_records.v1(i) for i in range(7)]
    lines = write_lines(tmp_path / "a.jsonl", records)
    rows = [row(decoding.decode_example(to_line(record))) for record in records]
    parquet = write(tmp_path / "b.parquet", rows)
    windows = WindowConfig(max_seq_length=64, max_query_length=16, doc_stride=16)
    prepared = [
        prepare(Request((str(p), str(p)), vocab, windows, limit=11), tmp_path / p.stem)
        for p in (lines, parquet)
    ]
    assert [p.examples for p in prepared] == [11, 11]
    first, second = ([s.read_bytes() for s in p.shards] for p in prepared)
    assert first == second


def test_columns_may_be_absent_or_null(tmp_path: Path) -> None:
    bare = make_row()
    del bare["annotations"], bare["document"]["title"], bare["long_answer_candidates"]["top_level"]
    for name in ("start_byte", "end_byte"):
        del bare["document"]["tokens"][name]
    pq.write_table(pa.Table.from_pylist([bare]), tmp_path / "a.parquet")
    pq.write_table(
        pa.Table.from_pylist([bare | {"annotations": None, "id": 7}]), tmp_path / "b.parquet"
    )
    for example in (*examples(tmp_path / "a.parquet"), *examples(tmp_path / "b.parquet")):
        assert (example.example_id, example.title, example.annotations) == (7, "", None)
        assert example.token_bytes is None
        assert all(candidate.top_level for candidate in example.candidates)


@pytest.mark.parametrize(("written", "expected"), [("-12", -12), ("a", "a"), ("9" * 30, "9" * 30)])
def test_ids_are_numbers_or_text(tmp_path: Path, written: str, expected: int | str) -> None:
    (example,) = examples(write(tmp_path / "a.parquet", [make_row() | {"id": written}]))
    assert example.example_id == expected


def test_empty_files(tmp_path: Path) -> None:
    (tmp_path / "b.parquet").touch()
    assert read(write(tmp_path / "a.parquet", [])) == read(tmp_path / "b.parquet") == []


# --- bad rows -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("id", None, "field 'id' must be an integer or a string, found null"),
        ("id", "", "field 'id' is empty"),
        ("document", None, "field 'document' must be an object, found null"),
        ("document.tokens", None, "'document.tokens' must be an object or an array, found null"),
        ("document.tokens.token", None, "'document.tokens.token' must be an array, found null"),
        ("document.tokens.token.1", None, "document.tokens.token[1] must be a string, found null"),
        ("document.tokens.is_html", [True], "11 tokens, but 1 html flags"),
        ("document.tokens.start_byte", [1], "11 tokens, but 1 start and 11 end bytes"),
        ("document.tokens.end_byte", None, "'document.tokens.end_byte' must be an array"),
        ("question", None, "field 'question' must be an object, found null"),
        ("question.text", None, "field 'question.text' must be a string, found null"),
        ("long_answer_candidates", None, "must be an object or an array, found null"),
        ("long_answer_candidates.end_token", [11], "start_token 2, end_token 1, top_level 2"),
        ("long_answer_candidates.end_token.0", 12, "[3, 12) is outside the 11 tokens"),
        ("long_answer_candidates.top_level.0", None, "must be a boolean, found null"),
        ("annotations.yes_no_answer.0", 2, "must be 0 (NO), 1 (YES) or -1, found 2"),
        ("annotations.yes_no_answer.0", None, "must be an integer or a string, found null"),
        ("annotations.long_answer.0", None, "annotations[0].long_answer' must be an object"),
        ("annotations.long_answer.0.candidate_index", 9, "is 9, but there are 2 candidates"),
        ("annotations.long_answer.0.end_token", 99, "[3, 99) is outside the 11 tokens"),
        ("annotations.short_answers.0", None, "annotations[0].short_answers' must be an object"),
        ("annotations.short_answers.0.start_token", [9], "ends at token 7, before its start 9"),
    ],
)
def test_bad_rows_are_dead_letters(tmp_path: Path, path: str, value: Any, expected: str) -> None:
    bad = changed(make_row(8), path, value)
    first, letter, last = read(write(tmp_path / "a.parquet", [make_row(1), bad, make_row(3)]))
    assert isinstance(first, Example) and isinstance(last, Example)
    assert isinstance(letter, DeadLetter)
    assert expected in letter.reason
    assert letter.source.line == 2
    assert letter.record.startswith("{")


def test_text_that_is_not_utf8_is_a_dead_letter(tmp_path: Path) -> None:
    table = pa.Table.from_pylist([make_row(1), make_row(2), make_row(3)], schema=SCHEMA)
    spelled = pa.array([b"1", b"caf\xe9", b"3"], pa.binary()).view(pa.string())
    pq.write_table(table.set_column(0, "id", spelled), tmp_path / "a.parquet")
    first, letter, last = read(tmp_path / "a.parquet")
    assert isinstance(first, Example) and isinstance(last, Example)
    assert isinstance(letter, DeadLetter) and "not UTF-8" in letter.reason


def test_only_the_rows_of_a_damaged_row_group_are_lost(parquet_file: Path, tmp_path: Path) -> None:
    data = bytearray(parquet_file.read_bytes())
    chunk = pq.ParquetFile(parquet_file).metadata.row_group(1).column(0)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    data[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    path = tmp_path / "a.parquet"
    path.write_bytes(data)
    for n in (1, 3):
        records = [x for i in range(n) for x in decoding.read_records(str(path), share=(i, n))]
        bad = sorted(source.line for source, item in records if isinstance(item, DeadLetter))
        assert sorted(source.line for source, _ in records) == list(range(1, N_ROWS + 1))
        assert bad == [6, 7, 8, 9, 10]
    assert "row group 1 of the parquet file is damaged" in str(read(path)[5])


# --- bad files ----------------------------------------------------------------------------


def without(record: Row, path: str) -> Row:
    return changed(record, path, ...)


BAD_TABLES = [
    ([{"text": "a", "label": 1}], "found the columns text, label, expected 'document'"),
    ([{"id": "1", "document": "text"}], "found no column question.text or document.tokens.token"),
    (
        [without(make_row(), "long_answer_candidates")],
        "found no column long_answer_candidates.start",
    ),
    ([without(make_row(), "document.tokens.is_html")], "found no column document.tokens.is_html,"),
    ([make_row() | {"id": 1.5}], "found column id of type double, expected a string or an integer"),
    (
        [changed(make_row(), "document.tokens.is_html", ["x"] * 11)],
        "found column document.tokens.is_html of type string, expected a boolean",
    ),
    (
        [changed(make_row(), "annotations.short_answers.0.start_token", ["5"])],
        "found column annotations.short_answers.start_token of type string, expected an integer",
    ),
]


@pytest.mark.parametrize(("rows", "expected"), BAD_TABLES)
def test_an_unusable_file_is_a_one_line_error_before_any_work(
    rows: list[Row], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    good = write(tmp_path / "good.parquet", [make_row()])
    check_refused([good, path], expected, tmp_path, capsys)
    with pytest.raises(ValueError, match=r"a\.parquet: found"):
        read(path)


@pytest.mark.parametrize("kept", [4, 8, 12, 0.5, 0.99, -1])
def test_a_truncated_file_is_a_one_line_error(
    kept: float, parquet_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = parquet_file.read_bytes()
    cut = int(kept * len(data)) if 0 < kept < 1 else int(kept)
    path = tmp_path / "a.parquet"
    path.write_bytes(data[:cut])
    check_refused([path], "is cut off or damaged", tmp_path, capsys)


def check_refused(
    files: list[Path], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vocab = nq_records.write_vocab(tmp_path)
    output = tmp_path / "windows"
    code = main(["--data", *map(str, files), "--output", str(output), "--tokenizer", str(vocab)])
    line = capsys.readouterr().err
    assert code == 1
    assert expected in line
    assert f"{files[-1]}: " in line
    assert len(line.splitlines()) == 1
    assert not output.exists()


def test_a_document_that_is_not_an_object_is_a_record_error() -> None:
    values: tuple[Any, ...] = ("text", 3, [], None, {})
    for value in values:
        with pytest.raises(RecordError):
            decoding.decode_example(to_line(make_row() | {"document": value}))
