"""Measures a model on held-out questions during its training, and keeps its best weights.

Each measurement uses the thresholds with the best F1 on the held-out questions, because the model
has not been tuned.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import keras

from nq import storage
from nq.config import DecisionConfig, WindowConfig
from nq.errors import DamagedError
from nq.evaluation.evaluate import Evaluation, judge
from nq.formats import inputs
from nq.formats.outputs import encode_prediction
from nq.formats.questions import PageFolder
from nq.inference.batches import Shape
from nq.inference.engine import Computation, Network
from nq.inference.predictor import Predictor
from nq.inference.profile import Profile
from nq.inference.reduction import TopK
from nq.inference.scorer import feature_rows, score_examples
from nq.postprocess.decision import RULES, decide
from nq.preprocess.features import features
from nq.preprocess.tokenizers.base import Tokenizer
from nq.records import Example
from nq.training.job import MEASURED, STEP, Figures

log = logging.getLogger(__name__)

BEST_WEIGHTS = "best_weights.npz"
CHOSEN_BY = MEASURED[0]
METRICS = ("micro_f1_best", "long-best-threshold-f1", "short-best-threshold-f1")
"""The metrics of ``nq_eval`` that are called ``MEASURED`` here, in that order."""
BATCH_SIZE = 16
PROFILE, DECISION = Profile.parse("grappler+buckets"), DecisionConfig()


@dataclass(frozen=True, eq=False)
class HeldOutQuestions:
    """Annotated questions that the present weights of a model in training are measured on."""

    files: Sequence[str]
    tokenizer: Tokenizer
    windows: WindowConfig
    network: Network
    pages: PageFolder | None = None

    def check(self) -> None:
        """Checks that there is something to measure, and logs the number of bad records."""
        bad = sum(not isinstance(item, Example) for item in self._items())
        if bad:
            log.warning("bad records of the held-out files, which are skipped: %d", bad)
        if not any(self._examples()):
            raise ValueError(
                f"no annotations in {', '.join(self.files)}: give annotated questions to --dev"
            )

    def measure(self) -> Figures:
        """Returns the figures ``MEASURED`` of the model."""
        evaluation = Evaluation()
        windows = (
            (example, feature_rows(features(example, self.tokenizer, self.windows)))
            for example in self._examples()
        )
        for example, scores in score_examples(self._predictor, windows):
            prediction = decide(example, scores, DECISION).prediction
            evaluation.add(judge(example, encode_prediction(prediction)))
        metrics = evaluation.metrics()
        return {name: metrics[key] for name, key in zip(MEASURED, METRICS, strict=True)}

    @cached_property
    def _predictor(self) -> Predictor:
        rule = RULES[DECISION.rule]
        computation = Computation(self.network, PROFILE, TopK(rule.k, rule.text_only))
        return Predictor(computation, Shape(BATCH_SIZE, self.windows.max_seq_length), None)

    def _items(self) -> Iterator[Any]:
        for file in self.files:
            yield from (item for _, item in inputs.read_records(file, pages=self.pages))

    def _examples(self) -> Iterator[Example]:
        items = self._items()
        return (item for item in items if isinstance(item, Example) and item.annotations)


@dataclass(eq=False)
class Evaluations:
    """The evaluations of a training; the weights of the best one are kept in a file.

    There is one ``every`` so many steps, and one after the last step. An interrupted training
    repeats those that its state does not have, so that the file has the weights of the best one
    again. ``report`` receives the figures of each evaluation, and whether they are the best so far.
    """

    measure: Callable[[], Figures]
    every: int
    model: keras.Model
    file: Path
    report: Callable[[Figures, bool], None]
    done: list[Figures] = field(default_factory=list)

    @property
    def best(self) -> Figures:
        """The first of the evaluations with the highest figure ``CHOSEN_BY``."""
        return max(self.done, key=lambda figures: figures[CHOSEN_BY])

    def after(self, step: int, total: int) -> None:
        """Evaluates the model if it is due after ``step`` of ``total`` steps."""
        if step % self.every and step != total:
            return
        figures = {STEP: step, **self.measure()}
        self.done.append(figures)
        is_best = self.best is figures
        if is_best:
            arrays = {str(i): weight.numpy() for i, weight in enumerate(self.model.weights)}
            storage.write_arrays(self.file, arrays)
        self.report(figures, is_best)

    def assign_best(self) -> None:
        """Gives the model the weights of the best evaluation; a damaged file is logged."""
        if not self.done or self.best is self.done[-1]:
            return
        try:
            arrays = storage.read_arrays(self.file)
            values = [arrays[str(i)] for i in range(len(self.model.weights))]
        except (OSError, DamagedError, LookupError) as error:
            log.warning("%s; the model has the weights of the last step instead", error)
            return
        for weight, value in zip(self.model.weights, values, strict=True):
            weight.assign(value)
