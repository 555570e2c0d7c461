"""Trains a model folder from an encoder and annotated questions, recorded in MLflow."""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nq import tracking
from nq.beam.windows import by_workers
from nq.config import DecisionConfig, TrackingConfig, WindowConfig
from nq.errors import DamagedError
from nq.evaluation.evaluate import Evaluation, judge
from nq.formats.input_files import shown
from nq.inference.batches import Shape
from nq.inference.engine import Computation, Network
from nq.inference.predictor import Predictor
from nq.inference.profile import Profile
from nq.inference.reduction import TopK
from nq.inference.scorer import answers, windowed
from nq.memo import Memo
from nq.mlflow_format import save_model
from nq.model import checkpoint, joint
from nq.model.folder import ModelFolder, ModelSettings
from nq.postprocess.decision import RULES
from nq.preprocess.prepared import Windows, prepare
from nq.preprocess.shards import PREPARED
from nq.preprocess.tokenizers.base import Tokenizer
from nq.progress import REPORT_S, new_bar, set_total
from nq.questions import Questions
from nq.records import UNLABELLED, DeadLetter, Example
from nq.storage import MARK, WORK, digest_json, own_paths, remove
from nq.text import counted
from nq.training.distillation import Teacher
from nq.training.job import (
    LOSS,
    MEASURED,
    STATE,
    STEP,
    Curves,
    Figures,
    TrainingJob,
    TrainingResult,
    measured,
)
from nq.training.loop import TrainingState, fit
from nq.training.windows import TrainingWindows, read_columns, total_steps

log = logging.getLogger(__name__)

REPORT_EVERY, FINAL_STEPS = 50, 100
PRECISION = {"float32": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}
HELD_OUT_BATCH_SIZE, HELD_OUT_PROFILE = 16, Profile("grappler+buckets")


def train_on_files(
    job: TrainingJob, card: str, track: TrackingConfig | None, begun: float
) -> TrainingResult:
    """Trains a model on files that were checked, as ``nq.training.train.train`` does.

    The caller holds the output folder and has imported TensorFlow.
    """
    windows, config = job.windows, job.config
    tokenizer = job.init.tokenizer(windows.compat)
    is_reader, shape = windows.switches.running_text, job.init.joint_config
    with_markers = checkpoint.with_room_for(shape, tokenizer)
    shape = shape if is_reader else with_markers
    tensors = job.init.tensors()
    teacher, work = None, job.output / WORK
    if job.teacher:
        teacher = Teacher.of(job.teacher, tokenizer, windows, job.teacher_profile)
    prepared, data = _windows(job, work / "windows")
    counts = prepared.counts
    whole = joint.build(
        shape, dtype=PRECISION[config.precision], dropout=config.dropout, seed=config.seed
    )
    model = joint.span_reader(whole) if is_reader else whole
    report = checkpoint.fill(model, tensors, shape)
    del tensors
    log.info("%s, %s", counted(counts.examples, "example"), counted(counts.windows, "window"))
    if report.missing:
        log.info("not in the checkpoint, trained from the start: %s", ", ".join(report.missing))
    params = _params(job, teacher)
    content = job.description | ({"teacher_model": teacher.identity} if teacher else {})
    with tracking.Run(track, f"train {job.output.name}", "nq.train") as run:
        run.open(work / f"{digest_json(params | content)[:12]}.mlflow_run", begun)
        run.params(params)
        run.tags({tracking.DESCRIPTION: f"Trains `{params['init']}` on `{params['data']}`."})
        distillation = measure = None
        state = TrainingState(Memo.open(job.output / STATE, content))
        if teacher:
            distillation = teacher.distillation(job.distillation, data, work / "teacher")
        started = time.perf_counter()
        log.info("training; the first step is slow, since TensorFlow prepares the network for it …")
        with new_bar(unit=" steps") as bar:
            progress = TrainingProgress(bar, run, state)
            if job.held_out is not None:
                measure = held_out(job.held_out, tokenizer, windows, Network(shape, whole))
            losses = fit(
                *(model, data, config, state, progress, distillation),
                *(measure, job.evaluate_every, progress.evaluated),
            )
        progress.record()
        loss = float(np.mean(losses[LOSS][-FINAL_STEPS:]))
        run.metrics({"train/final_loss": loss, "train/windows": counts.windows})
        decision = DecisionConfig(windows.switches.rule)
        removed = job.init.settings.removed_parts
        saved = ModelSettings(windows, decision, removed_parts=removed)
        checkpoint.save(job.output, model, shape, tokenizer, saved, card, job.store)
        if is_reader:
            checkpoint.copy_tokenizer(job.init.path, job.output)
        train_s, model_uri = time.perf_counter() - started, None
        if track and track.logs_model:
            model_uri = run.log_model(partial(_save, job.output))
    return TrainingResult(job.output, prepared, state.step, loss, train_s, state.best, model_uri)


def _save(model: Path, folder: Path, logged: Any) -> None:
    """Saves a model in MLflow's format, without the state of its training."""
    save_model(folder, ModelFolder(model).copy(folder.with_name("model")), logged=logged)


