"""A job from flat settings, as tests that vary one of them need it, and what a run predicts."""

import json
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from nq.model.spec import find_model
from nq.runs.config import Compute
from nq.runs.job import Job
from nq.runs.result import PREDICTIONS


def predictions(folder: Path) -> list[Any]:
    """Returns the predictions of a run, as they are written."""
    return list(json.loads((folder / PREDICTIONS).read_bytes())["predictions"])


def flat_job(files: Iterable[str | Path], model: Path, profile: str, **settings: Any) -> Job:
    """Returns a job; settings of the model and of ``Compute`` are given beside those of a job."""

    def part(*names: str) -> dict[str, Any]:
        return {name: settings.pop(name) for name in names if name in settings}

    spec = find_model(model, **part("windows", "decision", "second_model", "read_blocks"))
    compute = Compute(**part(*(f.name for f in fields(Compute))))
    return Job(files, spec, profile, compute=compute, **settings)
