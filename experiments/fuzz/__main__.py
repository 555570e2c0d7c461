"""Mutates records of every input dialect and counts what becomes of them.

    python -m experiments.fuzz --mutations 10000 --seed 1
    python -m experiments.fuzz --dialects parquet html --mutations 100

Every line of a file, row of a table and page must become either answers, by way of windows,
features, targets, all decision rules and all output formats, or a dead letter with one line of
reason. Anything else is an error; the command prints it and exits with 1. Scores are random.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from experiments.fuzz import mutations, records
from experiments.text_tables import markdown
from nq.bundle import bundled_model
from nq.commands import arguments, terminal
from nq.config import DECISION_RULES, DecisionConfig, WindowConfig
from nq.errors import Error
from nq.formats import documents, inputs, outputs
from nq.formats.outputs import encode_prediction
from nq.postprocess.decision import RULES, decide
from nq.preprocess.local import make_windows, stored_example
from nq.preprocess.store import encode_dead_letter
from nq.preprocess.tokenizers.base import Tokenizer
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.records import DeadLetter, Example, Source, WindowScores

WINDOWS = WindowConfig(max_seq_length=64, max_query_length=16, doc_stride=24)
NEGATIVES, SEED = 0.5, 1
FILE_RECORDS = 100
MAX_ERRORS = 20
"""Errors that are printed in full."""


@dataclass
class Tally:
    """What became of the mutations of a dialect.

    Args:
        dialect: its name.
        mutations: number of mutated records, pages or files.
        records: lines, rows or pages in them, good or bad.
        good: records that became predictions.
        dead_letters: records that could not be used, with a reason.
        refused: files or pages that were refused as a whole, in one line.
        lost: records without an outcome.
        errors: exceptions that no user should see.
    """

    dialect: str
    mutations: int = 0
    records: int = 0
    good: int = 0
    dead_letters: int = 0
    refused: int = 0
    lost: int = 0
    errors: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def catching(self, what: str) -> Iterator[None]:
        """Adds an exception of the block to the errors."""
        try:
            yield
        except Exception as error:
            self.errors.append(f"{self.dialect}, {what}: {type(error).__name__}: {error!s:.300}")


class Checker:
    """Runs records through all stages.

    Args:
        folder: for files of mutated records.
        chance: makes the scores.
    """

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.folder, self.chance = folder, chance
        self.tokenizer: Tokenizer = load_tokenizer(bundled_model(), "ours")
        self.scores = np.random.default_rng(chance.randrange(2**32))

    def item(self, source: Source, item: Example | DeadLetter, tally: Tally) -> None:
        """Makes windows, predictions and output of a record and counts it."""
        for training in (None, (NEGATIVES, SEED)):
            if isinstance(item, DeadLetter):
                break
            made = make_windows(source, item, self.tokenizer, WINDOWS, training)
            if isinstance(made, DeadLetter):
                item = made
                break
            stored_example(source, item, made, WINDOWS)
        if isinstance(item, DeadLetter):
            if not item.reason.strip() or "\n" in item.reason:
                raise ValueError(f"the reason {item.reason!r} is not one line")
            encode_dead_letter(item)
            tally.dead_letters += 1
            return
        for rule in DECISION_RULES:
            config = DecisionConfig(rule=rule)
            ranked = decide(item, self.window_scores(item, RULES[rule].k), config)
            encode_prediction(ranked.prediction, item.token_bytes, item.original)
            for output in outputs.FORMATS.values():
                output.encode(item, ranked.prediction, ranked.alternatives(output.alternatives))
        tally.good += 1

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

    def file(self, path: Path, n_records: int, tally: Tally) -> None:
        """Reads a file of records; each must have an outcome."""
        before, n_errors = tally.good + tally.dead_letters, len(tally.errors)
        with tally.catching(f"file of mutation {tally.mutations}"):
            for source, item in inputs.read_records(str(path)):
                with tally.catching(f"mutation {tally.mutations}, line {source.line}"):
                    self.item(source, item, tally)
        outcomes = tally.good + tally.dead_letters - before + len(tally.errors) - n_errors
        tally.lost += abs(n_records - outcomes)
        tally.records += n_records

    def lines(self, make: Callable[[random.Random], Any], count: int, tally: Tally) -> None:
        """Checks files of lines, each a mutated record."""
        path = self.folder / "lines.jsonl"
        while tally.mutations < count:
            n = min(FILE_RECORDS, count - tally.mutations)
            lines = [mutated_line(make(self.chance), self.chance) for _ in range(n)]
            data = b"\n".join([*lines, mutations.to_line(make(random.Random(0)), random.Random(0))])
            path.write_bytes(data)
            tally.mutations += n
            with tally.catching("a file with a good record is refused"):
                inputs.check_files([str(path)])
            rows = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
            self.file(path, sum(bool(row.strip()) for row in rows), tally)

    def parquet(self, count: int, tally: Tally) -> None:
        """Checks parquet files with mutated values or mutated bytes."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = self.folder / "rows.parquet"
        while tally.mutations < count:
            rows = [records.hugging_face(self.chance) for _ in range(3)]
            schema = pa.Table.from_pylist(rows * 2).schema
            for row in rows[1:]:
                mutations.change_value(row, self.chance)
            try:
                table = pa.Table.from_pylist(rows, schema=schema)
            except (pa.ArrowException, OverflowError, TypeError, UnicodeError):
                continue  # a value that a column of this type cannot hold
            tally.mutations += 1
            pq.write_table(table, path, row_group_size=2)
            if self.chance.random() < 0.5:
                path.write_bytes(mutations.change_bytes(path.read_bytes(), self.chance))
            self.whole_file(path, tally)

    def whole_file(self, path: Path, tally: Tally) -> None:
        """Checks one file, which may be refused as a whole."""
        with tally.catching(f"mutation {tally.mutations}"):
            try:
                inputs.check_files([str(path)])
                n_records = inputs.count_records(str(path))
            except (ValueError, OSError) as error:
                _check_one_line(error)
                tally.refused += 1
                return
            self.file(path, n_records, tally)

    def files(self, make: Callable[[random.Random], bytes], count: int, tally: Tally) -> None:
        """Checks files of several records with mutated bytes."""
        path = self.folder / "records"
        for _ in range(count):
            path.write_bytes(mutations.change_bytes(make(self.chance), self.chance))
            tally.mutations += 1
            self.whole_file(path, tally)

    def pages(self, make: Callable[[random.Random], bytes], count: int, tally: Tally) -> None:
        """Checks pages of text or HTML."""
        for _ in range(count):
            data = mutations.change_bytes(make(self.chance), self.chance)
            tally.mutations += 1
            tally.records += 1
            with tally.catching(f"mutation {tally.mutations}"):
                try:
                    page = documents.decode_page(data, "page")
                except ValueError as error:
                    _check_one_line(error)
                    tally.refused += 1
                    continue
                self.item(Source(0, "page", 1), page.with_question("who ?"), tally)


