"""``rescore``: close decisions are computed again with all windows in float32.

Rounding changes an answer only where another one is nearly as probable. How nearly, the decision
margin tells (``nq.postprocess.ranking``): an example whose margin is below ``CLOSE``, times the
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
    example_scores,
    no_progress,
    split_examples,
)
from nq.postprocess.ranking import decision_margin, rank
from nq.records import RESCORED, Columns, Example

CLOSE = {"mixed": 0.065, "int8": 0.43}
"""Margins of evidence (a sum of logits) that each inexact optimization may change."""


class RescoringScorer(ScorerWrapper):
    """Scores examples, and those with a close decision again by an exact scorer.

    ``exact`` makes that scorer when the first decision is close; for ``margins`` see ``CLOSE``.
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
        margin = max(margins[name] for name in profile.names & margins.keys())
        self.close = decision.evidence_weight * margin
        self._make_exact = exact
        self._exact: Scorer | None = None

    def scores(
        self, rows: Rows, examples: Sequence[Example], progress: Progress = no_progress
    ) -> Columns:
        """See ``Scorer.scores``; the column ``RESCORED`` tells which windows were rescored."""
        pages = split_examples(rows, self.inner.scores(rows, examples, progress))
        started = time.perf_counter()
        rankings = (
            rank(example, example_scores(page), self.decision)
            for example, page in zip(examples, pages, strict=True)
        )
        close = [n for n, one in enumerate(rankings) if decision_margin(one) < self.close]
        if close:
            self._exact = self._exact or self._make_exact()
            inputs = split_examples(rows, dict(rows))
            part = concatenate([inputs[n] for n in close])
            scored = self._exact.scores(part, [examples[n] for n in close])
            for n, exact in zip(close, split_examples(part, scored), strict=True):
                all_true = np.ones(len(exact["type_logits"]), np.bool_)
                pages[n] = {name: exact.get(name, all_true) for name in pages[n]}
        for n, page in enumerate(pages):
            page[RESCORED] = np.full(len(page["type_logits"]), n in close)
        self.counters.rescore_s += time.perf_counter() - started
        return concatenate(pages)


def exact_profile(profile: Profile) -> Profile:
    """Returns the profile without the optimizations that change scores or leave windows out."""
    return Profile(profile.names - CLOSE.keys() - {"prune", "rescore"})
