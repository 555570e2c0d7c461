"""Hugging Face's rows and their parquet files: round trips, shares of the work, bad files."""

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

from nq.commands.preprocess import main
from nq.config import WindowConfig
from nq.formats import inputs
from nq.formats.fields import RecordError
from nq.formats.predictions import encode_prediction
from nq.preprocess.prepare import Request, prepare
from nq.records import DeadLetter, Example, Prediction
from nq.runs.scoring import Scorekeeper
from tests import nq_records
from tests.formats.hugging_face_rows import SCHEMA, Row, row, same, write
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


def made(number: int = 7) -> Row:
    return row(inputs.decode_example(to_line(nq_records.v1(number, words=3))))


def read(path: Path, **options: Any) -> list[Example | DeadLetter]:
    return [item for _, item in inputs.read_examples(str(path), **options)]


def examples(path: Path, **options: Any) -> list[Example]:
    found = read(path, **options)
    assert all(isinstance(item, Example) for item in found)
    return [item for item in found if isinstance(item, Example)]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("many") / "a.parquet", [made(i) for i in range(N_ROWS)])


# --- good files ---------------------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(st.lists(pages(any_words.filter(lambda w: " " not in w)), max_size=3), st.booleans())
def test_an_example_comes_back_from_its_row(found: list[Example], with_bytes: bool) -> None:
    for page in found:
        for a in page.annotations or ():
            assume(a.long is None or a.long.start < a.long.end)
    if with_bytes:
        found = [replace(p, token_bytes=np.arange(2 * len(p.tokens)).reshape(-1, 2)) for p in found]
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / "a", [row(page) for page in found], group=2)
        for mine, theirs in zip(examples(path), found, strict=True):
            same(mine, theirs)


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/data")
@pytest.mark.parametrize("name", REAL)
def test_real_examples_come_back_and_are_scored(name: str, tmp_path: Path) -> None:
    theirs = examples(SHARED / name, limit=60)
    path = write(tmp_path / "a.parquet", [row(example) for example in theirs])
    keeper = Scorekeeper()
    for mine, other in zip(examples(path), theirs, strict=True):
        same(mine, other)
        for best in (mine.annotations or ())[:1]:
            shorts = best.shorts if best.yes_no == "NONE" else ()
            answer = Prediction(mine.example_id, best.long, 1.0, shorts, 1.0, best.yes_no)
            keeper.add(mine, encode_prediction(answer, mine.token_bytes))
    assert bool(keeper.metrics()) == ("test" not in name)


def test_lists_of_objects_and_json_lines_are_read_as_well(tmp_path: Path) -> None:
    record = made()
    (expected,) = examples(write(tmp_path / "a.parquet", [record]))
    turned = copy.deepcopy(record)
    for holder, name in (
        (turned["document"], "tokens"),
        (turned, "long_answer_candidates"),
        (turned, "annotations"),
    ):
        value = holder[name]
        holder[name] = [dict(zip(value, v, strict=True)) for v in zip(*value.values(), strict=True)]
    pq.write_table(pa.Table.from_pylist([turned]), tmp_path / "b.parquet")
    lines = write_lines(tmp_path / "c.jsonl.gz", [record, turned])
    for found in (*examples(tmp_path / "b.parquet"), *examples(lines)):
        same(found, expected)