def _check_one_line(error: Exception) -> None:
    if not str(error).strip() or len(terminal.explain(error).splitlines()) != 1:
        raise TypeError(f"{error!r} is not one line") from error


def mutated_line(record: Any, chance: random.Random) -> bytes:
    """Returns a record as a line with changed values, changed bytes, or both."""
    kind = chance.randrange(4)  # values, values, bytes, both
    for _ in range(chance.choice((1, 1, 1, 3)) if kind != 2 else 0):
        if record:
            mutations.change_value(record, chance)
    line = mutations.to_line(record, chance)
    return mutations.change_bytes(line, chance) if kind >= 2 else line


LINES: dict[str, Callable[[random.Random], Any]] = {
    "simplified train": records.simplified,
    "simplified dev": lambda chance: records.simplified(chance, 5),
    "Kaggle test": records.kaggle_test,
    "NQ v1.0": records.v1,
    "TyDi QA": records.tydi,
    "Hugging Face jsonl": records.hugging_face,
    "question and context": records.passage,
}
FILES = {"SQuAD": records.squad_file, "MRQA": records.mrqa_file, "CSV": records.csv_file}
PAGES = {"text": records.text_page, "html": records.html_page}
PARQUET = "parquet"
DIALECTS = (*LINES, PARQUET, *FILES, *PAGES)


def check_dialect(dialect: str, count: int, seed: int) -> Tally:
    """Returns what becomes of so many mutations of a dialect."""
    chance, tally = random.Random(f"{seed}/{dialect}"), Tally(dialect)
    with tempfile.TemporaryDirectory() as folder:
        checker = Checker(Path(folder), chance)
        if dialect in LINES:
            checker.lines(LINES[dialect], count, tally)
        elif dialect in FILES:
            checker.files(FILES[dialect], count, tally)
        elif dialect in PAGES:
            checker.pages(PAGES[dialect], count, tally)
        else:
            checker.parquet(count, tally)
    return tally


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.fuzz",
        description="Mutates records of every input dialect; each must become a prediction or a "
        "dead letter.",
    )
    parser.add_argument("--mutations", type=arguments.positive, default=1000, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--dialects", nargs="+", choices=DIALECTS, default=DIALECTS)
    arguments.add_common(parser)
    return parser


def fuzz(args: argparse.Namespace) -> int:
    """Runs the command."""
    tallies = []
    with terminal.ProgressBar("fuzz", "dialects") as bar:
        for dialect in args.dialects:
            tallies.append(check_dialect(dialect, args.mutations, args.seed))
            bar(1, len(args.dialects))
    if args.json:
        terminal.print_json({"seed": args.seed, "dialects": [asdict(tally) for tally in tallies]})
    else:
        print(table(tallies), end="")
    errors = [error for tally in tallies for error in tally.errors]
    for error in errors[:MAX_ERRORS]:
        print(error, file=sys.stderr)
    lost = sum(tally.lost for tally in tallies)
    if errors or lost:
        raise Error(f"{len(errors)} errors, {lost} records without an outcome")
    return 0


def table(tallies: Sequence[Tally]) -> str:
    """Returns the counts as a Markdown table."""
    head = ("dialect", "mutations", "records", "good", "dead letters", "refused", "lost", "errors")
    return markdown(
        head,
        *(
            [
                *(t.dialect, f"{t.mutations}", f"{t.records}", f"{t.good}", f"{t.dead_letters}"),
                *(f"{t.refused}", f"{t.lost}", f"{len(t.errors)}"),
            ]
            for t in tallies
        ),
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    return terminal.run(fuzz, parser(), argv)


if __name__ == "__main__":
    raise SystemExit(main())
