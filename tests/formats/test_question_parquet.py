"""Tests of parquet files of questions, with the schemas that data sets of the hub have."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nq.formats import inputs
from nq.formats.questions import list_pages
from nq.records import Example
from tests.formats import own_data
from tests.formats.hugging_face_rows import lists
from tests.formats.own_data import CONTEXT, KEEPER
from tests.formats.reading import ids, items, reasons
from tests.formats.test_own_data import shorts
from tests.nq_records import write_lines

TEXT, INTEGER = pa.string(), pa.int32()
TEXTS = {"id": TEXT, "title": TEXT, "context": TEXT, "question": TEXT}
SQUAD = pa.schema({**TEXTS, "answers": lists({"text": TEXT, "answer_start": INTEGER})})
SPAN = {"start": INTEGER, "end": INTEGER}
TOKENS = {"tokens": TEXT, "offsets": INTEGER}


def objects(fields: dict[str, pa.DataType]) -> pa.DataType:
    return pa.list_(pa.struct(fields))


def mrqa_schema(several: Any) -> pa.Schema:
    """Returns the schema of ``mrqa``, whose lists of objects ``datasets`` wrote in two ways."""
    names = "subset", "context", "qid", "question"
    return pa.schema(
        {
            **dict.fromkeys(names, TEXT),
            "context_tokens": several(TOKENS),
            "question_tokens": several(TOKENS),
            "detected_answers": several(
                {"text": TEXT, "char_spans": several(SPAN), "token_spans": several(SPAN)}
            ),
            "answers": pa.list_(TEXT),
        }
    )


def write(path: Path, rows: list[dict[str, Any]], schema: pa.Schema | None = None) -> Path:
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    return path


def squad_rows() -> list[dict[str, Any]]:
    rows = []
    for question in own_data.QUESTIONS:
        columns = {n: [a[n] for a in question["answers"]] for n in ("text", "answer_start")}
        texts = {"id": question["id"], "question": question["question"], "title": "Skerry Point"}
        rows.append({**texts, "context": CONTEXT, "answers": columns})
    return rows


def test_rows_of_squad_are_the_examples_of_its_json(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", squad_rows(), SQUAD)
    expected = items(own_data.write_squad(tmp_path / "a.json"))
    for actual, same in zip(items(path), expected, strict=True):
        assert isinstance(actual, Example) and isinstance(same, Example)
        assert (actual.answers, actual.annotations) == (same.answers, same.annotations)
        assert (actual.title, actual.tokens) == (same.title, same.tokens)
    assert ids(path) == ["q1", "q2", "q3"]
    assert inputs.read_page(path, 2).example.title == "Skerry Point"


@pytest.mark.parametrize("several", [lists, objects])
def test_rows_of_mrqa_are_the_examples_of_its_lines(several: Any, tmp_path: Path) -> None:
    span = {"start": KEEPER, "end": KEEPER + 7}
    nested = {"text": "Tom Hale", "char_spans": [span], "token_spans": []}
    if several is lists:
        spans = {"start": [KEEPER], "end": [KEEPER + 7]}
        nested = {"text": ["Tom Hale"], "char_spans": [spans]}
    texts = {"subset": "own", "qid": "m1", "question": "Who kept it?", "context": CONTEXT}
    detected = nested if several is lists else [nested]
    row = {**texts, "detected_answers": detected, "answers": ["Hale", "Tom Hale"]}
    (actual,) = items(write(tmp_path / "a.parquet", [row], mrqa_schema(several)))
    expected = items(write_lines(tmp_path / "a.jsonl", own_data.mrqa()))[0]
    assert isinstance(actual, Example) and isinstance(expected, Example)
    assert shorts(actual) == ["Tom Hale", "Hale"]
    assert (actual.answers, actual.annotations) == (expected.answers, expected.annotations)


def test_own_questions_with_contexts_pages_and_other_columns(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"question": "When?", "context": "Built in 1889.", "answer": "1889", "n": 1, "x": [[1]]},
        {"question": "Who?", "context": None, "answer": None, "n": 2, "x": None},
    ]
    path = write(tmp_path / "own.parquet", rows)
    first = items(path)[0]
    assert isinstance(first, Example) and first.answers == ("1889",)
    assert first.example_id == "own.parquet:1"
    assert reasons(path)[1].startswith("the question has no page")
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "7.txt").write_text("Built by Eiffel.", encoding="utf-8")
    pages = list_pages(tmp_path / "pages", "file")
    path = write(tmp_path / "b.parquet", [{"question": "Who?", "file": 7, "answers": ["Eiffel"]}])
    (example,) = items(path, pages=pages)
    assert isinstance(example, Example) and shorts(example) == ["Eiffel"]


@pytest.mark.slow
def test_a_large_row_group_takes_little_memory(tmp_path: Path) -> None:
    import random

    letters = random.Random(0)
    contexts = [letters.randbytes(2000).hex() for _ in range(20_000)]
    rows = [{**squad_rows()[2], "id": str(i), "context": c} for i, c in enumerate(contexts)]
    path = write(tmp_path / "a.parquet", rows, SQUAD)
    code = (
        "import resource, sys; from nq.formats import parquet\n"
        "def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10\n"
        "next(parquet.rows(sys.argv[1])); before = peak()\n"
        "print(sum(1 for _ in parquet.rows(sys.argv[1])), peak() - before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, check=True
    )
    count, growth_mib = map(int, done.stdout.split())
    assert (count, growth_mib < 64) == (20_000, True), growth_mib
