"""Parity: how the answers and logits of a run differ from those of another run.

The drift of a window is the largest difference of its logits: of [CLS], of the types, and of the
best start and end. Only windows that both runs computed count, since pruning leaves some out, and
the second model reads what ranks best. Runs that kept no scores, or whose windows are not
the same, such as those of models with other tokenizers, have no drift.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from nq import storage
from nq.evaluation import labels
from nq.evaluation.answers import PREDICTIONS
from nq.evaluation.gate import Gate, question_counts, relative_loss
from nq.evaluation.nq_eval import Gold
from nq.formats.input_files import shown
from nq.records import SECOND_WINDOW, ExampleKey, FloatArray, IntArray
from nq.runs.score_store import ScoreStore

METRICS, JOB, KEPT_SCORES = "metrics.json", "job.json", "scores"
F1 = ("micro_f1", "long-answer-f1", "short-answer-f1")


@dataclass(frozen=True)
class Parity:
    """The differences between a run and another run of the same questions.

    Args:
        against: the other run's profile; of a run that was named by its folder, the folder too.
        answers: number of predictions compared.
        changed: how many of them have another answer.
        max_drift, mean_drift: differences of logits; ``None`` if no window was computed by both.
        f1: difference of each F1, this run's minus the other's; empty without gold.
        gate: the relative loss of micro-F1 and whether it is accepted, if that was required.
    """

    against: str
    answers: int
    changed: int
    max_drift: float | None
    mean_drift: float | None
    f1: Mapping[str, float]
    gate: Gate | None = None

    @property
    def changed_share(self) -> float:
        """Share of the answers that differ; 0 if there are none."""
        return self.changed / self.answers if self.answers else 0.0

    def within(self, tolerance: float) -> bool:
        """Returns whether neither the share of changed answers nor an F1 differs by more."""
        return max(self.changed_share, *map(abs, self.f1.values()), 0.0) <= tolerance

    def to_dict(self) -> dict[str, Any]:
        """Returns what `parity.json` holds: the fields and the share of changed answers."""
        values = {**asdict(self), "changed_share": self.changed_share}
        del values["gate"]
        return {**values, "gate": self.gate.to_dict()} if self.gate else values


def compare(
    run: Path,
    other: Path,
    show_folder: bool = False,
    gold: Gold | None = None,
    max_loss: float | None = None,
) -> Parity:
    """Compares the folders of two finished runs.

    Args:
        run: the run.
        other: the run that it is compared with.
        show_folder: whether the result names the other run by its folder too.
        gold: the labels of the annotators, for a gate.
        max_loss: the relative loss of micro-F1 that the gate accepts.

    Raises:
        ValueError: they answered different questions, or no relative loss can be computed.
    """
    mine, theirs = (labels.read_predictions(folder / PREDICTIONS) for folder in (run, other))
    if mine.keys() != theirs.keys():
        raise ValueError(f"{run} and {other} did not answer the same questions")
    drift = np.concatenate([np.empty(0), *_drifts(run, other)])
    metrics, other_metrics = (orjson.loads((f / METRICS).read_bytes()) for f in (run, other))
    ours, others = metrics["metrics"], other_metrics["metrics"]
    gate = None
    if max_loss is not None:
        counts = (question_counts(gold or {}, predictions) for predictions in (mine, theirs))
        gate = Gate(relative_loss(*counts), max_loss)
    against = other_metrics["profile"] + (f" in {shown(str(other))}" if show_folder else "")
    return Parity(
        against,
        len(mine),
        sum(not labels.same_answers(mine[key], theirs[key]) for key in mine),
        float(drift.max()) if len(drift) else None,
        float(drift.mean()) if len(drift) else None,
        {n: ours[n] - others[n] for n in F1 if n in ours and n in others},
        gate,
    )


def _drifts(run: Path, other: Path) -> Iterator[FloatArray]:
    """Yields the absolute differences of the logits of each example, if they are comparable."""
    scores = run / KEPT_SCORES, other / KEPT_SCORES
    if not all(folder.is_dir() for folder in scores) or _windows(run) != _windows(other):
        return
    ours, others = map(ScoreStore, scores)
    for key in ours:
        (windows, logits), (other_windows, other_logits) = _logits(ours, key), _logits(others, key)
        _, rows, other_rows = np.intersect1d(windows, other_windows, return_indices=True)
        yield np.abs(logits[rows] - other_logits[other_rows]).ravel()


def _windows(run: Path) -> list[Any]:
    """Returns what tells which windows and positions a run scored, with its second model too."""
    description = storage.read_json(run / JOB)
    job, request = description["job"], description["request"]
    second = [job.get(name) for name in ("second_model", "second_windows")]
    return [request["tokenizer"], request["windows"], job["decision"]["rule"], *second]


def _logits(store: ScoreStore, key: ExampleKey) -> tuple[IntArray, FloatArray]:
    """Returns the computed windows of an example and the logits that every profile gives.

    Returns:
        ``[W]`` number of each window, negative for those of a second model; ``[W, 9]`` logits.
    """
    columns = store.columns(key)
    number = columns["window_ids"][:, 0].astype(np.int64)
    second = columns.get(SECOND_WINDOW, np.full(len(number), -1))
    best = [columns["start_logit"][:, :1], columns["end_logit"][:, :1]]
    logits = np.concatenate([columns["cls_logit"], columns["type_logits"], *best], axis=1)
    computed = store.computed(key)
    return np.where(second < 0, number, -1 - second)[computed], logits[computed]
