"""Measures a model on held-out questions during its training.

Each measurement uses the thresholds with the best F1 on the held-out questions, because the model
has not been tuned.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from nq.config import DecisionConfig, WindowConfig
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
from nq.training.job import MEASURED, Figures

log = logging.getLogger(__name__)

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
