"""Examples as rows of Hugging Face's ``natural_questions``, and files of them."""

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
TEXT, WHOLE = pa.string(), pa.int64()
PLACE = {"start_token": WHOLE, "end_token": WHOLE, "start_byte": WHOLE, "end_byte": WHOLE}
NULL = dict.fromkeys(PLACE, -1)


def lists(fields: dict[str, pa.DataType]) -> pa.DataType:
    return pa.struct({name: pa.list_(kind) for name, kind in fields.items()})


SCHEMA = pa.schema(
    {
        "id": TEXT,
        "document": pa.struct(
            {
                "html": TEXT,
                "title": TEXT,
                "tokens": lists(
                    {"token": TEXT, "is_html": pa.bool_(), "start_byte": WHOLE, "end_byte": WHOLE}
                ),
                "url": TEXT,
            }
        ),
        "question": pa.struct({"text": TEXT, "tokens": pa.list_(TEXT)}),
        "long_answer_candidates": lists({**PLACE, "top_level": pa.bool_()}),
        "annotations": lists(
            {
                "id": TEXT,
                "long_answer": pa.struct({**PLACE, "candidate_index": WHOLE}),
                "short_answers": lists({**PLACE, "text": TEXT}),
                "yes_no_answer": WHOLE,
            }
        ),
    }
)


def columns(rows: Sequence[Row], names: Iterable[str]) -> dict[str, list[Any]]:
    """A list of objects as an object of lists."""
    return {name: [row[name] for row in rows] for name in names}


def place(example: Example, span: Span) -> Row:
    spans = example.token_bytes
    found = {"start_token": span.start, "end_token": span.end, "start_byte": -1, "end_byte": -1}
    if spans is not None and span.start < span.end:
        found |= {"start_byte": int(spans[span.start, 0]), "end_byte": int(spans[span.end - 1, 1])}
    return found


def row(example: Example) -> Row:
    """An example as the data set has it."""
    n = len(example.tokens)
    known = example.token_bytes
    spans = np.full((n, 2), 0) if known is None else known
    return {
        "id": str(example.example_id),
        "document": {
            "html": " ".join(example.tokens),
            "title": example.title,
            "tokens": {
                "token": list(example.tokens),
                "is_html": list(example.is_html),
                "start_byte": None if known is None else spans[:, 0].tolist(),
                "end_byte": None if known is None else spans[:, 1].tolist(),
            },
            "url": "",
        },
        "question": {"text": example.question, "tokens": example.question.split(" ")},
        "long_answer_candidates": columns(
            [{**place(example, c.span), "top_level": c.top_level} for c in example.candidates],
            (*PLACE, "top_level"),
        ),
        "annotations": columns(
            [_annotation(example, a) for a in example.annotations or ()],
            ("id", "long_answer", "short_answers", "yes_no_answer"),
        ),
    }


def _annotation(example: Example, given: Annotation) -> Row:
    long = NULL if given.long is None else place(example, given.long)
    shorts = [{**place(example, span), "text": "…"} for span in given.shorts]
    return {
        "id": str(2**64 - 1),
        "long_answer": {
            **long,
            "candidate_index": -1 if given.candidate is None else given.candidate,
        },
        "short_answers": columns(shorts, (*PLACE, "text")),
        "yes_no_answer": CODES[given.yes_no],
    }


def write(path: Path, rows: Sequence[Row], group: int = 5, schema: Any = SCHEMA) -> Path:
    """A parquet file of ``rows``, ``group`` of them in a row group."""
    table = pa.Table.from_pylist(list(rows), schema=schema)
    pq.write_table(table, path, row_group_size=group)
    return path


def same(one: Example, other: Example) -> None:
    """Asserts that two examples are equal in every field."""
    for name in Example.__slots__:
        mine, theirs = getattr(one, name), getattr(other, name)
        if name == "token_bytes":
            assert (mine is None) == (theirs is None)
            assert mine is None or np.array_equal(mine, theirs)
        elif name == "annotations":
            assert (mine or None) == (theirs or None)
        elif name in ("tokens", "is_html", "candidates"):
            assert list(mine) == list(theirs)
        else:
            assert mine == theirs
