"""Tests of parquet files of natural_questions, and of questions with the schemas of the hub."""

import contextlib
import copy
import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nq.formats import input_files, inputs
from nq.formats.own_data import list_pages
from nq.records import DeadLetter, Example
from tests.formats import own_data
from tests.formats.hugging_face_rows import SCHEMA, Row, lists, row, write
from tests.formats.own_data import CONTEXT, KEEPER
from tests.formats.reading import decode_line, examples, golds, ids, items, reasons, values_of
from tests.formats.test_own_data import shorts
from tests.support import nq_records
from tests.support.nq_records import changed, to_line, write_lines
from tests.support.peak_memory import limited_memory

N_ROWS = 23
POOLS = list[Any]()
"""None may end before what is allocated in it, which garbage collection frees late."""


def make_row(number: int = 7) -> Row:
    return row(nq_records.v1(number, words=3))


def write_rows(path: Path, rows: list[dict[str, Any]], schema: pa.Schema | None = None) -> Path:
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    return path


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
    for path in (
        write(tmp_path / "a.parquet", [row(record)]),
        write_rows(tmp_path / "b.parquet", [transposed]),
        write_lines(tmp_path / "c.jsonl.gz", [row(record), transposed]),
    ):
        assert all(values_of(example) == expected for example in examples(path))


def test_parquet_is_detected_by_its_first_bytes(parquet_file: Path, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(parquet_file.read_bytes())
    write_lines(tmp_path / "b.parquet", [nq_records.simplified(99)])
    files = input_files.find_files(str(tmp_path))
    numbers = [e.example_id for f in files for e in examples(Path(f))]
    assert numbers == [*range(N_ROWS), 99]
    assert [inputs.count_records(f) for f in files] == [N_ROWS, 1]
    (tmp_path / "c.parquet").touch()
    assert items(write(tmp_path / "d.parquet", [])) == items(tmp_path / "c.parquet") == []


def test_columns_may_be_absent_or_null(tmp_path: Path) -> None:
    bare = make_row()
    del bare["annotations"], bare["document"]["title"], bare["long_answer_candidates"]["top_level"]
    for name in ("start_byte", "end_byte"):
        del bare["document"]["tokens"][name]
    for record in (bare, bare | {"annotations": None, "id": 7}):
        (example,) = examples(write_rows(tmp_path / "a.parquet", [record]))
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
    data = parquet_file.read_bytes()
    path = write_rows(tmp_path / "a.parquet", [{"text": "a", "label": 1}])
    with pytest.raises(ValueError, match="text, label"):
        items(path)
    for size in (4, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:size])
        with pytest.raises(ValueError, match=str(path)):
            items(path)


@contextlib.contextmanager
def limited_pool(n_bytes: int) -> Iterator[None]:
    """Asserts that Arrow allocates at most so much at a time in the block."""
    before = pa.default_memory_pool()
    POOLS.append(pa.proxy_memory_pool(before))
    pa.set_memory_pool(POOLS[-1])
    try:
        yield
    finally:
        pa.set_memory_pool(before)
    assert POOLS[-1].max_memory() <= n_bytes


def test_texts_of_a_dictionary_are_counted_before_they_are_expanded(tmp_path: Path) -> None:
    n, size, path = 4000, 10_000, tmp_path / "a.parquet"
    hostile = make_row(2)
    tokens = hostile["document"]["tokens"]
    hostile["document"]["tokens"] = {name: values[:1] * n for name, values in tokens.items()}
    hostile["document"]["tokens"]["token"] = ["x" * size] * n
    table = pa.Table.from_pylist([make_row(1), hostile, make_row(3)], schema=SCHEMA)
    pq.write_table(table, path, compression="zstd")
    assert path.stat().st_size < 1 << 15
    with limited_pool(n * size // 8):
        first, letter, last = reasons(path)
    assert first == last == "" and "400" in letter
    pq.write_table(table, path, compression="zstd", use_dictionary=False)
    assert all(reasons(path))


# --- questions ----------------------------------------------------------------------------

TEXT, INTEGER = pa.string(), pa.int32()
TEXTS = {"id": TEXT, "title": TEXT, "context": TEXT, "question": TEXT}
SQUAD = pa.schema({**TEXTS, "answers": lists({"text": TEXT, "answer_start": INTEGER})})


def squad_rows() -> list[dict[str, Any]]:
    rows = []
    for question in own_data.QUESTIONS:
        columns = {n: [a[n] for a in question["answers"]] for n in ("text", "answer_start")}
        texts = {"id": question["id"], "question": question["question"], "title": "Skerry Point"}
        rows.append({**texts, "context": CONTEXT, "answers": columns})
    return rows


def values(path: Path) -> list[dict[str, Any]]:
    return list(map(values_of, examples(path)))


def test_rows_of_squad_are_the_examples_of_its_json(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.parquet", squad_rows(), SQUAD)
    assert values(path) == values(own_data.write_squad(tmp_path / "a.json"))
    assert inputs.read_page(path, 2).example.title == "Skerry Point"


@pytest.mark.parametrize(
    "detected",
    [
        [{"text": "Tom Hale", "char_spans": [{"start": KEEPER, "end": KEEPER + 7}]}],
        {"text": ["Tom Hale"], "char_spans": [{"start": [KEEPER], "end": [KEEPER + 7]}]},
    ],
    ids=["objects", "lists"],
)
def test_rows_of_mrqa_are_the_examples_of_its_lines(detected: Any, tmp_path: Path) -> None:
    """Of lists of objects ``datasets`` made objects of lists."""
    row: dict[str, Any] = {"qid": "m1", "question": "Who kept it?", "context": CONTEXT}
    row |= {"detected_answers": detected, "answers": ["Hale", "Tom Hale"]}
    path = write_rows(tmp_path / "a.parquet", [row])
    assert golds(path) == golds(write_lines(tmp_path / "a.jsonl", own_data.mrqa()))[:1]


def test_own_questions_with_contexts_pages_and_other_columns(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"question": "When?", "context": "Built in 1889.", "answer": "1889", "n": 1, "x": [[1]]},
        {"question": "Who?", "context": None, "answer": None, "n": 2, "x": None},
    ]
    path = write_rows(tmp_path / "own.parquet", rows)
    (first,) = examples(path)
    assert (first.answers, first.example_id) == (("1889",), "own.parquet:1")
    assert reasons(path)[1]
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "7.txt").write_text("Built by Eiffel.", encoding="utf-8")
    pages = list_pages(tmp_path / "pages", "file")
    rows = [{"question": "Who?", "file": 7, "answers": ["Eiffel"]}]
    path = write_rows(tmp_path / "b.parquet", rows)
    (example,) = examples(path, pages=pages)
    assert shorts(example) == ["Eiffel"]


