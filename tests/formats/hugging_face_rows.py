"""Converts records of NQ v1.0 to rows and parquet files of Hugging Face's ``natural_questions``."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.nq_records import Record

Row = dict[str, Any]

CODES = {"NONE": -1, "NO": 0, "YES": 1}
TEXT, INTEGER = pa.string(), pa.int64()
SPAN = {"start_token": INTEGER, "end_token": INTEGER}
TOKEN = {"token": TEXT, "is_html": pa.bool_(), "start_byte": INTEGER, "end_byte": INTEGER}


def lists(fields: dict[str, pa.DataType]) -> pa.DataType:
    return pa.struct({name: pa.list_(kind) for name, kind in fields.items()})


ANNOTATION = {
    "long_answer": pa.struct({**SPAN, "candidate_index": INTEGER}),
    "short_answers": lists(SPAN),
    "yes_no_answer": INTEGER,
}
SCHEMA = pa.schema(
    {
        "id": TEXT,
        "document": pa.struct({"html": TEXT, "title": TEXT, "tokens": lists(TOKEN)}),
        "question": pa.struct({"text": TEXT}),
        "long_answer_candidates": lists({**SPAN, "top_level": pa.bool_()}),
        "annotations": lists(ANNOTATION),
    }
)


def columns(rows: Sequence[Row], names: Iterable[str]) -> dict[str, list[Any]]:
    """Returns a list of objects as an object of lists."""
    return {name: [row[name] for row in rows] for name in names}


def row(record: Record) -> Row:
    """Returns a record of NQ v1.0 as a row of the data set."""
    tokens = [{**token, "is_html": token["html_token"]} for token in record["document_tokens"]]
    annotations = [
        {
            **annotation,
            "short_answers": columns(annotation["short_answers"], SPAN),
            "yes_no_answer": CODES[annotation["yes_no_answer"]],
        }
        for annotation in record["annotations"]
    ]
    return {
        "id": str(record["example_id"]),
        "document": {
            "html": record["document_html"],
            "title": record["document_title"],
            "tokens": columns(tokens, TOKEN),
        },
        "question": {"text": record["question_text"]},
        "long_answer_candidates": columns(record["long_answer_candidates"], (*SPAN, "top_level")),
        "annotations": columns(annotations, ANNOTATION),
    }


def write(path: Path, rows: Sequence[Row], group_rows: int = 5) -> Path:
    """Writes a parquet file with ``group_rows`` rows in each row group."""
    table = pa.Table.from_pylist(list(rows), schema=SCHEMA)
    pq.write_table(table, path, row_group_size=group_rows)
    return path
