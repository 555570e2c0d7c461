"""Mutated records of every dialect become answers or are skipped for a reason, in one line."""

import contextlib
import io
import json
import random
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.commands import terminal
from nq.config import DecisionConfig, WindowConfig
from nq.formats import inputs
from nq.formats.outputs import FORMATS, encode_prediction
from nq.postprocess.decision import RULES, decide
from nq.preprocess.features import Sampling
from nq.preprocess.prepared import make_windows
from nq.preprocess.shards import encode_dead_letter, stored_example
from nq.preprocess.tokenizers.base import Tokenizer
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.records import DeadLetter, Example, Source
from tests.formats import hugging_face_rows, own_data
from tests.formats.test_own_data import ROW
from tests.formats.test_tydi import make_record as tydi
from tests.postprocess.synthetic_pages import Logits, window_scores
from tests.support.nq_records import Record, simplified, v1

WINDOWS = WindowConfig(max_seq_length=64, max_query_length=16, doc_stride=24)
LINES: dict[str, Callable[[], Record]] = {
    "simplified": simplified,
    "Kaggle test": lambda: {k: v for k, v in simplified().items() if k != "annotations"},
    "NQ v1.0": v1,
    "TyDi QA": tydi,
    "Hugging Face jsonl": lambda: hugging_face_rows.row(v1()),
    "question and context": lambda: deepcopy(
        {"context": own_data.CONTEXT, **own_data.QUESTIONS[1]}
    ),
}
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, -2, 1, 7, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 2**70, 10**400),
    *(0.5, -0.0, 1e308, float("nan"), float("inf"), -float("inf")),
    *("", " ", "\0", "\x1b[31m", "\ud800", "\u2028", "YES", "NaN", "=1+1", "<P>", "-1"),
    *("x" * 100_000, "พระจันทร์", "a_b\u202f👩\u200d🚀", "[SEP] [ContextId=3]"),
    *([], {}, [[]], [None], [{}], {"": ""}, {"a": {"b": []}}),
)
INSERTED = (
    *(b'"', b"\\", b"{", b"}", b"[", b"]", b",", b"\n", b"\0", b"\xff", b"\xed\xa0\x80"),
    *(b"\x1b[2J", b"<p>", b"</table>", b"<" * 500, b"\xef\xbb\xbf"),
)

chances = given(st.randoms(use_true_random=True))


