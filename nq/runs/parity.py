"""Compares the answers and logits of two runs of the same questions.

The drift of a window is the largest difference of nine of its logits: the best start, the best end,
start and end of [CLS], and the five answer types. Only windows that both runs computed count, since
pruning leaves some out, and the second model reads what ranks best. Runs that kept no scores, or
whose windows are not the same, such as those of models with other tokenizers, have no drift.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from nq import storage
from nq.errors import Error
from nq.evaluation import labels
from nq.evaluation.gate import Parity, question_counts, relative_loss
from nq.evaluation.nq_eval import Gold
from nq.formats import input_files
from nq.formats.input_files import shown
from nq.records import SECOND_WINDOW, ExampleKey, FloatArray, IntArray
from nq.runs.finished import FinishedRun
from nq.runs.job import Job
from nq.runs.result import JOB, KEPT_SCORES, METRICS, PREDICTIONS, write_metrics
from nq.runs.score_store import ScoreStore

F1 = ("micro_f1", "long-answer-f1", "short-answer-f1")


def check_other(job: Job, digests: Mapping[str, str] | None = None) -> None:
    """Checks, before a job is computed, that its run can be compared with the run in a folder."""
    if job.against is None:
        return
    other = FinishedRun(job.against, check=False)
    folder = other.folder
    if job.output is not None and job.output.resolve() == folder.resolve():
        raise Error(f"{folder} is the run to compare with: give another --output")
    mine = [(digests or {}).get(path) or input_files.sha256(path) for path in job.files]
    if mine != list(other.digests):
        files = ", ".join(map(shown, job.files))
        raise Error(f"{folder} answered other data than {files}: give both the same data")
    limits = [run.limit or math.inf for run in (job, other.job)]
    if limits[0] != limits[1] and min(limits) <= len(other.predictions):
        answered = f"{folder} answered {len(other.predictions)} questions under another --limit"
        raise Error(f"{answered}: give both runs the same limit")
    if job.max_loss is not None and F1[0] not in other.metrics["metrics"]:
        raise Error(f"{folder} has no micro-F1, since its data have no annotations")


def write_parity(folder: Path, parity: Parity, sources: Iterable[str | Path]) -> None:
    """Adds a comparison to the ``metrics.json`` of a finished run, which read ``sources``.

    The digest of that file leaves ``job.json`` before and returns after it, so that the run is
    whole at every moment.
    """
    with storage.hold(folder, storage.RUN, sources):
        description = storage.read_json(folder / JOB)
        digests = description["files"]
        others = {name: digest for name, digest in digests.items() if name != METRICS}
        storage.write_json(folder / JOB, {**description, "files": others})
        values = orjson.loads((folder / METRICS).read_bytes())
        write_metrics(folder, {**values, "parity": parity.to_dict()})
        digests = {**digests, METRICS: input_files.sha256(folder / METRICS)}
        storage.write_json(folder / JOB, {**description, "files": digests})


def compare_runs(
    run: Path, other: Path, gold: Gold | None = None, max_loss: float | None = None
) -> Parity:
    """Compares the folders of two finished runs; ``gold`` and ``max_loss`` are those of a gate."""
    mine, theirs = (labels.read_predictions(folder / PREDICTIONS) for folder in (run, other))
    if mine.keys() != theirs.keys():
        raise ValueError(f"{run} and {other} did not answer the same questions")
    drift = np.concatenate([np.empty(0), *_drifts(run, other)])
    metrics, other_metrics = (orjson.loads((f / METRICS).read_bytes()) for f in (run, other))
    ours, others = metrics["metrics"], other_metrics["metrics"]
    gate = None
    if max_loss is not None:
        counts = (question_counts(gold or {}, predictions) for predictions in (mine, theirs))
        gate = relative_loss(*counts, max_loss=max_loss)
    return Parity(
        f"{other_metrics['profile']} in {shown(str(other))}",
        len(mine),
        sum(not labels.same_answers(mine[key], theirs[key]) for key in mine),
        float(drift.max()) if len(drift) else None,
        float(drift.mean()) if len(drift) else None,
        {n: ours[n] - others[n] for n in F1 if n in ours and n in others},
        gate,
    )


def _drifts(run: Path, other: Path) -> Iterator[FloatArray]:
    """Yields the absolute differences of the nine logits of each window, if comparable."""
    scores = run / KEPT_SCORES, other / KEPT_SCORES
    if not all(folder.is_dir() for folder in scores) or _windows(run) != _windows(other):
        return
    ours, others = map(ScoreStore, scores)
    for key in ours:
        (windows, logits), (other_windows, other_logits) = _logits(ours, key), _logits(others, key)
        _, rows, other_rows = np.intersect1d(windows, other_windows, return_indices=True)
        yield np.abs(logits[rows] - other_logits[other_rows]).ravel()


def _windows(run: Path) -> list[Any]:
    """Returns the values that identify the windows and positions that a run's models scored."""
    description = storage.read_json(run / JOB)
    job, request = description["job"], description["request"]
    second = [job.get(name) for name in ("second_model", "second_windows")]
    return [request["tokenizer"], request["windows"], job["decision"]["rule"], *second]


def _logits(store: ScoreStore, key: ExampleKey) -> tuple[IntArray, FloatArray]:
    """Returns the computed windows of an example, and the nine logits of each, ``[W, 9]``.

    Windows of a second model have negative numbers.
    """
    columns, computed = store.columns(key), store.computed(key)
    number = columns["window_ids"][:, 0].astype(np.int64)
    second = columns.get(SECOND_WINDOW, np.full(len(number), -1))
    best = [columns["start_logit"][:, :1], columns["end_logit"][:, :1]]
    logits = np.concatenate([columns["cls_logit"], columns["type_logits"], *best], axis=1)
    return np.where(second < 0, number, -1 - second)[computed], logits[computed]
