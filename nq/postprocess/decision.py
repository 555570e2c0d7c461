"""answers -> prediction: the decision rules, ours and those of the two originals.

| step      | bert-joint                       | kisialiou                            |
|-----------|----------------------------------|--------------------------------------|
| positions | top 10 of all, then those in text | those in text, then top 5           |
| pairs     | 1 to 30 pieces                   | 2 to 30 pieces                       |
| choice    | the best                         | all above 0, without repetitions     |
| long      | first top-level block around it  | of the best with such a block, > 3   |
| short     | always                           | all above 8, scored by their mean    |
| yes, no   | never                            | never                                |

Sources: google-research/language ``bert_joint/run_nq.py`` (``compute_predictions``) and
kisialiou/NQ ``src/utils/utils.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from nq.config import DecisionConfig
from nq.errors import Error
from nq.postprocess.margin import closeness
from nq.postprocess.ranking import alternatives, choose
from nq.postprocess.spans import pairs
from nq.records import Alternative, Example, Prediction, Span, Weighed, WindowScores

BERT_JOINT_K, KISIALIOU_K, DEFAULT_K = 10, 5, 20
KISIALIOU_LONG, KISIALIOU_SHORT = 3.0, 8.0
NO_SCORE = -10000.0
BY_CLOSENESS = ("recheck", "refine")
"""Optimizations that go by how close a decision is."""

Rule = Callable[[Example, WindowScores, DecisionConfig], Prediction]
Alternatives = Callable[[Example, WindowScores, DecisionConfig, int], Sequence[Alternative]]

Closeness = Callable[[Example, WindowScores, DecisionConfig], float]


@dataclass(frozen=True)
class Decision:
    """A rule, the positions that it wants of each window, whether it gives bytes too.

    ``alternatives`` are what it weighs, with their probabilities, ``closeness`` tells how near it
    is to another answer; the originals weigh none.
    """

    rule: Rule
    k: int
    text_only: bool
    with_bytes: bool = False
    alternatives: Alternatives | None = None
    closeness: Closeness | None = None


def long_answer(example: Example, span: Span) -> Span | None:
    """The first top-level candidate that contains ``span``."""
    return next((c.span for c in example.candidates if c.top_level and c.span.contains(span)), None)


def bert_joint(example: Example, scores: WindowScores, config: DecisionConfig) -> Prediction:
    """The original's decision: the best pair of all windows, always given."""
    found = pairs(scores, config.max_answer_length, k=BERT_JOINT_K)
    if not len(found):
        return Prediction(example.example_id)
    best = found.scored_span(0)
    return Prediction(
        example.example_id,
        long_answer(example, best.span),
        best.score,
        (best.span,),
        best.score,
    )


def kisialiou(example: Example, scores: WindowScores, config: DecisionConfig) -> Prediction:
    """The 2020 port's decision: separate fixed thresholds, any number of short answers."""
    found = pairs(scores, config.max_answer_length, 2, KISIALIOU_K, np.float32)
    found = found.where(found.score > 0)
    answers = [found.scored_span(i) for i in range(len(found))]
    best: dict[Span, float] = {}
    for answer in answers:
        best.setdefault(answer.span, answer.score)
    blocks = ((long_answer(example, span), score) for span, score in best.items())
    long, long_score = next((b for b in blocks if b[0] is not None), (None, NO_SCORE))
    if long_score <= KISIALIOU_LONG:
        long, long_score = None, NO_SCORE
    shorts = {span: score for span, score in best.items() if score > KISIALIOU_SHORT}
    return Prediction(
        example.example_id,
        long,
        long_score,
        tuple(shorts),
        sum(shorts.values()) / len(shorts) if shorts else 0.0,
    )


RULES = {
    "default": Decision(
        choose, DEFAULT_K, True, with_bytes=True, alternatives=alternatives, closeness=closeness
    ),
    "bert-joint": Decision(bert_joint, BERT_JOINT_K, text_only=False),
    "kisialiou": Decision(kisialiou, KISIALIOU_K, text_only=True),
}


def check(rule: str, optimizations: Collection[str]) -> None:
    """Whether a rule tells what those optimizations go by.

    Raises:
        Error: it does not.
    """
    wanted = [name for name in BY_CLOSENESS if name in optimizations]
    if wanted and RULES[rule].closeness is None:
        raise Error(
            f"decision {rule} does not tell close calls: leave {' and '.join(wanted)} out of the "
            "profile, or take --decision default"
        )


def decide(example: Example, scores: WindowScores, config: DecisionConfig) -> Prediction:
    """The prediction for one example by the configured rule; there is always one."""
    return RULES[config.rule].rule(example, scores, config)


def weighed(example: Example, scores: WindowScores, config: DecisionConfig) -> Weighed | None:
    """Gives the alternatives of one example; ``None`` for a rule that weighs none."""
    found = RULES[config.rule].alternatives
    return found and partial(found, example, scores, config)
