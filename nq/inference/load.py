"""Loads a model folder as a scorer: the one place where a checkpoint becomes what runs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nq.config import CascadeDecision, DecisionConfig, WindowConfig
from nq.inference.batches import Shape
from nq.inference.cascade import CascadeScorer
from nq.inference.engine import Computation
from nq.inference.engines.tensorflow import device
from nq.inference.network import Network
from nq.inference.predictor import Predictor
from nq.inference.profile import Profile
from nq.inference.prune import PruningScorer
from nq.inference.reduction import Reduction
from nq.inference.rescore import RescoringScorer, exact_profile
from nq.inference.scorer import Rows, Scorer
from nq.inference.top_k import TopK
from nq.model import checkpoint, joint
from nq.model.cascade import ReaderModel
from nq.postprocess.decision import RULES, check_rule
from nq.preprocess.features import features
from nq.preprocess.tokenizers.base import Tokenizer
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.records import Example, Features

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReaderLoader:
    """The reader of a cascade.

    Args:
        model: makes its predictors.
        features: returns all windows of an example as the reader has them.
        decision: of both models.
    """

    model: ModelLoader
    features: Callable[[Example], Features]
    decision: CascadeDecision


@dataclass(frozen=True)
class ModelLoader:
    """Makes scorers of one model folder, each under a profile.

    Args:
        folder: a model folder of any kind.
        tokenizer: the word embeddings must have a row for each of its ids.
        windows: their length.
        decision: the decision that the scores of this model are for.
        batch_size: windows in a batch.
        calibration: returns windows of real data, on which an 8-bit engine is calibrated.
        reader: reads the blocks that this model ranks best, under the same profile.
        reduction: what leaves the device; by default what the decision needs.
        threads: that compute one operation; by default as many as the engine chooses.
    """

    folder: Path
    tokenizer: Tokenizer
    windows: WindowConfig
    decision: DecisionConfig
    batch_size: int
    calibration: Callable[[], Rows]
    reader: ReaderLoader | None = None
    reduction: Reduction | None = None
    threads: int | None = None

    def scorer(self, profile: Profile) -> Scorer:
        """Returns the model under a profile, wrapped for pruning and rescoring if it has them.

        With a reader, pruning is for the first model alone, and rescoring for both.

        Raises:
            FileNotFoundError: the folder has no model.
            ValueError: the model is damaged, or too small for the windows.
            Error: a package that the profile needs is not installed, or the decision rule has no
                margin and the profile needs one.
        """
        decision = self.scorer_decision
        check_rule(decision.rule, profile.needs_margin)
        scorer = self._scorer(profile)
        if profile.changes.rescore:
            exact = exact_profile(profile)
            scorer = RescoringScorer(scorer, lambda: self._scorer(exact), profile, decision)
        return scorer

    @property
    def scorer_decision(self) -> DecisionConfig:
        """The decision that the scores of ``scorer`` are for: with a reader that of both models."""
        return self.decision if self.reader is None else self.reader.decision

    def _scorer(self, profile: Profile) -> Scorer:
        """Returns the model under a profile without rescoring."""
        scorer: Scorer = self.predictor(profile)
        if profile.changes.prune:
            scorer = PruningScorer(scorer, self.decision)
        if self.reader is not None:
            reader = self.reader.model.predictor(profile)
            scorer = CascadeScorer(scorer, reader, self.reader.features, self.reader.decision)
        return scorer

    def predictor(self, profile: Profile) -> Predictor:
        """Returns the model under a profile, without pruning and rescoring."""
        rule, plain = RULES[self.decision.rule], Profile()
        computation = Computation(
            self._network(profile.policy(device())),
            profile,
            self.reduction or TopK(rule.k, rule.text_only),
            self.calibration,
            self.threads,
        )
        shape = Shape(self.batch_size, self.windows.max_seq_length)
        return Predictor(
            computation, shape, None if profile == plain else lambda: self.predictor(plain)
        )

    def _network(self, policy: str) -> Network:
        own = checkpoint.load_config(self.folder)
        checkpoint.read_tensors(self.folder).table(own)  # before anything of its size is built
        config = checkpoint.with_room_for(own, self.tokenizer)
        joint.check_length(config, self.windows.max_seq_length)
        model = joint.build(config, dtype=policy, initialize=False)
        report = checkpoint.load(self.folder, model, config)
        if report.warning():
            log.warning("%s", report.warning())
        if report.unexpected:
            log.info("tensors of the checkpoint without use: %s", ", ".join(report.unexpected))
        return Network(config, model)


def reader_loader(
    reader: ReaderModel,
    batch_size: int,
    calibration: Callable[[], Rows],
    threads: int | None = None,
) -> ReaderLoader:
    """Returns the loader of a cascade's reader.

    Args:
        reader: its folder, its windows and the decision of both models.
        batch_size: windows in a batch.
        calibration, threads: see ``ModelLoader``.
    """
    tokenizer = load_tokenizer(reader.folder, reader.windows.compat)
    settings = reader.windows, reader.decision, batch_size, calibration
    model = ModelLoader(reader.folder, tokenizer, *settings, threads=threads)

    def reader_features(example: Example) -> Features:
        return features(example, tokenizer, reader.windows)

    return ReaderLoader(model, reader_features, reader.decision)
