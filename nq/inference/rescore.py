"""``rescore``: close decisions are computed again with all windows in float32.

Rounding changes an answer only where another one is nearly as probable. How nearly, the decision
margin tells (``nq.postprocess.margin``): an example whose margin is below ``CLOSE``, times the
weight of the evidence, is computed again under the same profile without its inexact optimizations.

Of the answers that bfloat16 changed on the even half of dev (7 of 283, with TensorFlow and with
OpenVINO) none had a larger margin; of those that 8 bits changed, 3 of 20 had.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from nq.config import DecisionConfig
from nq.inference.profile import Profile
from nq.inference.scorer import (
    Progress,
    Rows,
    Scorer,
    ScorerWrapper,
    concatenate,
    example_slices,
    no_progress,
    window_scores,
)
from nq.postprocess.margin import decision_margin
from nq.postprocess.ranking import rank
from nq.records import READ, RESCORED, Columns, Example

CLOSE = {"mixed": 0.065, "int8": 0.43}
"""Margins of evidence (a sum of logits) that each inexact optimization may change."""


class RescoringScorer(ScorerWrapper):
    """Scores examples, and those with a close decision again by an exact scorer.

    Args:
        inner: the scorer of the profile.
        exact: makes the exact scorer; it is called when the first decision is close.
        profile: of ``inner``.
        decision: the decision that the scores are for.
        margins: see ``CLOSE``.
    """

    def __init__(
        self,
        inner: Scorer,
        exact: Callable[[], Scorer],
        profile: Profile,
        decision: DecisionConfig,
        margins: Mapping[str, float] = CLOSE,
    ) -> None:
        super().__init__(inner)
        self.decision = decision
        weight = max(decision.weights.evidence, decision.weights.short_evidence)
        self.close = weight * max(margins[name] for name in profile.names & margins.keys())
        self._make_exact = exact
        self._exact: Scorer | None = None

    def scores(
        self, rows: Rows, examples: Sequence[Example], progress: Progress = no_progress
    ) -> Columns:
        """See ``Scorer.scores``; the column ``RESCORED`` tells which windows were rescored."""
        columns = self.inner.scores(rows, examples, progress)
        started = time.perf_counter()
        rescored = np.zeros(len(rows["window_ids"]), np.bool_)
        close = [
            (example, page)
            for example, page in zip(examples, example_slices(rows), strict=True)
            if self._margin(example, columns, page) < self.close
        ]
        if close:
            if self._exact is None:
                self._exact = self._make_exact()
            for _, page in close:
                rescored[page] = True
            parts = [{name: column[page] for name, column in rows.items()} for _, page in close]
            exact = self._exact.scores(concatenate(parts), [example for example, _ in close])
            for name, column in exact.items():
                columns[name][rescored] = column
            if READ in columns:
                columns[READ][rescored] = True
        self.counters.rescore_s += time.perf_counter() - started
        return {**columns, RESCORED: rescored}

    def _margin(self, example: Example, columns: Columns, page: slice) -> float:
        return decision_margin(rank(example, window_scores(columns, page), self.decision))


def exact_profile(profile: Profile) -> Profile:
    """Returns the profile without the optimizations that change scores or leave windows out."""
    return Profile(profile.names - CLOSE.keys() - {"prune", "rescore"})
