"""Compares the answers and logits of two runs of the same questions.

The drift of a window is the largest difference of nine of its logits: the best start, the best end,
start and end of [CLS], and the five answer types. Only windows that both runs computed count, since
pruning leaves some out, and of two models the reader reads what ranks best. Runs that kept no
scores, or whose windows are not the same, such as those of models with other tokenizers, have no
drift.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nq.errors import Error
from nq.evaluation import labels
from nq.evaluation.gate import Counts, Parity, f1_behind, question_counts, relative_loss, standing
from nq.evaluation.nq_eval import Gold
from nq.formats.input_files import shown
from nq.questions import Questions
from nq.records import READ, READER_WINDOW, ExampleKey, FloatArray, IntArray
from nq.runs.folder import FinishedRun
from nq.runs.job import Job
from nq.runs.score_store import ScoreStore

F1 = ("micro_f1", "long-answer-f1", "short-answer-f1")


def open_other(job: Job, questions: Questions) -> FinishedRun | None:
    """Returns the run with which that of a job will be compared; checks that it can be."""
    if job.against is None:
        return None
    other = FinishedRun(job.against, check=False)
    folder = other.path
    if job.output is not None and job.output.resolve() == folder.resolve():
        raise Error(f"{folder} is the run to compare with: give another --output")
    if not other.has_read(questions):
        names = ", ".join(map(shown, job.files))
        raise Error(f"{folder} answered other data than {names}: give both the same data")
    limits = [run.limit or math.inf for run in (job, other.job)]
    if limits[0] != limits[1] and min(limits) <= len(other.predictions):
        answered = f"{folder} answered {len(other.predictions)} questions under another --limit"
        raise Error(f"{answered}: give both runs the same limit")
    if job.max_loss is not None and not other.metrics["metrics"].get(F1[0]):
        problem = f"{folder} has no micro-F1 above 0, to which a loss would be relative"
        raise Error(f"{problem}: give another run, or leave out --max-loss")
    return other


def name_of(run: FinishedRun) -> str:
    """Returns what tells a run from others: its profile, its model and its folder."""
    return f"{run.metrics['profile']} · {run.job.model.name} in {shown(str(run.path))}"


def check_same_questions(run: FinishedRun, other: FinishedRun) -> None:
    """Raises an ``Error`` if two runs did not answer the same questions."""
    if run.predictions.keys() != other.predictions.keys():
        folders = f"{run.path} and {other.path}"
        raise Error(f"{folders} answered different questions: give runs of the same data")


def compare(
    run: FinishedRun,
    other: FinishedRun,
    counts: Sequence[Sequence[Counts]],
    max_loss: float | None = None,
) -> Parity:
    """Returns how a finished run differs from another one of the same questions.

    There is a relative loss if F1 can be compared by the ``counts`` of each question with gold, of
    the run and of the other one; with ``max_loss`` it is a ``ValueError`` if there is none.
    """
    check_same_questions(run, other)
    mine, theirs = run.predictions, other.predictions
    drift = np.concatenate([np.empty(0), *_drifts(run, other)])
    ours, others = run.metrics["metrics"], other.metrics["metrics"]
    gate = None
    try:
        gate = relative_loss(*counts, max_loss=max_loss)
    except ValueError:
        if max_loss is not None:
            raise
    return Parity(
        name_of(other),
        len(mine),
        sum(not labels.same_answers(mine[key], theirs[key]) for key in mine),
        float(drift.max()) if len(drift) else None,
        float(drift.mean()) if len(drift) else None,
        {n: ours[n] - others[n] for n in F1 if n in ours and n in others},
        gate,
    )


def compare_two(
    run: FinishedRun, other: FinishedRun, gold: Gold, max_loss: float | None = None
) -> Parity:
    """Returns what ``compare`` does, and which of the two runs has the better F1, given gold."""
    both = run, other
    counts = [question_counts(gold, one.predictions) for one in both]
    difference = compare(run, other, counts, max_loss)
    if not gold:
        return difference
    f1 = [one.metrics["metrics"][F1[0]] for one in both]
    best = counts[f1.index(max(f1))]
    several = {
        name_of(one): (own_f1, *f1_behind(own, best))
        for one, own_f1, own in zip(both, f1, counts, strict=True)
    }
    return replace(difference, standing=standing(several))


def _drifts(run: FinishedRun, other: FinishedRun) -> Iterator[FloatArray]:
    """Yields the absolute differences of the nine logits of each window, if comparable."""
    ours, others = run.scores, other.scores
    if ours is None or others is None or _windows(run) != _windows(other):
        return
    for key in ours:
        (windows, logits), (other_windows, other_logits) = _logits(ours, key), _logits(others, key)
        _, rows, other_rows = np.intersect1d(windows, other_windows, return_indices=True)
        yield np.abs(logits[rows] - other_logits[other_rows]).ravel()


def _windows(run: FinishedRun) -> list[Any]:
    """Returns the values that identify the windows and positions that a run's models scored."""
    job, request = run.description["job"], run.read
    of_reader = [one["windows"] for one in job["models"][1:]]
    tokenizers = [one.get("tokenizer") for one in run.description["models"][1:]]
    return [
        request["tokenizer"],
        request["windows"],
        job["decision"]["rule"],
        of_reader,
        tokenizers,
    ]


def _logits(store: ScoreStore, key: ExampleKey) -> tuple[IntArray, FloatArray]:
    """Returns the computed windows of an example, and the nine logits of each, ``[W, 9]``.

    Windows of the reader of two models have negative numbers.
    """
    columns = store.columns(key)
    number = columns["window_ids"][:, 0].astype(np.int64)
    second = columns.get(READER_WINDOW, np.full(len(number), -1))
    best = [columns["start_logit"][:, :1], columns["end_logit"][:, :1]]
    logits = np.concatenate([columns["cls_logit"], columns["type_logits"], *best], axis=1)
    computed = columns.get(READ, np.ones(len(number), np.bool_))  # the others were pruned
    return np.where(second < 0, number, -1 - second)[computed], logits[computed]