def nodes(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yields container and key of every value inside a JSON value."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from nodes(value[key])


def change_value(record: Any, chance: random.Random) -> None:
    """Changes one value of a record in place: another value, none, a near one, or a repetition."""
    container, key = chance.choice(list(nodes(record)))
    value, kind = container[key], chance.randrange(6)
    if kind == 0:
        del container[key]
    elif kind == 1:
        container[key] = chance.choice(VALUES)
    elif isinstance(value, int):
        container[key] = value + chance.choice((-9, -1, 1, 9))
    elif isinstance(value, str):
        at = chance.randrange(len(value) + 1)
        container[key] = value[:at] + str(chance.choice(VALUES)) + value[at:]
    elif isinstance(value, list):
        container[key] = value[chance.randrange(len(value) + 1) :] * chance.choice((1, 2, 50))


def change_bytes(data: bytes, chance: random.Random) -> bytes:
    """Returns bytes with one to three changes."""
    for _ in range(chance.randrange(1, 4)):
        at, n = chance.randrange(len(data) + 1), chance.randrange(1, 50)
        before, after = data[:at], data[at:]
        encoding = chance.choice(("utf-16", "utf-16-le", "latin-1", "cp1252"))
        data = chance.choice(
            (
                before,
                before + after[n:],
                before + bytes([chance.randrange(256)]) + after[1:],
                before + chance.choice(INSERTED) + after,
                before + after[:n] * chance.randrange(1, 50) + after,
                data.decode("utf-8", "replace").encode(encoding, "replace"),
            )
        )
    return data


def to_line(record: Any, chance: random.Random) -> bytes:
    """Returns a record as JSON, at times with a repeated key or a deeply nested value."""
    text = json.dumps(record, ensure_ascii=chance.random() < 0.5)
    kind = chance.randrange(12)
    if kind == 0 and record:
        repeated = {chance.choice(list(record)): chance.choice(VALUES)}
        text = text[:-1] + ", " + json.dumps(repeated)[1:]
    elif kind == 1:
        depth = chance.choice((50, 3000))
        text = text.replace("null", "[" * depth + "]" * depth, 1)
    return text.encode("utf-8", "surrogatepass")


@pytest.fixture(scope="module")
def tokenizer(tiny_vocab: Path) -> Tokenizer:
    return load_tokenizer(tiny_vocab)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mutations") / "records"


def check_item(
    source: Source, item: Example | DeadLetter, tokenizer: Tokenizer, chance: random.Random
) -> None:
    """Makes windows, targets, predictions by all rules and all outputs of a record."""
    made: Any = item
    if isinstance(item, Example):
        for training in (Sampling(0.5, 1), None):
            made = make_windows(source, item, tokenizer, WINDOWS, training)
            if isinstance(made, DeadLetter):
                break
            stored_example(source, item, made, WINDOWS)
    if isinstance(made, DeadLetter):
        assert made.reason.strip() and "\n" not in made.reason
        encode_dead_letter(made)
        return
    assert isinstance(item, Example)
    draw = np.random.default_rng(chance.randrange(2**32))
    shape = made.token_map.shape
    start, end, types = (draw.normal(size=size) for size in (shape, shape, (len(made), 5)))
    logits = Logits(start, end, types, made.token_map)
    for rule, changes in RULES.items():
        scores = window_scores(logits, changes.k, changes.text_only)
        ranked = decide(item, scores, DecisionConfig(rule=rule))
        encode_prediction(ranked.prediction, item.token_bytes, item)
        for output in FORMATS.values():
            output.encode(item, ranked.prediction, ranked.alternatives(output.alternatives))


def check_file(
    path: Path,
    data: bytes,
    tokenizer: Tokenizer,
    chance: random.Random,
    n_records: int | None = None,
) -> None:
    """Reads a file, which has so many records; without a number it may be refused as a whole."""
    path.write_bytes(data)
    try:
        inputs.check(str(path))
        every = list(inputs.read_records(str(path)))
    except (ValueError, OSError) as error:
        assert n_records is None and str(error).strip()
        assert len(terminal.explain(error).splitlines()) == 1
        return
    assert n_records in (None, len(every))
    for source, item in every:
        check_item(source, item, tokenizer, chance)


@pytest.mark.parametrize("dialect", LINES)
@chances
def test_lines(path: Path, tokenizer: Tokenizer, dialect: str, chance: random.Random) -> None:
    """A record has changed values, its line changed bytes, or both; good ones are around it."""
    record, kind = LINES[dialect](), chance.randrange(4)
    for _ in range(chance.choice((1, 1, 1, 3)) if kind else 0):
        change_value(record, chance)
    line = to_line(record, chance)
    good = json.dumps(LINES[dialect]()).encode()
    data = b"\n".join([good, line if kind in (1, 2) else change_bytes(line, chance), good])
    n_records = sum(bool(x.strip()) for x in data.split(b"\n"))
    check_file(path, data, tokenizer, chance, n_records)


def parquet(chance: random.Random) -> bytes:
    """Returns a parquet file of which one row may have a changed value."""
    rows = [hugging_face_rows.row(v1()) for _ in range(3)]
    table = pa.Table.from_pylist(rows, schema=hugging_face_rows.SCHEMA)
    change_value(rows[1], chance)
    with contextlib.suppress(pa.ArrowException, OverflowError, TypeError, UnicodeError):
        table = pa.Table.from_pylist(rows, schema=table.schema)  # unless it has another type
    file = io.BytesIO()
    pq.write_table(table, file, row_group_size=2)
    return file.getvalue()


FILES: dict[str, Callable[[random.Random], bytes]] = {
    "parquet": parquet,
    "SQuAD": lambda chance: json.dumps(own_data.squad()).encode(),
    "MRQA": lambda chance: "\n".join(map(json.dumps, own_data.mrqa())).encode(),
    "CSV": lambda chance: f"id,question,context,answer\n{ROW.format(',')}\n".encode(),
}


@pytest.mark.parametrize("dialect", FILES)
@chances
def test_files(path: Path, tokenizer: Tokenizer, dialect: str, chance: random.Random) -> None:
    data = FILES[dialect](chance)
    if dialect != "parquet" or chance.random() < 0.5:
        data = change_bytes(data, chance)
    check_file(path, data, tokenizer, chance)