def test_a_file_is_told_by_its_bytes_and_found_in_folders(many: Path, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(many.read_bytes())
    write_lines(tmp_path / "b.parquet", [nq_records.simplified(99)])
    files = inputs.find_files([str(tmp_path), f"{many.parent}/*.parquet"])
    assert [Path(f).name for f in files] == ["a.jsonl", "b.parquet", "a.parquet"]
    numbers = [e.example_id for f in files for e in examples(Path(f))]
    assert numbers == [*range(N_ROWS), 99, *range(N_ROWS)]
    assert [inputs.count_records(f) for f in files] == [N_ROWS, 1, N_ROWS]


@pytest.mark.parametrize("limit", [None, 0, 1, 5, 12, N_ROWS, 99])
@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_shares_and_limit_cover_every_row_once(many: Path, n: int, limit: int | None) -> None:
    numbers = list(range(N_ROWS))[:limit]
    for i in range(n):
        found = list(inputs.read_examples(str(many), 3, (i, n), limit))
        assert [item.example_id for _, item in found if isinstance(item, Example)] == numbers[i::n]
        assert [source.line for source, _ in found] == [k + 1 for k in numbers[i::n]]
        assert {source.file_index for source, _ in found} <= {3}
    assert inputs.count_records(str(many), limit) == len(numbers)


def test_windows_are_those_of_the_same_records_as_lines(tmp_path: Path) -> None:
    vocab = str(nq_records.write_vocab(tmp_path))
    records = [nq_records.v1(i) for i in range(7)]
    lines = write_lines(tmp_path / "a.jsonl", records)
    rows = [row(inputs.decode_example(to_line(record))) for record in records]
    parquet = write(tmp_path / "b.parquet", rows)
    windows = WindowConfig(max_seq_length=64, max_query_length=16, doc_stride=16)
    made = [
        prepare(Request((str(p), str(p)), vocab, windows, limit=11), tmp_path / p.stem)
        for p in (lines, parquet)
    ]
    assert [p.examples for p in made] == [11, 11]
    one, other = ([s.read_bytes() for s in p.shards] for p in made)
    assert one == other


def test_optional_columns_and_nulls(tmp_path: Path) -> None:
    bare = made()
    del bare["annotations"], bare["document"]["title"], bare["long_answer_candidates"]["top_level"]
    for name in ("start_byte", "end_byte"):
        del bare["document"]["tokens"][name]
    pq.write_table(pa.Table.from_pylist([bare]), tmp_path / "a.parquet")
    pq.write_table(
        pa.Table.from_pylist([bare | {"annotations": None, "id": 7}]), tmp_path / "b.parquet"
    )
    for found in (*examples(tmp_path / "a.parquet"), *examples(tmp_path / "b.parquet")):
        assert (found.example_id, found.title, found.annotations) == (7, "", None)
        assert found.token_bytes is None
        assert all(candidate.top_level for candidate in found.candidates)


@pytest.mark.parametrize(("written", "expected"), [("-12", -12), ("a", "a"), ("9" * 30, "9" * 30)])
def test_ids(tmp_path: Path, written: str, expected: int | str) -> None:
    (found,) = examples(write(tmp_path / "a.parquet", [made() | {"id": written}]))
    assert found.example_id == expected


def test_no_rows_and_no_bytes(tmp_path: Path) -> None:
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
        ("long_answer_candidates.end_token.0", 12, "[3, 12) lies outside the 11 tokens"),
        ("long_answer_candidates.top_level.0", None, "must be a boolean, found null"),
        ("annotations.yes_no_answer.0", 2, "must be 0 (NO), 1 (YES) or -1, found 2"),
        ("annotations.yes_no_answer.0", None, "must be an integer or a string, found null"),
        ("annotations.long_answer.0", None, "annotations[0].long_answer' must be an object"),
        ("annotations.long_answer.0.candidate_index", 9, "is 9, but there are 2 candidates"),
        ("annotations.long_answer.0.end_token", 99, "[3, 99) lies outside the 11 tokens"),
        ("annotations.short_answers.0", None, "annotations[0].short_answers' must be an object"),
        ("annotations.short_answers.0.start_token", [9], "ends at token 7, before its start 9"),
    ],
)
def test_bad_rows_are_dead_letters(tmp_path: Path, path: str, value: Any, expected: str) -> None:
    bad = changed(made(8), path, value)
    first, letter, last = read(write(tmp_path / "a.parquet", [made(1), bad, made(3)]))
    assert isinstance(first, Example) and isinstance(last, Example)
    assert isinstance(letter, DeadLetter)
    assert expected in letter.reason
    assert letter.source.line == 2
    assert letter.record.startswith("{")


