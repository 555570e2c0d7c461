"""``python -m experiments.places FEATURES --vocab VOCAB``: where on a page the answers stand.

From training features in BERT-Joint's format, whose markers ``[ContextId=i] [Type=n]`` tell which
block holds an answer: how many questions are answered in the n-th block of each type, and the
weights of ``nq.postprocess.position_prior`` that fit them best,

    P(type, n) ~ exp(weight of the type + place * log n),    n from 1 to 50.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

from nq.commands import terminal
from nq.config import WindowConfig
from nq.model.runtime import import_tensorflow
from nq.records import FloatArray

Place = tuple[str, int]
"""Type of a block and its number among those of its type, from 1."""

TYPES = ("Paragraph", "Table", "List")
LAST = WindowConfig().max_position
SHOWN = 5
_MARKER = re.compile(r"\[(\w+)=(\d+)\]")


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.places",
        description="Where on a page the answers of BERT-Joint's training features stand.",
    )
    parser.add_argument("features", nargs="+", metavar="FILE", help="TFRecords for training")
    parser.add_argument("--vocab", type=Path, required=True, metavar="FILE", help="their pieces")
    terminal.add_common(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return terminal.run(measure, parser(), argv)


def measure(args: argparse.Namespace) -> int:
    """Runs the command."""
    pieces = args.vocab.read_text(encoding="utf-8").splitlines()
    found = places(args.features, pieces)
    if not found:
        raise ValueError("no answer behind a marker in these features: are they for training?")
    counts = Counter(found)
    weights = dict(zip((*TYPES, "place"), fit(counts).round(2).tolist(), strict=True))
    shown = {f"{kind} {n}": counts[kind, n] for kind in TYPES for n in range(1, SHOWN + 1)}
    terminal.print_result({"questions": len(found), **shown, **weights}, args.json)
    return 0


def places(files: Sequence[str], pieces: Sequence[str]) -> list[Place]:
    """The block that holds the answer of each question, by the first window that tells."""
    seen: dict[tuple[int, ...], Place] = {}
    for question, ids in _answered(files, pieces.index("[SEP]")):
        markers = [m for i in ids if (m := _MARKER.fullmatch(pieces[i])) and m[1] in TYPES]
        if markers:
            seen.setdefault(question, (markers[-1][1], int(markers[-1][2])))
    return list(seen.values())


def _answered(files: Sequence[str], sep: int) -> Iterator[tuple[tuple[int, ...], list[int]]]:
    """Question of each window with an answer, and what stands in front of that."""
    import_tensorflow()
    import tensorflow as tf

    for record in tf.data.TFRecordDataset(files).as_numpy_iterator():
        feature = tf.train.Example.FromString(record).features.feature
        ids = list(feature["input_ids"].int64_list.value)
        (start,) = feature["start_positions"].int64_list.value
        if start:
            end = ids.index(sep)
            yield tuple(ids[1:end]), ids[end + 1 : start + 1]


def fit(counts: Counter[Place]) -> FloatArray:
    """``[4]`` weight of each type, that of a paragraph 0, and of log n; the most likely ones."""
    every = [(kind, n) for kind in TYPES for n in range(1, LAST + 1)]
    features = np.array([[*(kind == t for t in TYPES[1:]), np.log(n)] for kind, n in every])
    seen = np.array([counts[one] for one in every], np.float64)

    def loss(w: FloatArray) -> tuple[float, FloatArray]:
        utility = features @ w
        total = np.logaddexp.reduce(utility)
        likely = np.exp(utility - total)
        return float(seen @ (total - utility)), features.T @ (seen.sum() * likely - seen)

    return np.append(0.0, minimize(loss, np.zeros(3), jac=True, method="L-BFGS-B").x)


if __name__ == "__main__":
    sys.exit(main())
