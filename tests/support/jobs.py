"""A job from flat settings, its parts as tests need them, and what a run predicts."""

import contextlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from nq import storage
from nq.evaluation.answer_files import PREDICTIONS
from nq.formats.input_files import LOCAL, Files
from nq.inference.scorer import no_progress
from nq.lab.choose import with_profile
from nq.model.model import Model
from nq.preprocess.prepared import Request
from nq.questions import Questions
from nq.runs.config import Compute
from nq.runs.folder import RUN, RunFolder
from nq.runs.job import Job
from nq.runs.measure import Clock
from nq.runs.run import run
from nq.runs.scoring import LocalExecutor, RunProgress, Scoring


def predictions(folder: Path) -> list[Any]:
    """Returns the predictions of a run, as they are written."""
    return list(json.loads((folder / PREDICTIONS).read_bytes())["predictions"])


def flat_job(files: Iterable[str | Path], model: Path, profile: str, **settings: Any) -> Job:
    """Returns a job; settings of the model and of ``Compute`` are given beside those of a job."""

    def part(*names: str) -> dict[str, Any]:
        return {name: settings.pop(name) for name in names if name in settings}

    spec = Model.open(model, **part("windows", "decision", "ranker", "read_blocks"))
    compute = Compute(**part(*(f.name for f in fields(Compute))))
    return Job(files, spec, profile, compute=compute, **settings)


def request_of(job: Job) -> Request:
    return job.request(Questions(job.files, job.pages, job.limit))


def chosen(job: Job, files: Files = LOCAL) -> tuple[str, str]:
    """Returns the profile that is chosen for a job under ``auto``, and why."""
    job, why = with_profile(job, Questions(job.files, job.pages, job.limit, files))
    return str(job.profile), why


def answer_here(job: Job) -> dict[str, Any]:
    """Runs a job of a comparison in this process; returns its result, as of a quiet machine."""
    result = run(job).to_dict()
    return {**result, "wall_s": result["time"]["total_s"], "speed_comparable": "yes"}


@contextlib.contextmanager
def scoring(job: Job, progress: RunProgress = no_progress) -> Iterator[Scoring]:
    """Opens the scores of a job in its folder."""
    request = request_of(job)
    folder = RunFolder(job.folder(request), {})
    with (
        storage.hold(folder.path, RUN, job.sources),
        LocalExecutor().open_answers(job, request, folder, Clock(), progress) as opened,
    ):
        yield opened
