"""Checks the inputs of a training, and starts it.

TensorFlow and numpy are imported when a training starts, after all checks that need neither.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from pathlib import Path

from nq import storage
from nq.config import TrackingConfig
from nq.formats import input_files, inputs
from nq.model.folder import check
from nq.model.runtime import import_tensorflow
from nq.training.job import TrainingJob, TrainingResult


def train(job: TrainingJob, *, track: TrackingConfig | None = None) -> TrainingResult:
    """Trains a model and writes its folder; MLflow records it at ``track``, if that is given."""
    card, begun = job.card_text(), time.time()
    others: list[str | Path] = [job.init, *filter(None, (job.card, job.teacher))]
    others += job.pages.files if job.pages else ()
    with (
        input_files.input_files(job.files) as files,
        input_files.input_files(job.dev) if job.dev else contextlib.nullcontext(()) as dev,
        storage.hold(job.output, storage.TRAINING, (*files, *dev, *others)),
    ):
        inputs.check(files, job.limit, job.pages, dev)
        check(job.init, job.windows)
        if job.teacher:
            check(job.teacher)
        import_tensorflow()
        from nq.training.fit import train_on_files

        job = replace(job, files=tuple(files), dev=tuple(dev))
        return train_on_files(job, card, track, begun)
