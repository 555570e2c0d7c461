"""Trains a model folder from an encoder and annotated questions, recorded in MLflow.

TensorFlow and numpy are imported when a training starts, so that a job is cheap to describe.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nq import storage, tracking
from nq.config import (
    DistillationConfig,
    StorageConfig,
    TrackingConfig,
    TrainConfig,
    WindowConfig,
)
from nq.inference.profile import Profile
from nq.model.folder import copy_model, load_joint_config
from nq.model.runtime import import_tensorflow
from nq.training.curves import LOSS, MEASURED, STEP, Curves, Figures

if TYPE_CHECKING:
    from nq.formats.questions import PageFolder
    from nq.inference.network import Network
    from nq.preprocess.store import Prepared
    from nq.preprocess.tokenizers.base import Tokenizer
    from nq.training.held_out import Evaluations
    from nq.training.teacher import Teacher

log = logging.getLogger(__name__)

REPORT_EVERY, FINAL_STEPS, EVALUATE_EVERY = 50, 100, 200
PRECISION = {"float32": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}


@dataclass(frozen=True)
class TrainingJob:
    """The description of a training.

    Args:
        files: input files, globs or folders.
        init: model folder of any kind with the initial weights.
        output: model folder to write; an interrupted training is resumed from there.
        windows: how pages become windows.
        config: settings of the training.
        limit: number of records to read at most.
        workers: processes for preprocessing; by default as many as the input is worth.
        card: file with the text of the model card, by default a list of the settings.
        storage: how the weights of the new model are stored.
        teacher: model folder whose probabilities are trained on too.
        distillation: how, if there is a teacher.
        teacher_profile: optimizations of the teacher; by default the fastest without rounding.
        dev: annotated files, globs or folders, which the model is measured on during the training;
            the weights of the best evaluation are kept.
        evaluate_every: steps between two evaluations.
        pages: the pages that questions name.
    """

    files: tuple[str, ...]
    init: Path
    output: Path
    windows: WindowConfig = field(default_factory=WindowConfig)
    config: TrainConfig = field(default_factory=TrainConfig)
    limit: int | None = None
    workers: int | None = None
    card: Path | None = None
    storage: StorageConfig = field(default_factory=StorageConfig)
    teacher: Path | None = None
    distillation: DistillationConfig = field(default_factory=DistillationConfig)
    teacher_profile: Profile | None = None
    dev: tuple[str, ...] = ()
    evaluate_every: int = EVALUATE_EVERY
    pages: PageFolder | None = None

    @property
    def teacher_settings(self) -> dict[str, Any]:
        """Name, weight and temperature of the teacher; empty if there is none."""
        if self.teacher is None:
            return {}
        return {"teacher": self.teacher.name, **self.distillation.to_dict()}

    def card_text(self) -> str:
        """Returns the text of the model card."""
        if self.card:
            return self.card.read_text(encoding="utf-8")
        values = {**self.config.to_dict(), **self.teacher_settings}
        settings = "\n".join(f"- {name}: {value}" for name, value in values.items())
        return (
            f"# {self.output.name}\n\nTrained by `nq train` from `{self.init.name}` on "
            f"{', '.join(Path(file).name for file in self.files)}.\n\n{settings}\n"
        )


@dataclass(frozen=True)
class TrainingResult:
    """The outcome of a training.

    ``steps`` includes those before an interruption, ``loss`` is the mean of the last
    ``FINAL_STEPS`` steps, ``train_s`` the seconds of training and saving, and ``unread_blocks`` the
    blocks beyond ``max_contexts``, of ``truncated_pages`` pages. ``best`` has the step and the
    figures of the evaluation whose weights are kept; ``model_uri`` is MLflow's URI of the model.
    """

    output: Path
    examples: int
    windows: int
    steps: int
    dead_letters: int
    dead_letter_file: Path
    truncated_pages: int
    unread_blocks: int
    loss: float
    train_s: float
    best: dict[str, float] | None = None
    model_uri: str | None = None


def train(job: TrainingJob, *, track: TrackingConfig | None = None) -> TrainingResult:
    """Trains a model and writes its folder.

    Args:
        job: the description of the training.
        track: where MLflow records the training; ``None`` to record nothing.

    Raises:
        OSError: a file cannot be read or written.
        ValueError: the model or the data cannot be used, or they do not belong together.
        Error: TensorFlow is not installed, or the output folder is in use, or holds files of others
            or an input.
    """
    from nq.formats import input_files, inputs

    card = job.card_text()
    others: list[str | Path] = [path for path in (job.card, job.teacher) if path]
    others += job.pages.files if job.pages else ()
    with (
        input_files.input_files(job.files) as files,
        input_files.input_files(job.dev) if job.dev else contextlib.nullcontext(()) as dev,
        storage.hold(job.output, storage.TRAINING, (*files, *dev, job.init, *others)),
    ):
        inputs.check_files(files)
        inputs.check_records(files, job.limit, job.pages)
        inputs.mention_unnamed_pages((*files, *dev), job.pages)
        return _train(job, tuple(files), tuple(dev), card, track)


def _train(
    job: TrainingJob,
    files: tuple[str, ...],
    dev: tuple[str, ...],
    card: str,
    track: TrackingConfig | None,
) -> TrainingResult:
    """Trains a model; the caller holds the output folder.

    Args:
        job: the description of the training.
        files: the input files.
        dev: the held-out files.
        card: text of the model card.
        track: where MLflow records the training.
    """
    from nq.model import checkpoint
    from nq.model.folder import ModelSettings, check, load_settings, read_tensors

    begun = time.time()
    check(job.init, job.windows)
    if job.teacher:
        check(job.teacher)
    import_tensorflow()
    import numpy as np
    from tqdm import tqdm

    from nq.inference.network import Network
    from nq.model import joint
    from nq.preprocess.tokenizers.load import load_tokenizer
    from nq.training.loop import STATE_FOLDER, TrainingState, fit, identity
    from nq.training.teacher import Teacher

    windows, config = job.windows, job.config
    tokenizer = load_tokenizer(job.init, windows.compat)
    shape = checkpoint.with_room_for(load_joint_config(job.init), tokenizer)
    own = ModelSettings(windows, pruning=load_settings(job.init).pruning)
    tensors = read_tensors(job.init)
    teacher = None
    if job.teacher:
        teacher = Teacher.of(job.teacher, tokenizer, windows, job.teacher_profile)
    work = job.output / STATE_FOLDER
    prepared, data = _windows(job, files, work / "windows")
    model = joint.build(
        shape, dtype=PRECISION[config.precision], dropout=config.dropout, seed=config.seed
    )
    report = checkpoint.fill(model, tensors, shape)
    del tensors
    missing = ", ".join(report.missing) or "nothing"
    log.info(
        "%d examples, %d windows; not in the checkpoint: %s",
        prepared.examples,
        prepared.windows,
        missing,
    )
    params, settings = _params(job, files, dev, teacher), track or TrackingConfig()
    content = {**identity(model, data, config), **_other_identity(job, dev, teacher)}
    state = TrainingState(work, content)
    with tracking.start(
        uri=settings.uri,
        experiment=settings.experiment,
        name=f"train {job.output.name}",
        source="nq.train",
        enabled=track is not None,
        unfinished=_unfinished_run(work, params | state.identity),
        started=begun,
    ) as run:
        run.params(params)
        learn = job.distillation, data, work / "teacher"
        distillation = teacher.distillation(*learn) if teacher else None
        started = time.perf_counter()
        with tqdm(unit=" steps", disable=None) as bar:
            progress = TrainingProgress(bar, run)
            measured = dev, tokenizer, Network(shape, model), progress
            evaluations = _evaluations(job, *measured) if dev else None
            losses = fit(model, data, config, state, progress, distillation, evaluations)
        progress.record(losses)
        loss = float(np.mean(losses[LOSS][-FINAL_STEPS:]))
        run.metrics({"train/final_loss": loss, "train/windows": prepared.windows})
        checkpoint.save(job.output, model, shape, tokenizer, own, card, job.storage)
        train_s = time.perf_counter() - started
        model_uri = _log_model(run, job.output) if settings.log_model else None
    return TrainingResult(
        output=job.output,
        examples=prepared.examples,
        windows=prepared.windows,
        steps=len(losses[LOSS]),
        dead_letters=prepared.dead_letters,
        dead_letter_file=prepared.dead_letter_file,
        truncated_pages=prepared.truncated_pages,
        unread_blocks=prepared.unread_blocks,
        loss=loss,
        train_s=train_s,
        best=evaluations.best if evaluations else None,
        model_uri=model_uri,
    )


def _log_model(run: tracking.Run, output: Path) -> str | None:
    """Logs the model of a training; returns its URI, ``None`` if it is not recorded."""

    with tempfile.TemporaryDirectory(prefix="nq-mlflow-") as temporary:
        folder = Path(temporary) / "model"
        copy_model(output, folder)  # not the windows and the state beside it
        return run.log_model(tracking.PackagedModel({folder.name: folder}))


def _unfinished_run(folder: Path, content: Mapping[str, Any]) -> Path:
    """Returns the file that names the MLflow run of an unfinished training of this content."""
    digest = hashlib.sha256(repr(sorted(content.items())).encode()).hexdigest()
    return folder / f"{digest[:12]}.mlflow_run"


def _params(
    job: TrainingJob, files: Sequence[str], dev: Sequence[str], teacher: Teacher | None
) -> dict[str, Any]:
    """Returns the parameters of the MLflow run."""
    from nq.formats.streams import shown

    def names(paths: Sequence[str]) -> str:
        return ", ".join(shown(Path(path).name) for path in paths)

    return {
        "init": job.init.name,
        "data": names(files),
        "limit": job.limit,
        **({"dev": names(dev), "evaluate_every": job.evaluate_every} if dev else {}),
        **job.teacher_settings,
        **({"teacher_profile": teacher.profile} if teacher else {}),
        **{f"train.{name}": value for name, value in job.config.to_dict().items()},
        **{f"windows.{name}": value for name, value in job.windows.to_dict().items()},
    }


def _other_identity(
    job: TrainingJob, dev: Sequence[str], teacher: Teacher | None
) -> dict[str, Any]:
    """Returns what the result depends on besides ``identity``: teacher and held-out questions."""
    from nq.preprocess.request import Request

    identity: dict[str, Any] = {}
    if teacher:
        identity["teacher"] = {**teacher.identity, **job.distillation.to_dict()}
    if dev:
        request = Request(tuple(dev), str(job.init), job.windows, pages=job.pages)
        identity |= {"dev": request.description, "evaluate_every": job.evaluate_every}
    return identity


def _windows(job: TrainingJob, files: tuple[str, ...], folder: Path) -> tuple[Prepared, Any]:
    """Returns the prepared windows of a training, and the ``TrainingWindows`` in them.

    Raises:
        ValueError: there are none.
    """
    from nq.beam.prepare import Request, prepare, prepare_again
    from nq.errors import DamagedError
    from nq.records import UNLABELLED
    from nq.training.windows import TrainingWindows, read_columns

    sampling, length = (job.config.negatives, job.config.seed), job.windows.max_seq_length
    training = (*sampling, True) if job.teacher else sampling
    init, pages = str(job.init), job.pages
    request = Request(files, init, job.windows, job.limit, training, pages=pages)
    prepared = prepare(request, folder, job.workers)
    if not prepared.windows:
        also = ", or with a teacher a higher --negatives" if job.teacher else ""
        raise ValueError(f"no window to train on: expected records with annotations{also}")
    try:
        columns = read_columns(prepared.shards, length)
    except DamagedError as damage:
        prepared = prepare_again(request, prepared.folder, damage, job.workers)
        columns = read_columns(prepared.shards, length)
    windows = TrainingWindows.from_columns(columns)
    unlabelled = (windows.answer_types == UNLABELLED).sum()
    if unlabelled:
        log.info("%d windows have no label: the teacher alone teaches them", unlabelled)
    return prepared, windows


def _evaluations(
    job: TrainingJob,
    files: Sequence[str],
    tokenizer: Tokenizer,
    network: Network,
    progress: TrainingProgress,
) -> Evaluations:
    """Returns the evaluations of a training on held-out questions.

    Raises:
        ValueError: no question has an annotation.
    """
    from nq.training.held_out import BEST_WEIGHTS, Evaluations, HeldOutQuestions
    from nq.training.loop import STATE_FOLDER

    questions = HeldOutQuestions(files, tokenizer, job.windows, network, job.pages)
    questions.check()
    file = job.output / STATE_FOLDER / BEST_WEIGHTS
    return Evaluations(
        questions.measure, job.evaluate_every, network.model, file, progress.evaluated
    )


class TrainingProgress:
    """Reports the steps of a training: a bar, or log lines without a terminal, and a loss curve.

    Args:
        bar: a tqdm bar.
        run: the MLflow run, which may have part of the curve from before an interruption.
    """

    def __init__(self, bar: Any, run: tracking.Run) -> None:
        self.bar, self.run = bar, run
        self._recorded: dict[str, int] = {}

    def __call__(self, losses: Curves, total: int) -> None:
        """Reports the last of the steps that have these losses."""
        step = len(losses[LOSS])
        self.bar.total = total
        self.bar.set_postfix({n: f"{x[-1]:.3f}" for n, x in losses.items()}, refresh=False)
        self.bar.update(step - self.bar.n)
        if step % REPORT_EVERY == 0 or step == total:
            self.record(losses)
            if self.bar.disable:
                first = (step - 1) // REPORT_EVERY * REPORT_EVERY
                recent = {name: sum(x[first:]) / (step - first) for name, x in losses.items()}
                shown = ", ".join(f"{name} {value:.3f}" for name, value in recent.items())
                log.info("step %d of %d, %s", step, total, shown)

    def evaluated(self, figures: Figures, is_best: bool) -> None:
        """Reports an evaluation on held-out questions, and whether it is the best so far."""
        step, values = int(figures[STEP]), {f"dev/{name}": figures[name] for name in MEASURED}
        if step > self.run.last_step(next(iter(values))):
            self.run.metrics(values, step)
        shown = ", ".join(f"{name} {values[f'dev/{name}']:.3f}" for name in MEASURED)
        log.info("step %d, held-out %s%s", step, shown, ", the best so far" if is_best else "")

    def record(self, losses: Curves) -> None:
        """Adds the steps that are not in the curves yet."""
        for name, values in losses.items():
            curve = f"train/{name}"
            if name not in self._recorded:
                self._recorded[name] = self.run.last_step(curve)
            if len(values) > self._recorded[name]:
                self.run.curve(curve, values[self._recorded[name] :], self._recorded[name] + 1)
                self._recorded[name] = len(values)
