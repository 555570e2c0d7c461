"""Mutated records of every input dialect; each must become answers or a dead letter.

Every line of a file, row of a table and page goes by way of windows, features, targets, all
decision rules and all output formats, or is skipped with one line of reason. Scores are random.
"""

import argparse
import contextlib
import io
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from experiments.attacks import Row, chosen, dialects
from nq.bundle import bundled_model
from nq.commands import terminal
from nq.config import DECISION_RULES, DecisionConfig, WindowConfig
from nq.formats import documents, inputs, outputs
from nq.formats.outputs import encode_prediction
from nq.postprocess.decision import RULES, decide
from nq.preprocess.features import Sampling
from nq.preprocess.prepared import make_windows
from nq.preprocess.shards import encode_dead_letter, stored_example
from nq.preprocess.tokenizers.base import Tokenizer
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.records import DeadLetter, Example, Source, WindowScores

WINDOWS = WindowConfig(max_seq_length=64, max_query_length=16, doc_stride=24)
NEGATIVES, SEED, FILE_RECORDS = 0.5, 1, 100
LINES: dict[str, Callable[[random.Random], Any]] = {
    "simplified train": dialects.simplified,
    "simplified dev": lambda chance: dialects.simplified(chance, 5),
    "Kaggle test": lambda chance: dialects.simplified(chance, 0),
    "NQ v1.0": dialects.v1,
    "TyDi QA": dialects.tydi,
    "Hugging Face jsonl": dialects.hugging_face,
    "question and context": dialects.passage,
}
DEEP = 3000
LONG = 100_000
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, -2, 1, 7, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 2**70, 10**400),
    *(0.5, -0.0, 1e308, float("nan"), float("inf"), -float("inf")),
    *("", " ", "\0", "\x1b[31m", "\ud800", "\u2028", "YES", "NaN", "=1+1", "<P>", "-1", "x" * LONG),
    *([], {}, [[]], [None], [{}], {"": ""}, {"a": {"b": []}}),
)
INSERTED = (
    *(b'"', b"\\", b"{", b"}", b"[", b"]", b",", b"\n", b"\0", b"\xff", b"\xed\xa0\x80"),
    *(b"\x1b[2J", b"<p>", b"</table>", b"<" * 500, b"\xef\xbb\xbf"),
)


