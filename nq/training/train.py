"""Trains a model folder from an encoder and annotated questions, recorded in MLflow.

TensorFlow is imported when a training starts, after all checks that do not need it.
"""

import contextlib
import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from nq import extras, storage, tracking
from nq.config import TrackingConfig
from nq.errors import DamagedError, Error
from nq.formats.input_files import shown
from nq.memo import REQUEST, Memo
from nq.mlflow_format import save_model
from nq.model.folder import CONFIG, ModelFolder
from nq.model.runtime import import_tensorflow
from nq.model.tensors import check_length
from nq.preprocess.features import Sampling
from nq.preprocess.prepared import Request
from nq.progress import new_bar
from nq.questions import Questions, mention_unnamed_pages
from nq.training.job import FINAL_STEPS, LOSS, STATE, TRAINING, TrainingJob, TrainingResult

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
    begun = time.time()
    with opened(job) as training:
        log.info("loading TensorFlow and the model, making the windows …")
        import_tensorflow()
        from nq.training.distillation import Teacher
        from nq.training.fit import Student, TrainingProgress, held_out, read_windows
        from nq.training.loop import TrainingState, fit

        # the model, its teacher and the data
        output = training.output
        request = training.request
        work = output / storage.WORK
        student = Student.of(training.init, request.tokenizer, request.windows, training.config)
        teacher = measure = distillation = model_uri = None
        if training.teacher:
            profile = training.teacher_profile
            teacher = Teacher.of(training.teacher, request.tokenizer, request.windows, profile)
        if training.held_out:
            measure = held_out(training.held_out, student)
        prepared, windows = read_windows(
            request, work / "windows", training.workers, training.config
        )

        # what is recorded of the training, and kept for a later start
        params = training.params
        content = training.description
        if teacher:
            params["teacher_profile"] = str(teacher.profile)
            content = {**content, "teacher_model": teacher.identity}
        with tracking.Run(track, f"train {output.name}", "nq.train") as run:
            digest = storage.digest_json(params | content)
            run.open(work / f"{digest[:12]}.mlflow_run", begun)
            run.params(params)
            run.tags({tracking.DESCRIPTION: f"Trains `{params['init']}` on `{params['data']}`."})
            state = TrainingState(Memo.open(output / STATE, content))
            if teacher:
                distillation = teacher.distillation(
                    training.distillation,
                    windows,
                    work / "teacher",
                )

            # the steps
            started = time.perf_counter()
            log.info(
                "training; the first step is slow, since TensorFlow prepares the network for it …"
            )
            with new_bar(unit=" steps") as bar:
                progress = TrainingProgress(bar, run)
                every = training.evaluate_every
                fit(
                    student.model,
                    windows,
                    training.config,
                    state,
                    progress,
                    distillation,
                    measure,
                    every,
                )
            progress.record(state)
            loss = float(np.mean(state.losses[LOSS][-FINAL_STEPS:]))
            run.metrics({"train/final_loss": loss, "train/windows": prepared.counts.windows})
            student.save(output, training.card_text, training.store)
            train_s = time.perf_counter() - started
            if track and track.logs_model:
                model_uri = run.log_model(partial(_save, output))
    return TrainingResult(output, prepared, state.step, loss, train_s, state.best, model_uri)


def _save(model: Path, folder: Path, logged: Any) -> None:
    """Saves a model in MLflow's format, without the state of its training."""
    save_model(folder, ModelFolder(model).copy(folder.with_name("model")), logged=logged)


@dataclass(frozen=True, kw_only=True)
class OpenedJob(TrainingJob):
    """A training whose files are found, opened and checked."""

    card_text: str
    questions: Questions
    held_out: Questions | None

    @cached_property
    def request(self) -> Request:
        sampling = Sampling(self.config.negatives, self.config.seed, self.teacher is not None)
        tokenizer = self.init.tokenizer(self.windows.compat)
        return Request(self.questions, tokenizer, self.windows, sampling)

    @cached_property
    def description(self) -> dict[str, Any]:
        """The values that a training's result depends on, as JSON values."""
        values = {
            "data": self.request.description,
            "init": self.init.file_digests,
            "store": self.store,
            **self.config.to_dict(),
        }
        if self.held_out:
            dev = replace(self.request, questions=self.held_out, training=None)
            values |= {"dev": dev.description, "evaluate_every": self.evaluate_every}
        if self.teacher:
            how = {**self.distillation.to_dict(), "profile": str(self.teacher_profile)}
            values["teacher"] = how | self.teacher.file_digests
        return values

    @property
    def params(self) -> dict[str, Any]:
        """The values that MLflow records."""
        params = {"init": self.init.name, "data": _names(self.questions), "limit": self.limit}
        if self.held_out:
            params |= {"dev": _names(self.held_out), "evaluate_every": self.evaluate_every}
        params |= self.teacher_settings
        params |= {f"train.{name}": value for name, value in self.config.to_dict().items()}
        params |= {f"windows.{name}": value for name, value in self.windows.to_dict().items()}
        return params

    def check_output(self) -> None:
        """Raises ``Error`` if the output folder has another training; changes nothing."""
        if storage.kind_of(self.output) != TRAINING.name:
            return  # which is checked later
        stored = dict[str, Any]()
        with contextlib.suppress(FileNotFoundError, DamagedError):
            stored = Memo(self.output / STATE).values(REQUEST)
        is_used = stored or (self.output / CONFIG).is_file()
        if is_used and not self.description.items() <= stored.items():
            what = "a model or a training of other options or data"
            raise Error(f"{self.output} has {what}: give another --output")


def _names(questions: Questions) -> str:
    return ", ".join(shown(Path(path).name) for path in questions.files)


@contextlib.contextmanager
def opened(job: TrainingJob) -> Iterator[OpenedJob]:
    """Opens and checks all that a training reads, and holds its folder."""
    card_text = job.new_card()
    models = [job.init, job.teacher] if job.teacher else [job.init]
    sources: list[str | Path] = [model.path for model in models]
    if job.card:
        sources.append(job.card)
    with contextlib.ExitStack() as stack:
        several = [stack.enter_context(Questions.open(job.files, job.pages, job.limit))]
        if job.dev:
            several.append(stack.enter_context(Questions.open(job.dev, job.pages)))
        held_out = several[1] if job.dev else None
        training = OpenedJob(
            **vars(job),
            card_text=card_text,
            questions=several[0],
            held_out=held_out,
        )
        training.check_output()
        for questions in several:
            sources += questions.paths
        stack.enter_context(storage.hold(job.output, TRAINING, sources))
        mention_unnamed_pages(*several)
        for model in models:
            model.check()
            check_length(model.config, job.windows.max_seq_length)
        yield training
