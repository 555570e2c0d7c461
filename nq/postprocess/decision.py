"""The decision rules: ours and the rules of the two originals.

| step      | bert-joint                        | kisialiou                          |
|-----------|-----------------------------------|------------------------------------|
| positions | top 10 of all, then those in text | those in text, then top 5          |
| pairs     | 1 to 30 pieces                    | 2 to 30 pieces, above 0            |
| ties      | the larger span sum, [CLS] sum    | the last pair                      |
|           | and type logits, then the first   |                                    |
|           | window and best start             |                                    |
| long      | first top-level block around the  | of the best pair with such a       |
|           | best pair                         | block, if above 3                  |
| short     | the best pair                     | the best pair, if above 8          |
| null      | scores -10000                     | scores -10000                      |
| yes, no   | never                             | never                              |

Both originals keep pairs whose end precedes their start in the document, which exist where the
candidates are not in page order. ``kisialiou`` is the rule of the port since its commit f95f9d3 of
2020-05-09.

``squad`` is the rule for readers of SQuAD 2, which know no markers, blocks and types: the best span
of all windows, if the sum of its logits is above that of the null span, [CLS], in the window where
that is lowest (google-research/bert ``run_squad.py``). The difference is the score. The long answer
is the block around the span. As in transformers, a span needs no block.

Sources: google-research/language ``bert_joint/run_nq.py`` (``compute_predictions``, and
``ScoreSummary.__lt__`` of 2020-09-30 for ties) and kisialiou/NQ ``src/utils/utils.py``.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nq.config import DecisionConfig
from nq.postprocess.ranking import Ranking, rank
from nq.postprocess.spans import Ties, pairs
from nq.records import Alternative, Example, Prediction, Scores, Span, WindowScores

BERT_JOINT_K = 10
KISIALIOU_K = 5
DEFAULT_K = 20
KISIALIOU_MIN_PIECES = 2
KISIALIOU_LONG = 3.0
KISIALIOU_SHORT = 8.0
NO_SCORE = -10000.0


@dataclass(frozen=True)
class RankedPrediction:
    """A prediction, with its ranking where the rule computes one."""

    prediction: Prediction
    ranking: Ranking | None = None

    def alternatives(self, limit: int) -> tuple[Alternative, ...] | None:
        """Returns the n-best list; ``None`` for a rule without probabilities."""
        return None if self.ranking is None else self.ranking.alternatives(limit)


@dataclass(frozen=True)
class DecisionRule:
    """A rule, and what it needs of the scores.

    Args:
        k: positions that it needs of each window, for the start and for the end.
        text_only: whether positions outside of document text are excluded before the top k.
        ranks: whether it computes a ranking, and so a decision margin. The predictions of the
            others, the rules of the originals, have no bytes.
    """

    decide: Callable[[Example, WindowScores, DecisionConfig], RankedPrediction]
    k: int
    text_only: bool
    ranks: bool = False


def default(
    example: Example,
    scores: Scores,
    config: DecisionConfig,
) -> RankedPrediction:
    """Decides for the most probable block and its short answer; the only rule of two models."""
    ranking = rank(example, scores, config)
    return RankedPrediction(ranking.prediction(), ranking)


def squad(
    example: Example,
    scores: WindowScores,
    config: DecisionConfig,
) -> RankedPrediction:
    """Returns the decision of a reader of SQuAD 2: the best span against the null span."""
    candidates = pairs(scores, config.max_answer_length)
    if not len(candidates):
        return _prediction(example)
    null = scores.cls_logit.astype(np.float64).sum(axis=1)
    logits = candidates.score + null[candidates.window]
    best = int(np.argmax(logits))
    span = candidates.span(best)
    score = float(logits[best] - null.min())
    long = containing_block(example, span) if score > config.long_threshold else None
    short = span if score > config.short_threshold else None
    return _prediction(example, long, score, short, score)


def bert_joint(
    example: Example,
    scores: WindowScores,
    config: DecisionConfig,
) -> RankedPrediction:
    """Returns the original's decision: the best pair of all windows, always given."""
    longest = config.max_answer_length
    candidates = pairs(scores, longest, k=BERT_JOINT_K, ties=Ties.SUMMARY, backwards=True)
    if not len(candidates):
        return _prediction(example)
    best = candidates.span(0)
    score = float(candidates.score[0])
    return _prediction(example, containing_block(example, best), score, best, score)


def kisialiou(
    example: Example,
    scores: WindowScores,
    config: DecisionConfig,
) -> RankedPrediction:
    """Returns the 2020 port's decision: the best pair, under two fixed thresholds."""
    limits = config.max_answer_length, KISIALIOU_MIN_PIECES, KISIALIOU_K
    candidates = pairs(scores, *limits, np.float32, ties=Ties.LAST, backwards=True)
    long = None
    long_score = NO_SCORE
    short = None
    short_score = NO_SCORE
    for i, score in enumerate(candidates.score.tolist()):
        if score <= 0:
            break
        span = candidates.span(i)
        if i == 0 and score > KISIALIOU_SHORT:
            short = span
            short_score = score
        if block := containing_block(example, span):
            if score > KISIALIOU_LONG:
                long = block
                long_score = score
            break
    return _prediction(example, long, long_score, short, short_score)


def _prediction(
    example: Example,
    long: Span | None = None,
    long_score: float = NO_SCORE,
    short: Span | None = None,
    short_score: float = NO_SCORE,
) -> RankedPrediction:
    shorts = () if short is None else (short,)
    return RankedPrediction(Prediction(example.example_id, long, long_score, shorts, short_score))


RULES = {
    "default": DecisionRule(default, DEFAULT_K, text_only=True, ranks=True),
    "squad": DecisionRule(squad, DEFAULT_K, text_only=True),
    "bert-joint": DecisionRule(bert_joint, BERT_JOINT_K, text_only=False),
    "kisialiou": DecisionRule(kisialiou, KISIALIOU_K, text_only=True),
}


def containing_block(example: Example, span: Span) -> Span | None:
    """Returns the first top-level candidate that contains ``span``, if there is one."""
    return next((c.span for c in example.candidates if c.top_level and c.span.contains(span)), None)


def decide(
    example: Example,
    scores: Scores,
    config: DecisionConfig,
) -> RankedPrediction:
    """Returns the decision for one example by the configured rule; of two models the default."""
    if isinstance(scores, WindowScores):
        return RULES[config.rule].decide(example, scores, config)
    return default(example, scores, config)
