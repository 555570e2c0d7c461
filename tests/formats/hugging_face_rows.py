"""Converts examples to rows and parquet files of Hugging Face's ``natural_questions``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from nq.records import Annotation, Example, Span, YesNo

Row = dict[str, Any]

CODES = {YesNo.NONE: -1, YesNo.NO: 0, YesNo.YES: 1}
TEXT, INTEGER = pa.string(), pa.int64()
SPAN = dict.fromkeys(("start_token", "end_token", "start_byte", "end_byte"), INTEGER)
NULL = dict.fromkeys(SPAN, -1)
TOKEN = {"token": TEXT, "is_html": pa.bool_(), "start_byte": INTEGER, "end_byte": INTEGER}


def lists(fields: dict[str, pa.DataType]) -> pa.DataType:
    return pa.struct({name: pa.list_(kind) for name, kind in fields.items()})


SCHEMA = pa.schema(
    {
        "id": TEXT,
        "document": pa.struct({"html": TEXT, "title": TEXT, "tokens": lists(TOKEN), "url": TEXT}),
        "question": pa.struct({"text": TEXT, "tokens": pa.list_(TEXT)}),
        "long_answer_candidates": lists({**SPAN, "top_level": pa.bool_()}),
        "annotations": lists(
            {
                "id": TEXT,
                "long_answer": pa.struct({**SPAN, "candidate_index": INTEGER}),
                "short_answers": lists({**SPAN, "text": TEXT}),
                "yes_no_answer": INTEGER,
            }
        ),
    }
)


def columns(rows: Sequence[Row], names: Iterable[str]) -> dict[str, list[Any]]:
    """Returns a list of objects as an object of lists."""
    return {name: [row[name] for row in rows] for name in names}


def encode_span(example: Example, span: Span) -> Row:
    token_bytes = example.token_bytes
    fields = {"start_token": span.start, "end_token": span.end, "start_byte": -1, "end_byte": -1}
    if token_bytes is not None and span.start < span.end:
        fields |= {"start_byte": int(token_bytes[span.start, 0])}
        fields |= {"end_byte": int(token_bytes[span.end - 1, 1])}
    return fields


def row(example: Example) -> Row:
    """Returns an example as a row of the data set."""
    starts, ends = (None, None) if example.token_bytes is None else example.token_bytes.T.tolist()
    tokens = (list(example.tokens), list(example.is_html), starts, ends)
    candidates = [
        {**encode_span(example, c.span), "top_level": c.top_level} for c in example.candidates
    ]
    annotations = [_annotation(example, a) for a in example.annotations or ()]
    return {
        "id": str(example.example_id),
        "document": {
            "html": " ".join(example.tokens),
            "title": example.title,
            "tokens": dict(zip(TOKEN, tokens, strict=True)),
            "url": "",
        },
        "question": {"text": example.question, "tokens": example.question.split(" ")},
        "long_answer_candidates": columns(candidates, (*SPAN, "top_level")),
        "annotations": columns(
            annotations, ("id", "long_answer", "short_answers", "yes_no_answer")
        ),
    }


def _annotation(example: Example, annotation: Annotation) -> Row:
    long = NULL if annotation.long is None else encode_span(example, annotation.long)
    shorts = [{**encode_span(example, span), "text": "…"} for span in annotation.shorts]
    index = -1 if annotation.candidate is None else annotation.candidate
    return {
        "id": str(2**64 - 1),
        "long_answer": {**long, "candidate_index": index},
        "short_answers": columns(shorts, (*SPAN, "text")),
        "yes_no_answer": CODES[annotation.yes_no],
    }


def write(path: Path, rows: Sequence[Row], group_rows: int = 5) -> Path:
    """Writes a parquet file with ``group_rows`` rows in each row group."""
    table = pa.Table.from_pylist(list(rows), schema=SCHEMA)
    pq.write_table(table, path, row_group_size=group_rows)
    return path


def assert_equal(actual: Example, expected: Example) -> None:
    """Asserts that two examples are equal in every field."""
    for name in Example.__slots__:
        value, wanted = getattr(actual, name), getattr(expected, name)
        if name == "token_bytes":
            assert (value is None) == (wanted is None)
            assert value is None or np.array_equal(value, wanted)
        elif name == "annotations":
            assert (value or None) == (wanted or None)
        elif name in ("tokens", "is_html", "candidates"):
            assert list(value) == list(wanted)
        else:
            assert value == wanted