def _params(job: TrainingJob, teacher: Teacher | None) -> dict[str, Any]:
    data, dev = (", ".join(shown(Path(path).name) for path in one) for one in (job.files, job.dev))
    params: dict[str, Any] = {"init": job.init.name, "data": data, "limit": job.limit}
    if dev:
        params |= {"dev": dev, "evaluate_every": job.evaluate_every}
    if teacher:
        params |= {**job.teacher_settings, "teacher_profile": str(teacher.profile)}
    params |= {f"train.{name}": value for name, value in job.config.to_dict().items()}
    params |= {f"windows.{name}": value for name, value in job.windows.to_dict().items()}
    return params


def _windows(job: TrainingJob, folder: Path) -> tuple[Windows, TrainingWindows]:
    """Returns the prepared windows of a training in a folder, and in memory."""
    prepared = prepare(job.request, folder, by_workers(job.workers))
    try:
        if not prepared.counts.windows:
            negatives = f"--negatives above {job.config.negatives:g} for questions without one"
            raise ValueError(f"no window to train on: expected annotated answers, or {negatives}")
        total_steps(prepared.counts.windows, job.config)
    except ValueError:
        remove([*own_paths(folder, PREPARED), folder / MARK, folder, folder.parent])
        raise
    try:
        columns = read_columns(prepared.shards, job.windows.max_seq_length)
    except DamagedError as damage:
        prepared.prepare_again(damage)
        columns = read_columns(prepared.shards, job.windows.max_seq_length)
    windows = TrainingWindows.from_columns(columns)
    unlabelled = (windows.answer_types == UNLABELLED).sum()
    if unlabelled:
        log.info("%d windows have no label: the teacher alone teaches them", unlabelled)
    return prepared, windows


def held_out(
    questions: Questions, tokenizer: Tokenizer, windows: WindowConfig, network: Network
) -> Callable[[], Figures]:
    """Returns a function that measures the present weights of a model on annotated questions.

    Where gold is no text, its texts are those of the short answers.
    """
    decision = DecisionConfig(windows.switches.rule)
    names, rule = MEASURED[decision.rule], RULES[decision.rule]

    def examples() -> Iterator[Example]:
        for example in questions.examples():
            if gold := example.annotations:
                texts = (example.short_answer(one.shorts, one.yes_no) for one in gold)
                yield replace(example, answers=example.answers or tuple(filter(None, texts)))

    bad = sum(isinstance(item, DeadLetter) for _, item in questions)
    if bad:
        log.warning("bad records of the held-out files, which are skipped: %d", bad)
    if not any(examples()):
        files = ", ".join(questions.files)
        raise ValueError(f"no annotations in {files}: give annotated questions to --dev")
    computation = Computation(network, HELD_OUT_PROFILE, TopK(rule.k, rule.text_only))
    predictor = Predictor(computation, Shape(HELD_OUT_BATCH_SIZE, windows.max_seq_length))

    def measure() -> Figures:
        evaluation = Evaluation()
        pages = (windowed(example, tokenizer, windows) for example in examples())
        for scored, ranked in answers(predictor, pages, decision):
            evaluation.add(judge(scored.example, ranked.prediction))
        metrics = evaluation.metrics()
        return {name: metrics[key] for name, key in names.items()}

    return measure


class TrainingProgress:
    """Reports the steps of a training: a bar, or log lines without a terminal, and curves."""

    def __init__(self, bar: Any, run: tracking.Run, state: TrainingState) -> None:
        self.bar, self.run, self.state = bar, run, state
        self._steps = self._evaluations = 0  # that are recorded
        self._shown_at = time.monotonic()
        self._shown_step: int | None = None  # the last one in the log

    def __call__(self, losses: Curves, total: int) -> None:
        """Reports the last of the steps, all of whose losses are given."""
        step = len(losses[LOSS])
        set_total(self.bar, total)
        self.bar.set_postfix({n: f"{x[-1]:.3f}" for n, x in losses.items()}, refresh=False)
        self.bar.update(step - self.bar.n)
        if self._shown_step is None:
            self._shown_step = step - 1
        is_round = step % REPORT_EVERY == 0 or step == total
        if is_round:
            self.record()
        is_due = time.monotonic() - self._shown_at >= REPORT_S
        if self.bar.disable and (is_round or is_due):
            self._show(losses, step, total)

    def _show(self, losses: Curves, step: int, total: int) -> None:
        """Logs the mean losses of the steps since the last such line."""
        since = self._shown_step
        recent = {name: float(np.mean(values[since:])) for name, values in losses.items()}
        shown = ", ".join(f"{name} {value:.3f}" for name, value in recent.items())
        log.info("step %d of %d, %s", step, total, shown)
        self._shown_step, self._shown_at = step, time.monotonic()

    def evaluated(self, figures: Figures, is_best: bool) -> None:
        self.record()
        shown = ", ".join(f"{name} {value:.3f}" for name, value in measured(figures).items())
        best = ", the best so far" if is_best else ""
        log.info("step %d, held-out %s%s", figures[STEP], shown, best)

    def record(self) -> None:
        """Records what the curves do not have yet, also what an interrupted training computed."""
        state = self.state
        for name, values in state.losses.items():
            self.run.metrics({f"train/{name}": values[self._steps :]}, self._steps + 1)
        for figures in state.evaluations[self._evaluations :]:
            dev = {f"dev/{name}": value for name, value in measured(figures).items()}
            self.run.metrics(dev, int(figures[STEP]))
        self._steps, self._evaluations = state.step, len(state.evaluations)
