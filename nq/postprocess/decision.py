"""The decision rules: ours and those of the two originals.

| step      | bert-joint                        | kisialiou                            |
|-----------|-----------------------------------|--------------------------------------|
| positions | top 10 of all, then those in text | those in text, then top 5            |
| pairs     | 1 to 30 pieces                    | 2 to 30 pieces                       |
| choice    | the best                          | all above 0, without repetitions     |
| long      | first top-level block around it   | of the best with such a block, > 3   |
| short     | always                            | all above 8, scored by their mean    |
| yes, no   | never                             | never                                |

Sources: google-research/language ``bert_joint/run_nq.py`` (``compute_predictions``) and
kisialiou/NQ ``src/utils/utils.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from nq.config import DecisionConfig
from nq.errors import Error
from nq.postprocess.ranking import Ranking, rank
from nq.postprocess.spans import pairs
from nq.records import Alternative, Example, Prediction, Span, WindowScores

BERT_JOINT_K, KISIALIOU_K, DEFAULT_K = 10, 5, 20
KISIALIOU_LONG, KISIALIOU_SHORT = 3.0, 8.0
NO_SCORE = -10000.0


@dataclass(frozen=True)
class RankedPrediction:
    """The prediction for one example, with its ranking where the rule computes one."""

    prediction: Prediction
    ranking: Ranking | None = None

    def alternatives(self, limit: int) -> tuple[Alternative, ...] | None:
        """Returns the n-best list; ``None`` for a rule without probabilities."""
        return None if self.ranking is None else self.ranking.alternatives(limit)


@dataclass(frozen=True)
class DecisionRule:
    """A rule, and what it needs of the scores.

    Args:
        decide: decides one example from the scores of all its windows.
        k: positions that it needs of each window, for the start and for the end.
        text_only: whether positions outside of document text are excluded before the top k.
        with_bytes: whether its predictions have bytes where the data have.
        ranks: whether it computes a ranking, and so a decision margin.
    """

    decide: Callable[[Example, WindowScores, DecisionConfig], RankedPrediction]
    k: int
    text_only: bool
    with_bytes: bool = False
    ranks: bool = False


def default(example: Example, scores: WindowScores, config: DecisionConfig) -> RankedPrediction:
    """Returns our decision: the most probable block and short answer."""
    ranking = rank(example, scores, config)
    return RankedPrediction(ranking.prediction(), ranking)


def bert_joint(example: Example, scores: WindowScores, config: DecisionConfig) -> RankedPrediction:
    """Returns the original's decision: the best pair of all windows, always given."""
    candidates = pairs(scores, config.max_answer_length, k=BERT_JOINT_K)
    if not len(candidates):
        return RankedPrediction(Prediction(example.example_id))
    best = candidates.scored_span(0)
    long = containing_block(example, best.span)
    return RankedPrediction(
        Prediction(example.example_id, long, best.score, (best.span,), best.score)
    )


def kisialiou(example: Example, scores: WindowScores, config: DecisionConfig) -> RankedPrediction:
    """Returns the 2020 port's decision: two fixed thresholds, any number of short answers."""
    candidates = pairs(scores, config.max_answer_length, 2, KISIALIOU_K, np.float32)
    candidates = candidates.where(candidates.score > 0)
    best: dict[Span, float] = {}
    for i in range(len(candidates)):
        scored = candidates.scored_span(i)
        best.setdefault(scored.span, scored.score)
    blocks = ((containing_block(example, span), score) for span, score in best.items())
    long, long_score = next((b for b in blocks if b[0] is not None), (None, NO_SCORE))
    if long_score <= KISIALIOU_LONG:
        long, long_score = None, NO_SCORE
    shorts = {span: score for span, score in best.items() if score > KISIALIOU_SHORT}
    short_score = sum(shorts.values()) / len(shorts) if shorts else 0.0
    return RankedPrediction(
        Prediction(example.example_id, long, long_score, tuple(shorts), short_score)
    )


RULES = {
    "default": DecisionRule(default, DEFAULT_K, text_only=True, with_bytes=True, ranks=True),
    "bert-joint": DecisionRule(bert_joint, BERT_JOINT_K, text_only=False),
    "kisialiou": DecisionRule(kisialiou, KISIALIOU_K, text_only=True),
}


def containing_block(example: Example, span: Span) -> Span | None:
    """Returns the first top-level candidate that contains ``span``, if there is one."""
    return next((c.span for c in example.candidates if c.top_level and c.span.contains(span)), None)


def check_rule(rule: str, needs_margin: Sequence[str]) -> None:
    """Checks that a rule computes the decision margin, if optimizations need it.

    Args:
        rule: name of the rule.
        needs_margin: names of the optimizations that need the margin.

    Raises:
        Error: the rule does not compute it.
    """
    if needs_margin and not RULES[rule].ranks:
        raise Error(
            f"decision {rule} has no decision margin: remove {' and '.join(needs_margin)} from "
            "the profile, or take --decision default"
        )


def decide(example: Example, scores: WindowScores, config: DecisionConfig) -> RankedPrediction:
    """Returns the decision for one example by the configured rule."""
    return RULES[config.rule].decide(example, scores, config)