def test_types_and_encodings_of_arrow_and_empty_row_groups(tmp_path: Path) -> None:
    expected = values(write_rows(tmp_path / "a.parquet", squad_rows(), SQUAD))
    table = pa.Table.from_pylist(squad_rows(), schema=SQUAD)
    kinds = pa.string_view(), pa.dictionary(pa.int32(), TEXT)
    for place, (name, kind) in enumerate(zip(("id", "title"), kinds, strict=True)):
        texts = [row[name] for row in squad_rows()]
        table = table.set_column(place, name, pa.array(texts, kind))
    encodings = dict.fromkeys(("context", "answers.text.list.element"), "DELTA_BYTE_ARRAY")
    options: dict[str, Any] = {"use_dictionary": ["title"], "column_encoding": encodings}
    with pq.ParquetWriter(tmp_path / "b.parquet", table.schema, **options) as writer:
        for part in (table.slice(0, 0), table.slice(0, 1), table.slice(1)):
            writer.write_table(part)
    assert values(tmp_path / "b.parquet") == expected


IDS = {
    "00000000-0000-0000-0000-000000000007": pa.array([UUID(int=7).bytes], pa.uuid()),
    7: pa.array([Decimal("7.00")], pa.decimal128(20, 2)),
    str(10**37): pa.array([Decimal(10**37)], pa.decimal128(38)),
    2**64 - 1: pa.array([2**64 - 1], pa.uint64()),
}
NO_IDS = (
    pa.array([1], pa.timestamp("us", "Mars/Phobos")),
    pa.array([b"\xff"]),
    pa.array([[("a", 1)]], pa.map_(TEXT, INTEGER)),
    pa.array([Decimal("7.5")], pa.decimal128(9, 1)),
)


def test_ids_are_texts_or_refused(tmp_path: Path) -> None:
    path, own = tmp_path / "a.parquet", {"question": ["When?"], "context": [CONTEXT]}
    for expected, column in IDS.items():
        pq.write_table(pa.table({**own, "id": column}), path)
        assert ids(path) == [expected]
    for column in NO_IDS:
        pq.write_table(pa.table({**own, "id": column}), path)
        (reason,) = reasons(path)
        assert reason and "\n" not in reason, column.type


def test_a_needed_column_twice_is_refused(tmp_path: Path) -> None:
    path, columns = tmp_path / "a.parquet", [pa.array([text]) for text in ("When?", CONTEXT, "a")]
    pq.write_table(pa.table([*columns, columns[0]], ["question", "context", "x", "x"]), path)
    assert reasons(path) == [""]
    pq.write_table(pa.table(columns, ["question", "context", "question"]), path)
    with pytest.raises(ValueError, match="'question'"):
        items(path)


def test_rows_of_a_large_row_group_are_made_one_by_one(tmp_path: Path) -> None:
    noise, (*_, one) = random.Random(0), squad_rows()
    rows = [{**one, "id": str(i), "context": noise.randbytes(40_000).hex()} for i in range(400)]
    path = write_rows(tmp_path / "a.parquet", rows, SQUAD)
    with limited_memory(400 * 80_000 // 4):
        assert sum(1 for _ in inputs.rows(str(path))) == 400