def test_text_that_is_not_utf8_is_a_dead_letter(tmp_path: Path) -> None:
    table = pa.Table.from_pylist([made(1), made(2), made(3)], schema=SCHEMA)
    spelled = pa.array([b"1", b"caf\xe9", b"3"], pa.binary()).view(pa.string())
    pq.write_table(table.set_column(0, "id", spelled), tmp_path / "a.parquet")
    first, letter, last = read(tmp_path / "a.parquet")
    assert isinstance(first, Example) and isinstance(last, Example)
    assert isinstance(letter, DeadLetter) and "not UTF-8" in letter.reason


def test_a_damaged_row_group_costs_its_own_rows_only(many: Path, tmp_path: Path) -> None:
    data = bytearray(many.read_bytes())
    chunk = pq.ParquetFile(many).metadata.row_group(1).column(0)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    data[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    path = tmp_path / "a.parquet"
    path.write_bytes(data)
    for n in (1, 3):
        found = [x for i in range(n) for x in inputs.read_examples(str(path), share=(i, n))]
        bad = sorted(source.line for source, item in found if isinstance(item, DeadLetter))
        assert sorted(source.line for source, _ in found) == list(range(1, N_ROWS + 1))
        assert bad == [6, 7, 8, 9, 10]
    assert "row group 1 of the parquet file is damaged" in str(read(path)[5])


# --- bad files ----------------------------------------------------------------------------


def without(record: Row, path: str) -> Row:
    return changed(record, path, ...)


BAD_TABLES = [
    ([{"text": "a", "label": 1}], "found the columns text, label, expected 'document'"),
    ([{"id": "1", "document": "text"}], "found no column question.text or document.tokens.token"),
    ([without(made(), "long_answer_candidates")], "found no column long_answer_candidates.start"),
    ([without(made(), "document.tokens.is_html")], "found no column document.tokens.is_html,"),
    ([made() | {"id": 1.5}], "found column id of type double, expected a string or an integer"),
    (
        [changed(made(), "document.tokens.is_html", ["x"] * 11)],
        "found column document.tokens.is_html of type string, expected a boolean",
    ),
    (
        [changed(made(), "annotations.short_answers.0.start_token", ["5"])],
        "found column annotations.short_answers.start_token of type string, expected an integer",
    ),
]


@pytest.mark.parametrize(("rows", "expected"), BAD_TABLES)
def test_a_file_of_no_use_is_one_line_before_any_work(
    rows: list[Row], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    good = write(tmp_path / "good.parquet", [made()])
    check_refused([good, path], expected, tmp_path, capsys)
    with pytest.raises(ValueError, match=r"a\.parquet: found"):
        read(path)


@pytest.mark.parametrize("kept", [4, 8, 12, 0.5, 0.99, -1])
def test_a_truncated_file_is_one_line(
    kept: float, many: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = many.read_bytes()
    cut = int(kept * len(data)) if 0 < kept < 1 else int(kept)
    path = tmp_path / "a.parquet"
    path.write_bytes(data[:cut])
    check_refused([path], "is cut off or damaged", tmp_path, capsys)


def check_refused(
    files: list[Path], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vocab = nq_records.write_vocab(tmp_path)
    output = tmp_path / "windows"
    code = main(
        [
            *("--data", *map(str, files), "--output", str(output)),
            *("--tokenizer", str(vocab)),
        ]
    )
    line = capsys.readouterr().err
    assert code == 1
    assert expected in line
    assert f"{files[-1]}: " in line
    assert len(line.splitlines()) == 1
    assert not output.exists()


def test_a_row_that_is_no_object_is_no_example() -> None:
    values: tuple[Any, ...] = ("text", 3, [], None, {})
    for value in values:
        with pytest.raises(RecordError):
            inputs.decode_example(to_line(made() | {"document": value}))
