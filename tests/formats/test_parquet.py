"""Tests of parquet files of Hugging Face: round trips, shares, bad rows and files."""

import copy
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nq.formats import input_files, inputs
from nq.records import DeadLetter, Example
from tests import nq_records
from tests.formats.hugging_face_rows import SCHEMA, Row, row, write
from tests.formats.reading import decode_line, items, reasons, values_of
from tests.nq_records import changed, to_line, write_lines

N_ROWS = 23
POOL = pa.proxy_memory_pool(pa.default_memory_pool())
"""It may not end before what is allocated in it, which garbage collection frees late."""


def make_row(number: int = 7) -> Row:
    return row(nq_records.v1(number, words=3))


def examples(path: Path, **options: Any) -> list[Example]:
    return [item for item in items(path, **options) if isinstance(item, Example)]


@pytest.fixture(scope="module")
def parquet_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    return write(folder / "a.parquet", [make_row(i) for i in range(N_ROWS)])


def test_rows_are_the_examples_of_nq(tmp_path: Path) -> None:
    record = nq_records.v1(7, words=3)
    expected = values_of(decode_line(to_line(record)))
    transposed = copy.deepcopy(row(record))  # newer exports have lists of objects
    for holder, name in (
        (transposed["document"], "tokens"),
        (transposed, "long_answer_candidates"),
        (transposed, "annotations"),
    ):
        value = holder[name]
        holder[name] = [dict(zip(value, v, strict=True)) for v in zip(*value.values(), strict=True)]
    pq.write_table(pa.Table.from_pylist([transposed]), tmp_path / "b.parquet")
    for path in (
        write(tmp_path / "a.parquet", [row(record)]),
        tmp_path / "b.parquet",
        write_lines(tmp_path / "c.jsonl.gz", [row(record), transposed]),
    ):
        assert all(values_of(example) == expected for example in examples(path))


def test_parquet_is_detected_by_its_first_bytes(parquet_file: Path, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(parquet_file.read_bytes())
    write_lines(tmp_path / "b.parquet", [nq_records.simplified(99)])
    files = input_files.find_files([str(tmp_path), f"{parquet_file.parent}/*.parquet"])
    numbers = [e.example_id for f in files for e in examples(Path(f))]
    assert numbers == [*range(N_ROWS), 99, *range(N_ROWS)]
    assert [inputs.count_records(f) for f in files] == [N_ROWS, 1, N_ROWS]
    (tmp_path / "c.parquet").touch()
    assert items(write(tmp_path / "d.parquet", [])) == items(tmp_path / "c.parquet") == []


@pytest.mark.parametrize(("n", "limit"), [(1, 12), (3, None), (3, 0), (3, 12)])
def test_shares_and_limit_cover_every_row_once(
    parquet_file: Path, n: int, limit: int | None
) -> None:
    numbers = list(range(N_ROWS))[:limit]
    for i in range(n):
        records = list(inputs.read_records(str(parquet_file), 3, (i, n), limit))
        assert [e.example_id for _, e in records if isinstance(e, Example)] == numbers[i::n]
        assert [source.line for source, _ in records] == [k + 1 for k in numbers[i::n]]
    assert inputs.count_records(str(parquet_file), limit) == len(numbers)


def test_columns_may_be_absent_or_null(tmp_path: Path) -> None:
    bare = make_row()
    del bare["annotations"], bare["document"]["title"], bare["long_answer_candidates"]["top_level"]
    for name in ("start_byte", "end_byte"):
        del bare["document"]["tokens"][name]
    for i, record in enumerate((bare, bare | {"annotations": None, "id": 7})):
        path = tmp_path / f"{i}.parquet"
        pq.write_table(pa.Table.from_pylist([record]), path)
        (example,) = examples(path)
        assert (example.example_id, example.title, example.annotations) == (7, "", None)
        assert example.token_bytes is None
        assert all(candidate.top_level for candidate in example.candidates)


def test_bad_rows_are_dead_letters(tmp_path: Path) -> None:
    bad: tuple[tuple[str, Any, str], ...] = (
        ("id", None, "'id'"),
        ("document.tokens.is_html", [True], "token 11, is_html 1"),
        ("annotations.yes_no_answer.0", 2, "2"),
        ("annotations.short_answers.0", None, "annotations[0].short_answers"),
    )
    rows = [changed(make_row(8), path, value) for path, value, _ in bad]
    good, *letters, last = items(write(tmp_path / "a.parquet", [make_row(1), *rows, make_row(3)]))
    assert isinstance(good, Example) and isinstance(last, Example)
    for line, (letter, (*_, expected)) in enumerate(zip(letters, bad, strict=True), 2):
        assert isinstance(letter, DeadLetter) and letter.source.line == line
        assert expected in letter.reason and letter.record.startswith("{")


def test_only_the_rows_of_a_damaged_row_group_are_lost(parquet_file: Path, tmp_path: Path) -> None:
    data = bytearray(parquet_file.read_bytes())
    chunk = pq.ParquetFile(parquet_file).metadata.row_group(1).column(0)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    data[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    path = tmp_path / "a.parquet"
    path.write_bytes(data)
    for n in (1, 3):
        records = [x for i in range(n) for x in inputs.read_records(str(path), share=(i, n))]
        bad = sorted(source.line for source, item in records if isinstance(item, DeadLetter))
        assert sorted(source.line for source, _ in records) == list(range(1, N_ROWS + 1))
        assert bad == [6, 7, 8, 9, 10]
    assert "row group 1" in reasons(path)[5]


def test_a_file_without_a_column_or_cut_off_is_refused(parquet_file: Path, tmp_path: Path) -> None:
    path, data = tmp_path / "a.parquet", parquet_file.read_bytes()
    pq.write_table(pa.Table.from_pylist([{"text": "a", "label": 1}]), path)
    with pytest.raises(ValueError, match="text, label"):
        items(path)
    for size in (4, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:size])
        with pytest.raises(ValueError, match=str(path)):
            items(path)


def test_texts_of_a_dictionary_are_counted_before_they_are_expanded(tmp_path: Path) -> None:
    n, size, path = 4000, 10_000, tmp_path / "a.parquet"
    hostile = make_row(2)
    tokens = hostile["document"]["tokens"]
    hostile["document"]["tokens"] = {name: values[:1] * n for name, values in tokens.items()}
    hostile["document"]["tokens"]["token"] = ["x" * size] * n
    table = pa.Table.from_pylist([make_row(1), hostile, make_row(3)], schema=SCHEMA)
    pq.write_table(table, path, compression="zstd")
    assert path.stat().st_size < 1 << 15
    before = pa.default_memory_pool()
    pa.set_memory_pool(POOL)
    try:
        first, letter, last = reasons(path)
    finally:
        pa.set_memory_pool(before)
    assert first == last == "" and "400" in letter
    assert POOL.max_memory() < n * size / 8
    pq.write_table(table, path, compression="zstd", use_dictionary=False)
    assert all(reasons(path))
    encodings = {"document.tokens.token.list.element": "DELTA_BYTE_ARRAY"}
    pq.write_table(table, path, use_dictionary=False, column_encoding=encodings)
    assert [bool(reason) for reason in reasons(path)] == [False, True, False]
