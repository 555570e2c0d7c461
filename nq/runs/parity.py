"""Parity: how the answers and logits of a run differ from those of another run.

The drift of a window is the largest difference of its logits: of [CLS], of the types, and of the
best start and end. Only windows that both runs computed count, since pruning leaves some out, and
the reader of a cascade reads what ranks best.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from nq.evaluation import labels
from nq.records import READER_WINDOW, ExampleKey, FloatArray, IntArray
from nq.runs.score_store import ScoreStore

PREDICTIONS, METRICS, KEPT_SCORES = "predictions.json", "metrics.json", "scores"
F1 = ("micro_f1", "long-answer-f1", "short-answer-f1")


@dataclass(frozen=True)
class Parity:
    """The differences between a run and another run of the same questions.

    Args:
        against: the other run's profile.
        answers: number of predictions compared.
        changed: how many of them have another answer.
        max_drift: largest difference of a logit; ``None`` if no window was computed by both.
        mean_drift: mean difference.
        f1: difference of each F1, this run's minus the other's; empty without gold.
    """

    against: str
    answers: int
    changed: int
    max_drift: float | None
    mean_drift: float | None
    f1: Mapping[str, float]

    @property
    def changed_share(self) -> float:
        """Share of the answers that changed."""
        return self.changed / self.answers if self.answers else 0.0

    def within(self, tolerance: float) -> bool:
        """Returns whether neither the share of changed answers nor an F1 differs by more."""
        return max(self.changed_share, *map(abs, self.f1.values()), 0.0) <= tolerance

    def to_dict(self) -> dict[str, Any]:
        """Returns all figures as JSON values."""
        return {**asdict(self), "changed_share": self.changed_share}


def compare(run: Path, other: Path) -> Parity:
    """Compares the folders of two finished runs with kept scores.

    Raises:
        ValueError: they answered different questions.
    """
    mine, theirs = (labels.read_predictions(folder / PREDICTIONS) for folder in (run, other))
    if mine.keys() != theirs.keys():
        raise ValueError(f"{run} and {other} did not answer the same questions")
    drift = np.concatenate([np.empty(0), *_drifts(run / KEPT_SCORES, other / KEPT_SCORES)])
    ours, others = (orjson.loads((folder / METRICS).read_bytes()) for folder in (run, other))
    return Parity(
        others["profile"],
        len(mine),
        sum(not same_answers(mine[key], theirs[key]) for key in mine),
        float(drift.max()) if len(drift) else None,
        float(drift.mean()) if len(drift) else None,
        {n: ours["metrics"][n] - others["metrics"][n] for n in F1 if ours["metrics"]},
    )


def same_answers(mine: labels.Label, theirs: labels.Label) -> bool:
    """Returns whether two predictions are the same answer, whatever their scores are."""
    return (mine.long, mine.yes_no) == (theirs.long, theirs.yes_no) and set(
        mine.short_spans
    ) == set(theirs.short_spans)


def _drifts(mine: Path, theirs: Path) -> Iterator[FloatArray]:
    """Yields the absolute differences of the logits of each example."""
    ours, others = ScoreStore(mine), ScoreStore(theirs)
    for key in ours:
        (windows, logits), (other_windows, other_logits) = _logits(ours, key), _logits(others, key)
        _, rows, other_rows = np.intersect1d(windows, other_windows, return_indices=True)
        yield np.abs(logits[rows] - other_logits[other_rows]).ravel()


def _logits(store: ScoreStore, key: ExampleKey) -> tuple[IntArray, FloatArray]:
    """Returns the computed windows of an example and the logits that every profile gives.

    Returns:
        ``[W]`` number of each window, negative for those of a reader; ``[W, 9]`` logits.
    """
    columns = store.columns(key)
    number = columns["window_ids"][:, 0].astype(np.int64)
    reader = columns.get(READER_WINDOW, np.full(len(number), -1))
    best = [columns["start_logit"][:, :1], columns["end_logit"][:, :1]]
    logits = np.concatenate([columns["cls_logit"], columns["type_logits"], *best], axis=1)
    computed = store.computed(key)
    return np.where(reader < 0, number, -1 - reader)[computed], logits[computed]
