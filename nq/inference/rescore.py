"""``rescore``: close decisions are computed again in float32.

Rounding changes an answer only where another one is nearly as probable: an example whose decision
margin (``nq.postprocess.ranking``) is below the limit of the engine and its compute type, times the
weight of the evidence, is computed again under the same profile without inexact optimizations.
"""

import time
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from nq.config import DecisionConfig
from nq.errors import Error
from nq.inference.profile import ONNX, OPENVINO, TENSORFLOW, Profile
from nq.inference.scorer import (
    Rows,
    Scorer,
    ScorerWrapper,
    Steps,
    concatenate,
    example_scores,
    split_examples,
    uncounted,
)
from nq.postprocess.ranking import decision_margin, rank
from nq.records import RESCORED, Example

CLOSE = {
    (TENSORFLOW, "bfloat16"): 0.2,
    (OPENVINO, "bfloat16"): 0.2,
    (OPENVINO, "int8"): 1.45,
    (ONNX, "int8"): 3.8,
}
"""Margins of evidence (a sum of logits) that rounding may change, by engine and compute type.

Each is at least 1.3 times the largest margin of an answer that rounding changed, of the bundled
model on the even half of dev and on whole pages (``experiments.rescoring``).
"""


class RescoringScorer(ScorerWrapper):
    """Scores examples, and those with a close decision again by the scorer that ``exact`` makes.

    Close is a decision whose margin, as a sum of logits, is below ``margin``.
    """

    def __init__(
        self, inner: Scorer, exact: Callable[[], Scorer], decision: DecisionConfig, margin: float
    ) -> None:
        super().__init__(inner)
        self.decision = decision
        self.close = decision.evidence_weight * margin
        self._exact = cache(exact)

    def steps(self, rows: Rows, examples: Sequence[Example]) -> Steps:
        """See ``Scorer.steps``; the column ``RESCORED`` tells which windows were rescored."""
        columns = yield from self.inner.steps(rows, examples)
        started = time.perf_counter()
        pages = split_examples(rows, columns)
        close = list[int]()
        for n, (example, page) in enumerate(zip(examples, pages, strict=True)):
            ranking = rank(example, example_scores(page), self.decision)
            if decision_margin(ranking) < self.close:
                close.append(n)
        if close:
            inputs = split_examples(rows, dict(rows))
            part = concatenate([inputs[n] for n in close])
            scored = yield from uncounted(self._exact(), part, [examples[n] for n in close])
            for n, exact in zip(close, split_examples(part, scored), strict=True):
                all_true = np.ones(len(exact["type_logits"]), np.bool_)
                pages[n] = {name: exact.get(name, all_true) for name in pages[n]}
        for n, page in enumerate(pages):
            page[RESCORED] = np.full(len(page["type_logits"]), n in close)
        self.counters.rescore_s += time.perf_counter() - started
        return concatenate(pages)


def exact_profile(profile: Profile) -> Profile:
    """Returns the profile without the optimizations that round scores."""
    return Profile(profile.names - {"mixed", "int8", "rescore"})


def compute_type(profile: Profile, device: str) -> tuple[str, str]:
    """Returns the engine, and the least exact type that it computes in on a CPU or GPU."""
    return profile.changes.engine, "int8" if profile.changes.int8 else profile.precision(device)


def close_margin(profile: Profile, device: str) -> float:
    """Returns the limit of a profile with ``rescore``; an ``Error`` if none was measured."""
    engine, type_ = compute_type(profile, device)
    if (engine, type_) not in CLOSE:
        raise Error(f"rescore has no limit for {type_} in {engine} on a {device}: leave it out")
    return CLOSE[engine, type_]
