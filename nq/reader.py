"""One question, one page, in memory: the same stages as the whole line, without its files."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from nq.bundle import bundled_sample
from nq.config import DecisionConfig, WindowConfig
from nq.formats import inputs
from nq.inference import prune
from nq.inference.engine import Rows
from nq.inference.loading import Loader
from nq.inference.predictor import Columns, Predictor, rows_of
from nq.inference.profile import Profile
from nq.inference.rescore import Recheck
from nq.postprocess.decision import check, decide, weighed
from nq.preprocess.contexts import contexts
from nq.preprocess.features import features
from nq.preprocess.tokenizers.base import Tokenizer
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.records import SCORE_COLUMNS, Example, WindowScores
from nq.report.reply import Reply

log = logging.getLogger(__name__)

BATCH_SIZE = 8
LONG_WAIT_WINDOWS = 200


@dataclass(frozen=True)
class Answerer:
    """A loaded model with its settings; ``answerer`` makes one."""

    tokenizer: Tokenizer
    predictor: Predictor
    windows: WindowConfig
    decision: DecisionConfig
    recheck: Recheck | None = None

    def answer(self, example: Example, limit: int = 1) -> Reply:
        """The prediction for ``example``, with at most ``limit`` weighed answers."""
        found = features(example, self.tokenizer, self.windows)
        if len(found) > LONG_WAIT_WINDOWS:
            log.info("a long page: %d windows to read", len(found))
        rows = rows_of(found)
        if self.predictor.profile.changes.refine:
            columns = prune.scores(self.predictor, rows, [example], self.decision)
        else:
            columns = self.predictor.scores(rows)
        scores = _scores(columns)
        again = self.recheck and self.recheck.scores(example, scores)
        if again:
            scores = _scores(again)
        others = weighed(example, scores, self.decision)
        return Reply(decide(example, scores, self.decision), tuple(others(limit)) if others else ())

    def unread(self, example: Example) -> int:
        """How many blocks of the page lie beyond ``max_contexts`` and are not read."""
        everything = replace(self.windows, max_contexts=len(example.candidates) + 1)
        return len(contexts(example, everything)) - len(contexts(example, self.windows))


@contextmanager
def answerer(
    folder: Path,
    profile: Profile,
    windows: WindowConfig,
    decision: DecisionConfig,
    batch_size: int = BATCH_SIZE,
) -> Iterator[Answerer]:
    """Loads a model once and holds its profile in force.

    Args:
        folder: a model folder.
        profile: optimizations.
        windows: how pages become windows.
        decision: how scores become answers.
        batch_size: windows in a batch; few, because a short page fills no more.
    """
    check(decision.rule, profile.names)
    tokenizer = load_tokenizer(folder, windows.compat)
    loader = Loader(
        folder,
        tokenizer,
        windows,
        decision.rule,
        batch_size,
        lambda: _sample_rows(tokenizer, windows),
    )
    recheck = Recheck(loader, profile, decision) if profile.changes.recheck else None
    predictor = loader.predictor(profile)
    with predictor.ready():
        yield Answerer(tokenizer, predictor, windows, decision, recheck)


def _scores(columns: Columns) -> WindowScores:
    return WindowScores(**{name: columns[name] for name in SCORE_COLUMNS})


def _sample_rows(tokenizer: Tokenizer, windows: WindowConfig) -> Rows:
    """The windows of the bundled sample."""
    found = [
        rows_of(features(example, tokenizer, windows))
        for _, example in inputs.read_records(str(bundled_sample()))
        if isinstance(example, Example)
    ]
    return {name: np.concatenate([rows[name] for rows in found]) for name in found[0]}
