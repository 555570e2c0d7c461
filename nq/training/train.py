"""Checks the inputs of a training, and starts it.

TensorFlow and numpy are imported when a training starts, after all checks that need neither.
"""

import contextlib
import logging
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from nq import extras, storage
from nq.config import TrackingConfig
from nq.errors import DamagedError, Error
from nq.memo import REQUEST, Memo
from nq.model.folder import CONFIG
from nq.model.runtime import import_tensorflow
from nq.model.tensors import check_length
from nq.questions import Questions, mention_unnamed_pages
from nq.training.job import STATE, TRAINING, TrainingJob, TrainingResult

log = logging.getLogger(__name__)


def train(
    job: TrainingJob | str | Path | Iterable[str | Path],
    *,
    track: TrackingConfig | None = None,
    **settings: Any,
) -> TrainingResult:
    """Trains a model on annotated questions and writes its folder, as ``nq train`` does.

    An interrupted training continues when it is started again with the same arguments.

    Args:
        job: annotated files, globs or folders, or the description of a training.
        track: where MLflow records the training; ``None`` to record nothing.
        settings: with files the folder ``output`` and the model ``init``, a folder or a name, and
            optionally options of ``nq train`` such as ``epochs=3``, ``max_seq_length=256``,
            ``teacher="my_model"`` and ``dev=["dev.jsonl.gz"]``.

    Raises:
        OSError: a file cannot be read or written, or there is no model.
        ValueError: the data or a setting cannot be used.
        Error: TensorFlow is not installed, another training uses the folder, or it holds another
            one or files of others.
        TypeError: there is no such setting, or ``init`` or ``output`` is missing.
    """
    if not isinstance(job, TrainingJob):
        job = TrainingJob.of(job, **settings)
    elif settings:
        job = replace(job, **settings)
    extras.require("cpu")
    card, begun = job.card_text(), time.time()
    sources: list[str | Path] = [job.init.path]
    if job.card:
        sources.append(job.card)
    if job.teacher:
        sources.append(job.teacher.path)
    with contextlib.ExitStack() as stack:
        questions = stack.enter_context(Questions.open(job.files, job.pages, job.limit))
        job, both = replace(job, files=questions.files, questions=questions), [questions]
        if job.dev:
            both.append(stack.enter_context(Questions.open(job.dev, job.pages)))
            job = replace(job, dev=both[1].files, held_out=both[1])
        sources += [path for one in both for path in one.paths]
        _check_output(job)
        stack.enter_context(storage.hold(job.output, TRAINING, sources))
        mention_unnamed_pages(*both)
        for model in (job.init, *([job.teacher] if job.teacher else [])):
            model.check()
            check_length(model.config, job.windows.max_seq_length)
        log.info("loading TensorFlow and the model, making the windows …")
        import_tensorflow()
        from nq.training.fit import train_on_files

        return train_on_files(job, card, track, begun)


def _check_output(job: TrainingJob) -> None:
    """Raises ``Error`` if the output folder has another training; changes nothing."""
    if storage.kind_of(job.output) != TRAINING.name:
        return  # which is checked later
    stored = dict[str, Any]()
    with contextlib.suppress(FileNotFoundError, DamagedError):
        stored = Memo(job.output / STATE).values(REQUEST)
    is_used = stored or (job.output / CONFIG).is_file()
    if is_used and any(stored.get(name) != value for name, value in job.description.items()):
        what = "a model or a training of other options or data"
        raise Error(f"{job.output} has {what}: give another --output")
