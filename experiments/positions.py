"""Measures where on a page the answers are, for the weights of ``nq.postprocess.fit``.

    python -m experiments.positions FEATURES --vocab VOCAB

The input are training features in BERT-Joint's format, whose markers ``[ContextId=i] [Type=n]``
tell which block contains an answer. The command counts the questions that are answered in the n-th
block of each type, and fits the weights by maximum likelihood:

    P(type, n) ~ exp(weight of the type + position * log n),    n from 1 to 50.
"""

from __future__ import annotations

import argparse
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

from nq.commands import arguments, terminal
from nq.config import WindowConfig
from nq.formats.tfrecord import read_records
from nq.model.runtime import import_tensorflow
from nq.records import FloatArray

Position = tuple[str, int]
"""Type of a block and its number among those of its type, from 1."""

TYPES = ("Paragraph", "Table", "List")
MAX_NUMBER = WindowConfig().max_position
SHOWN = 5
_MARKER = re.compile(r"\[(\w+)=(\d+)\]")


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.positions",
        description="Measures where on a page the answers of BERT-Joint's training features are.",
    )
    parser.add_argument("features", nargs="+", metavar="FILE", help="TFRecords for training")
    parser.add_argument(
        "--vocab", type=Path, required=True, metavar="FILE", help="their vocabulary, by line"
    )
    arguments.add_common(parser)
    return parser


def measure(args: argparse.Namespace) -> int:
    """Runs the command."""
    pieces = args.vocab.read_text(encoding="utf-8").splitlines()
    positions = answer_positions(args.features, pieces)
    if not positions:
        raise ValueError("no answer after a marker in these features: expected training features")
    counts = Counter(positions)
    weights = dict(zip((*TYPES, "position"), fit(counts).round(2).tolist(), strict=True))
    shown = {f"{kind} {n}": counts[kind, n] for kind in TYPES for n in range(1, SHOWN + 1)}
    terminal.print_result({"questions": len(positions), **shown, **weights}, args.json)
    return 0


def answer_positions(files: Sequence[str], pieces: Sequence[str]) -> list[Position]:
    """Returns the block that contains the answer of each question.

    Args:
        files: TFRecords for training. The first window of a question that has both the answer and
            the marker of its block counts.
        pieces: the vocabulary by id.
    """
    positions: dict[tuple[int, ...], Position] = {}
    for question, ids in _answered_windows(files, pieces.index("[SEP]")):
        markers = [m for i in ids if (m := _MARKER.fullmatch(pieces[i])) and m[1] in TYPES]
        if markers:
            positions.setdefault(question, (markers[-1][1], int(markers[-1][2])))
    return list(positions.values())


def _answered_windows(
    files: Sequence[str], sep: int
) -> Iterator[tuple[tuple[int, ...], list[int]]]:
    """Yields the ids of the question and of the text up to the answer, of windows with one."""
    tf = import_tensorflow()
    for record in itertools.chain.from_iterable(read_records(Path(file)) for file in files):
        feature = tf.train.Example.FromString(record).features.feature
        ids = list(feature["input_ids"].int64_list.value)
        (start,) = feature["start_positions"].int64_list.value
        if start:
            end = ids.index(sep)
            yield tuple(ids[1:end]), ids[end + 1 : start + 1]


def fit(counts: Counter[Position]) -> FloatArray:
    """Returns the most likely weights ``[4]``: of each type (0 for a paragraph), and of log n.

    Args:
        counts: questions that are answered at each position.
    """
    positions = [(kind, n) for kind in TYPES for n in range(1, MAX_NUMBER + 1)]
    features = np.array([[*(kind == t for t in TYPES[1:]), np.log(n)] for kind, n in positions])
    observed = np.array([counts[position] for position in positions], np.float64)

    def loss(weights: FloatArray) -> tuple[float, FloatArray]:
        utility = features @ weights
        total = np.logaddexp.reduce(utility)
        expected = observed.sum() * np.exp(utility - total)
        return float(observed @ (total - utility)), features.T @ (expected - observed)

    return np.append(0.0, minimize(loss, np.zeros(3), jac=True, method="L-BFGS-B").x)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    return terminal.run(measure, parser(), argv)


if __name__ == "__main__":
    raise SystemExit(main())
