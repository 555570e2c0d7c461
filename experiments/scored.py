"""Runs whose scores a command measures: answered in a folder that goes, and decided again."""

import contextlib
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from experiments.command import in_half
from nq.config import DecisionConfig
from nq.errors import Error
from nq.evaluation.evaluate import Evaluation, JudgedPrediction, judge
from nq.postprocess.decision import decide
from nq.records import Example, Scores
from nq.runs.folder import FinishedRun
from nq.runs.job import Job
from nq.runs.run import run


@contextlib.contextmanager
def answered(job: Job) -> Iterator[FinishedRun]:
    """Runs a job in a folder that exists in the block, and yields the run."""
    with tempfile.TemporaryDirectory() as folder:
        yield FinishedRun(run(replace(job, root=Path(folder))).folder)


def judged(
    scored: Iterable[tuple[Example, Scores]], decision: DecisionConfig, half: str
) -> list[JudgedPrediction]:
    """Returns what the answers of a decision to the examples of a half are."""
    return [
        judge(example, decide(example, scores, decision).prediction)
        for example, scores in scored
        if in_half(example.example_id, half)
    ]


def metrics(judgments: Iterable[JudgedPrediction]) -> dict[str, float]:
    """Returns the official metrics; an ``Error`` without any gold."""
    evaluation = Evaluation()
    for judgment in judgments:
        evaluation.add(judgment)
    if not evaluation.gold:
        raise Error("no example of the half has annotations: give annotated data")
    return evaluation.metrics()
