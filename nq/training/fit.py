"""The parts of a training: the model, its windows, the held-out questions, and the progress."""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import keras
import numpy as np

from nq import tracking
from nq.beam.windows import by_workers
from nq.config import DecisionConfig, WindowConfig
from nq.errors import DamagedError
from nq.evaluation.evaluate import Evaluation, judge
from nq.inference.batches import Shape
from nq.inference.engine import Computation, Network
from nq.inference.predictor import Predictor
from nq.inference.profile import Profile
from nq.inference.reduction import TopK
from nq.inference.scorer import answers, windowed
from nq.model import checkpoint, joint
from nq.model.folder import ModelFolder, ModelSettings
from nq.postprocess.decision import RULES
from nq.preprocess.prepared import Request, Windows, prepare
from nq.preprocess.shards import PREPARED
from nq.preprocess.tokenizers.base import Tokenizer
from nq.progress import REPORT_S, set_total
from nq.questions import Questions
from nq.records import UNLABELLED, DeadLetter, Example
from nq.storage import MARK, own_paths, remove
from nq.text import counted
from nq.training.job import MEASURED, STEP, Figures, TrainConfig, in_words, measured
from nq.training.loop import TrainingState
from nq.training.windows import TrainingWindows, read_columns, total_steps

log = logging.getLogger(__name__)

REPORT_EVERY = 50
PRECISION = {"float32": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}
HELD_OUT_BATCH_SIZE = 16
HELD_OUT_PROFILE = Profile("grappler+buckets")


@dataclass(frozen=True, eq=False)
class Student:
    """A model that is trained.

    Args:
        init: the folder of its first weights.
        network: with all layers.
        model: without the layers that a reader of plain text does not need.
    """

    init: ModelFolder
    tokenizer: Tokenizer
    windows: WindowConfig
    network: Network
    model: keras.Model

    @classmethod
    def of(
        cls,
        init: ModelFolder,
        tokenizer: Tokenizer,
        windows: WindowConfig,
        config: TrainConfig,
    ) -> Self:
        """Builds a model with the weights of a folder; others are drawn at random."""
        is_reader = windows.switches.running_text
        shape = init.joint_config
        with_markers = checkpoint.with_room_for(shape, tokenizer)
        shape = shape if is_reader else with_markers
        whole = joint.build(
            shape,
            dtype=PRECISION[config.precision],
            dropout=config.dropout,
            seed=config.seed,
        )
        model = joint.span_reader(whole) if is_reader else whole
        report = checkpoint.fill(model, init.tensors(), shape)
        if report.missing:
            names = ", ".join(report.missing)
            log.info("not in the checkpoint, trained from the start: %s", names)
        return cls(init, tokenizer, windows, Network(shape, whole), model)

    @property
    def decision(self) -> DecisionConfig:
        return DecisionConfig(self.windows.switches.rule)

    def save(self, folder: Path, card: str, store: str) -> None:
        removed = self.init.settings.removed_parts
        settings = ModelSettings(self.windows, self.decision, removed_parts=removed)
        shape = self.network.config
        checkpoint.save(folder, self.model, shape, self.tokenizer, settings, card, store)
        if self.windows.switches.running_text:
            checkpoint.copy_tokenizer(self.init.path, folder)


def read_windows(
    request: Request,
    folder: Path,
    workers: int | None,
    config: TrainConfig,
) -> tuple[Windows, TrainingWindows]:
    """Returns the prepared windows of a training in a folder, and in memory."""
    prepared = prepare(request, folder, by_workers(workers))
    counts = prepared.counts
    length = request.windows.max_seq_length
    try:
        if not counts.windows:
            negatives = f"--negatives above {config.negatives:g} for questions without one"
            raise ValueError(f"no window to train on: expected annotated answers, or {negatives}")
        total_steps(counts.windows, config)
    except ValueError:
        remove([*own_paths(folder, PREPARED), folder / MARK, folder, folder.parent])
        raise
    try:
        columns = read_columns(prepared.shards, length)
    except DamagedError as damage:
        prepared.prepare_again(damage)
        columns = read_columns(prepared.shards, length)
    windows = TrainingWindows.from_columns(columns)
    log.info("%s, %s", counted(counts.examples, "example"), counted(counts.windows, "window"))
    unlabelled = (windows.answer_types == UNLABELLED).sum()
    if unlabelled:
        log.info("%d windows have no label: the teacher alone teaches them", unlabelled)
    return prepared, windows


def held_out(questions: Questions, student: Student) -> Callable[[], Figures]:
    """Returns a function that measures the present weights of a model on annotated questions.

    Where gold is no text, its texts are those of the short answers.
    """
    decision = student.decision
    rule = RULES[decision.rule]

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
    computation = Computation(student.network, HELD_OUT_PROFILE, TopK(rule.k, rule.text_only))
    shape = Shape(HELD_OUT_BATCH_SIZE, student.windows.max_seq_length)
    predictor = Predictor(computation, shape)

    def measure() -> Figures:
        evaluation = Evaluation()
        pages = (windowed(one, student.tokenizer, student.windows) for one in examples())
        for scored, ranked in answers(predictor, pages, decision):
            evaluation.add(judge(scored.example, ranked.prediction))
        metrics = evaluation.metrics()
        return {name: metrics[key] for name, key in MEASURED[decision.rule].items()}

    return measure


class TrainingProgress:
    """Reports the steps of a training: a bar, or log lines without a terminal, and curves."""

    def __init__(self, bar: Any, run: tracking.Run) -> None:
        self.bar = bar
        self.run = run
        self._steps = self._evaluations = 0  # that are recorded
        self._shown_at = time.monotonic()
        self._shown_step: int | None = None  # the last one in the log

    def __call__(self, state: TrainingState) -> None:
        """Reports the last step, and an evaluation after it."""
        set_total(self.bar, state.total)
        last = {name: f"{values[-1]:.3f}" for name, values in state.losses.items()}
        self.bar.set_postfix(last, refresh=False)
        self.bar.update(state.step - self.bar.n)
        if self._shown_step is None:
            self._shown_step = state.step - 1
        figures = state.evaluations[-1] if state.evaluations else {}
        is_evaluated = figures.get(STEP) == state.step
        is_round = state.step % REPORT_EVERY == 0 or state.step == state.total
        if is_round or is_evaluated:
            self.record(state)
        is_due = time.monotonic() - self._shown_at >= REPORT_S
        if self.bar.disable and (is_round or is_due):
            since = self._shown_step
            means = {name: np.mean(values[since:]) for name, values in state.losses.items()}
            log.info("step %d of %d, %s", state.step, state.total, in_words(means))
            self._shown_step = state.step
            self._shown_at = time.monotonic()
        if is_evaluated:
            best = ", the best so far" if state.best is figures else ""
            log.info("step %d, held-out %s%s", state.step, in_words(figures), best)

    def record(self, state: TrainingState) -> None:
        """Records what the curves do not have yet, also what an interrupted training computed."""
        for name, values in state.losses.items():
            self.run.metrics({f"train/{name}": values[self._steps :]}, self._steps + 1)
        for figures in state.evaluations[self._evaluations :]:
            dev = {f"dev/{name}": value for name, value in measured(figures).items()}
            self.run.metrics(dev, int(figures[STEP]))
        self._steps = state.step
        self._evaluations = len(state.evaluations)