def nodes(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yields container and key of every value inside a JSON value."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from nodes(value[key])


def change_value(record: Any, chance: random.Random) -> None:
    """Changes one value of a record in place: another value, none, a near one, or a repetition."""
    container, key = chance.choice(list(nodes(record)))
    value = container[key]
    kind = chance.randrange(6)
    if kind == 0:
        del container[key]
    elif kind == 1:
        container[key] = chance.choice(VALUES)
    elif isinstance(value, bool):
        container[key] = not value
    elif isinstance(value, int):
        container[key] = value + chance.choice((-9, -1, 1, 9))
    elif isinstance(value, str):
        at = chance.randrange(len(value) + 1)
        container[key] = value[:at] + str(chance.choice(VALUES)) + value[at:]
    elif isinstance(value, list):
        container[key] = value[chance.randrange(len(value) + 1) :] * chance.choice((1, 2, 50))


def to_line(record: Any, chance: random.Random) -> bytes:
    """Returns a record as JSON, at times with a repeated key or a deeply nested value."""
    text = json.dumps(record, ensure_ascii=chance.random() < 0.5)
    kind = chance.randrange(12)
    if kind == 0 and isinstance(record, dict) and record:
        repeated = {chance.choice(list(record)): chance.choice(VALUES)}
        text = text[:-1] + ", " + json.dumps(repeated)[1:]
    elif kind == 1:
        depth = chance.choice((50, DEEP))
        text = text.replace("null", "[" * depth + "]" * depth, 1)
    return text.encode("utf-8", "surrogatepass")


def change_bytes(data: bytes, chance: random.Random) -> bytes:
    """Returns bytes with one to three changes."""
    changed = bytearray(data)
    for _ in range(chance.randrange(1, 4)):
        if not changed:
            break
        at, n = chance.randrange(len(changed)), chance.randrange(1, 50)
        match chance.randrange(6):
            case 0:
                changed[at] = chance.randrange(256)
            case 1:
                del changed[at : at + n]
            case 2:
                del changed[at:]
            case 3:
                changed[at:at] = chance.choice(INSERTED)
            case 4:
                changed[at:at] = changed[at : at + n] * chance.randrange(1, 50)
            case 5:
                encoding = chance.choice(("utf-16", "utf-16-le", "latin-1", "cp1252"))
                changed[:] = changed.decode("utf-8", "replace").encode(encoding, "replace")
    return bytes(changed)


class Checker:
    """Runs mutated records of a dialect through all stages, and counts what becomes of them.

    Files of records are written into the folder. ``counts`` has the numbers of ``mutations``
    (records, pages or files), of the ``records`` in them, of those that became predictions
    (``good``) or were ``skipped`` for a reason, and of files or pages that were ``refused`` as a
    whole. ``errors`` are exceptions that no user should see.
    """

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.path = folder / "records"
        self.tokenizer: Tokenizer = load_tokenizer(bundled_model(), "ours")
        self.scores = np.random.default_rng(chance.randrange(2**32))
        self.counts, self.errors = Counter[str](), list[str]()

    @contextlib.contextmanager
    def catching(self, what: str = "") -> Iterator[None]:
        """Adds an exception of the block to the errors."""
        try:
            yield
        except Exception as error:
            place = f"mutation {self.counts['mutations']}{what}"
            self.errors.append(f"{place}: {type(error).__name__}: {error!s:.300}")

    def item(self, source: Source, item: Example | DeadLetter) -> None:
        """Makes windows, predictions and output of a record and counts it."""
        for training in (None, Sampling(NEGATIVES, SEED)):
            if isinstance(item, Example):
                made = make_windows(source, item, self.tokenizer, WINDOWS, training)
                if isinstance(made, DeadLetter):
                    item = made
                else:
                    stored_example(source, item, made, WINDOWS)
        if isinstance(item, DeadLetter):
            if not item.reason.strip() or "\n" in item.reason:
                raise ValueError(f"the reason {item.reason!r} is not one line")
            encode_dead_letter(item)
            self.counts["skipped"] += 1
            return
        for rule in DECISION_RULES:
            config = DecisionConfig(rule=rule)
            ranked = decide(item, self.window_scores(item, RULES[rule].k), config)
            encode_prediction(ranked.prediction, item.token_bytes, item)
            for output in outputs.FORMATS.values():
                output.encode(item, ranked.prediction, ranked.alternatives(output.alternatives))
        self.counts["good"] += 1

    def window_scores(self, example: Example, k: int) -> WindowScores:
        """Returns random scores of two windows whose positions are words of the page."""
        words = np.flatnonzero(~np.array(example.is_html))
        shape = 2, k
        doc = self.scores.choice(words, shape) if len(words) else np.full(shape, -1)
        pos = self.scores.integers(1, WINDOWS.max_seq_length, shape)
        logits = [np.sort(self.scores.normal(size=shape))[:, ::-1] for _ in range(2)]
        length = self.scores.integers(0, 5, shape)
        end = np.minimum(doc + length, max(words, default=-1))
        return WindowScores(
            doc, pos, logits[0], end, pos + length, logits[1],
            self.scores.normal(size=(2, 2)), self.scores.normal(size=(2, 5)),
        )  # fmt: skip

    def file(self, data: bytes, n_records: int | None = None) -> None:
        """Reads a file of ``n_records`` records, each of which must have an outcome.

        Without a number the file may be refused as a whole.
        """
        self.path.write_bytes(data)
        try:
            inputs.check(str(self.path))
            n_records = n_records or inputs.count_records(str(self.path))
        except (ValueError, OSError) as error:
            if n_records is not None:
                raise
            check_one_line(error)
            self.counts["refused"] += 1
            return
        self.counts["records"] += n_records
        for source, item in inputs.read_records(str(self.path)):
            with self.catching(f", line {source.line}"):
                self.item(source, item)

    def page(self, data: bytes) -> None:
        """Reads a page of text or HTML."""
        try:
            page = documents.decode_page(data, "page")
        except ValueError as error:
            check_one_line(error)
            self.counts["refused"] += 1
            return
        self.counts["records"] += 1
        self.item(Source(0, "page", 1), page.with_question("who ?"))

    def run(self, dialect: str, count: int, chance: random.Random) -> None:
        """Makes and reads at least ``count`` mutations of a dialect."""
        while self.counts["mutations"] < count:
            self.counts["mutations"] += FILE_RECORDS if dialect in LINES else 1
            with self.catching():
                if dialect in LINES:
                    self.file(*lines_file(LINES[dialect], chance))
                elif dialect in FILES:
                    self.file(FILES[dialect](chance))
                else:
                    self.page(PAGES[dialect](chance))


def check_one_line(error: Exception) -> None:
    """Raises a ``TypeError`` unless an error is shown in one line."""
    if not str(error).strip() or len(terminal.explain(error).splitlines()) != 1:
        raise TypeError(f"{error!r} is not one line") from error


def lines_file(make: Callable[[random.Random], Any], chance: random.Random) -> tuple[bytes, int]:
    """Returns a file of mutated records and a good one, and how many lines are not blank.

    A record has changed values, its line changed bytes, or both.
    """
    lines = []
    for _ in range(FILE_RECORDS):
        record, kind = make(chance), chance.randrange(4)  # values, values, bytes, both
        for _ in range(chance.choice((1, 1, 1, 3)) if kind != 2 else 0):
            if record:
                change_value(record, chance)
        line = to_line(record, chance)
        lines.append(change_bytes(line, chance) if kind >= 2 else line)
    lines.append(to_line(make(random.Random(0)), random.Random(0)))
    data = b"\n".join(lines)
    return data, sum(bool(x.strip()) for x in data.removeprefix(b"\xef\xbb\xbf").split(b"\n"))


def parquet_file(chance: random.Random) -> bytes:
    """Returns a parquet file with mutated values, and mutated bytes or not."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    while True:
        rows = [dialects.hugging_face(chance) for _ in range(3)]
        schema = pa.Table.from_pylist(rows * 2).schema
        for row in rows[1:]:
            change_value(row, chance)
        try:
            table = pa.Table.from_pylist(rows, schema=schema)
        except (pa.ArrowException, OverflowError, TypeError, UnicodeError):
            continue  # a value that a column of this type cannot hold
        file = io.BytesIO()
        pq.write_table(table, file, row_group_size=2)
        data = file.getvalue()
        return change_bytes(data, chance) if chance.random() < 0.5 else data


def changed(make: Callable[[random.Random], bytes]) -> Callable[[random.Random], bytes]:
    """Returns a function that makes a file and changes some of its bytes."""
    return lambda chance: change_bytes(make(chance), chance)


FILES = {
    "parquet": parquet_file,
    "SQuAD": changed(dialects.squad_file),
    "MRQA": changed(dialects.mrqa_file),
    "CSV": changed(dialects.csv_file),
}
PAGES = {"text": changed(dialects.text_page), "html": changed(dialects.html_page)}
DIALECTS = (*LINES, *FILES, *PAGES)


def rows(args: argparse.Namespace, folder: Path, rng: random.Random) -> Iterator[Row]:
    """Checks ``args.mutations`` mutations of each dialect."""
    for dialect in chosen(args, DIALECTS):
        started, checker = time.monotonic(), Checker(folder, rng)
        checker.run(dialect, args.mutations, rng)
        n, errors = checker.counts, checker.errors
        is_right = not errors and n["good"] + n["skipped"] == n["records"]
        text = (
            f"{n['mutations']} mutations, {n['refused']} refused as a whole, {n['records']} "
            f"records: {n['good']} good, {n['skipped']} skipped {errors[:20] or ''}"
        )
        yield Row("mutation", dialect, is_right, text, time.monotonic() - started)
