"""The description of a scorer, from which any process can make it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from nq.config import DecisionConfig, WindowConfig
from nq.inference import cascade, prune
from nq.inference.profile import Profile
from nq.inference.scorer import PART_BATCHES, Rows, Scorer
from nq.model.cascade import ReaderModel
from nq.preprocess.tokenizers.load import load_tokenizer

if TYPE_CHECKING:
    from nq.inference.load import ModelLoader


@dataclass(frozen=True, eq=False)
class ScorerSpec:
    """Everything that a process needs to make a scorer; it can be sent to another process.

    Args:
        folder: a model folder of any kind.
        windows: how pages become windows.
        decision: the decision that the scores of this model are for.
        batch_size: windows in a batch.
        profile: optimizations.
        reader: reads the blocks that this model ranks best, with the decision of both.
        calibration: windows of real data for an engine that is calibrated (``int8``).
        reader_calibration: the same for the reader.
        threads: that compute one operation; by default all cores.
    """

    folder: Path
    windows: WindowConfig
    decision: DecisionConfig
    batch_size: int
    profile: Profile
    reader: ReaderModel | None = None
    calibration: Rows = field(default_factory=dict, repr=False)
    reader_calibration: Rows = field(default_factory=dict, repr=False)
    threads: int | None = None

    def scorer(self) -> Scorer:
        """Returns the scorer; imports TensorFlow.

        Raises:
            FileNotFoundError, ValueError, Error: see ``ModelLoader.scorer``.
        """
        return self.loader().scorer(self.profile)

    @property
    def scorer_decision(self) -> DecisionConfig:
        """The decision that the scores of ``scorer`` are for: with a reader that of both models."""
        return self.decision if self.reader is None else self.reader.decision

    @property
    def part_windows(self) -> int:
        """Windows that a part for ``scorer`` should have at least; no model is loaded."""
        batches = PART_BATCHES * (prune.PART_FACTOR if self.profile.changes.prune else 1)
        if self.reader is not None:
            batches = max(batches, cascade.PART_FACTOR * PART_BATCHES)
        return batches * self.batch_size

    def loader(self) -> ModelLoader:
        """Returns what makes the scorer; imports TensorFlow."""
        from nq.inference.load import ModelLoader, reader_loader

        reader = None
        if self.reader is not None:
            reader = reader_loader(
                self.reader, self.batch_size, lambda: self.reader_calibration, self.threads
            )
        return ModelLoader(
            self.folder,
            load_tokenizer(self.folder, self.windows.compat),
            self.windows,
            self.decision,
            self.batch_size,
            lambda: self.calibration,
            reader,
            threads=self.threads,
        )
