"""The default decision: block, span and type of the answer are ranked together, by probability.

The evidence of the model (``nq.postprocess.evidence``), the lexical overlap of question and block,
the length of the page and the place of the block in an article (``nq.postprocess.blocks``) enter
two softmaxes, whose weights are ``config.RankingWeights``:

    P(block) over the blocks of the page and "no answer",
    P(option | block) over its short spans, yes, no and "no short answer".

A span over the end of a sentence, cell or item is no answer. To share its probability among the
others would make wrong ones look certain.

The most probable block is the long answer, its most probable option but the last one the short
answer. Both probabilities are compared with thresholds of their own, and no short answer is given
without its block. Where the model does not tell yes from no (``DecisionConfig.says_yes_no``), a
question that asks for them gets its block alone.

With two models (``CascadeScores``) the evidence is that of the reader, for the blocks that it read;
the others are no answers. The block score of the ranker is one more feature of a block,

    log P(block) = evidence of the reader + w * block score + prior features + constant,

a weighted sum of the log odds of both models, as scores of retrievers and readers are interpolated
in BERTserini (Yang et al. 2019). The short answers within a block are the reader's alone.
"""

import math
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from nq.config import CascadeDecision, DecisionConfig
from nq.errors import Error
from nq.postprocess.blocks import Blocks
from nq.postprocess.evidence import Evidence, Options, gather_evidence
from nq.postprocess.spans import softmax
from nq.records import (
    Alternative,
    AnswerType,
    CascadeScores,
    Example,
    FloatArray,
    Prediction,
    Scores,
    Span,
    WindowScores,
    YesNo,
)

NO_SPANS = (AnswerType.LONG, AnswerType.YES, AnswerType.NO)
"""Types of options without words of the page; the first is none of a short answer."""
PAIRS = {"``": "''", "“": "”", '"': '"', "(": ")", "[": "]"}
"""Quotes and brackets that open, with their partners; the first is of NQ's tokens."""


@dataclass(frozen=True, eq=False)
class Ranking:
    """The blocks of one example, ranked by probability."""

    example: Example
    evidence: Evidence
    config: DecisionConfig

    @cached_property
    def utility(self) -> FloatArray:
        """``[B]`` log P(block), up to a constant of the page."""
        return self.evidence.utility(self.config.weights)

    @cached_property
    def probabilities(self) -> FloatArray:
        """``[B]`` P(block); 1 minus their sum is P("no answer")."""
        return np.asarray(softmax(np.append(self.utility, self.config.weights.null))[:-1])

    def prediction(self) -> Prediction:
        """Returns the best block and answer; what is below its threshold is null.

        Without its block a short answer is null too.
        """
        prediction = Prediction(self.example.example_id)
        if not len(self.probabilities):
            return prediction
        best = self.alternative(int(np.argmax(self.probabilities)))
        long = best.long_probability
        short = best.short_probability
        prediction = replace(prediction, long_score=long, short_score=short)
        if long < self.config.long_threshold:
            return prediction
        prediction = replace(prediction, long=best.long)
        if short < self.config.short_threshold:
            return prediction
        return replace(prediction, shorts=best.shorts, yes_no=best.yes_no)

    def alternatives(self, limit: int) -> tuple[Alternative, ...]:
        """Returns the n-best list: the best blocks, each with its best short answer.

        Where the best answer is neither yes nor no, the question asks for something else, and no
        other answer is yes or no either.
        """
        alternatives = list[Alternative]()
        asks_for_words = False
        for row in np.argsort(-self.probabilities, kind="stable")[:limit].tolist():
            alternatives.append(self.alternative(row, asks_for_words))
            best = alternatives[0]
            asks_for_words = best.yes_no is YesNo.NONE and not best.asks_yes_no
        return tuple(alternatives)

    def alternative(self, row: int, only_words: bool = False) -> Alternative:
        probability = float(self.probabilities[row])
        options, likely = self.options(row)
        excluded = NO_SPANS if only_words else NO_SPANS[:1]
        likely = np.where(np.isin(options.types, excluded), -1.0, likely)
        best = int(np.argmax(likely))
        kind = AnswerType(int(options.types[best]))
        start, end = options.spans[best].tolist()
        is_span = kind is AnswerType.SHORT and likely[best] > 0
        says = self.config.says_yes_no
        return Alternative(
            self.example.candidates[int(self.evidence.blocks[row])].span,
            (self._paired(Span(start, end + 1)),) if is_span else (),
            kind.yes_no if says else YesNo.NONE,
            probability,
            probability * float(likely[best]),
            asks_yes_no=kind.yes_no is not YesNo.NONE and not says,
        )

    def _paired(self, span: Span) -> Span:
        """Returns a span with the partner of a single quote or bracket at one of its ends.

        Where the partner is not beside the span, the quote or bracket is left out.
        """
        tokens = self.example.tokens
        start = span.start
        end = span.end
        inside = Counter(tokens[start:end])
        for opening, closing in PAIRS.items():
            same = opening == closing
            missing = inside[opening] % 2 if same else inside[opening] - inside[closing]
            if not missing or end - start < 2:
                continue
            if tokens[start] == opening and missing > 0:
                has_partner = end < len(tokens) and tokens[end] == closing
                start, end = (start, end + 1) if has_partner else (start + 1, end)
            elif tokens[end - 1] == closing and (missing < 0 or same):
                has_partner = start > 0 and tokens[start - 1] == opening
                start, end = (start - 1, end) if has_partner else (start, end - 1)
        return Span(start, end)

    def options(self, row: int) -> tuple[Options, FloatArray]:
        """Returns the options of the block in this row of the evidence, and P(option | block).

        Where yes and no are not told apart, yes has the probability of both.
        """
        options = self.evidence.options(row)
        likely = options.probabilities(self.config.weights)
        if not self.config.says_yes_no:
            both = np.isin(options.types, NO_SPANS[1:])
            likely[both] = likely[both].sum() * (options.types[both] == AnswerType.YES)
        return options, likely

    def short_spans(self, limit: int) -> list[tuple[Span, float]]:
        """Returns the most probable short answers in all blocks, best first."""
        spans: list[tuple[Span, float]] = []
        for row, probability in enumerate(self.probabilities.tolist()):
            options, likely = self.options(row)
            is_short = (options.types == AnswerType.SHORT) & ~options.crosses
            for i in np.flatnonzero(is_short).tolist():
                start, end = options.spans[i].tolist()
                spans.append((Span(start, end + 1), probability * float(likely[i])))
        return sorted(spans, key=lambda item: -item[1])[:limit]


def rank(example: Example, scores: Scores, config: DecisionConfig) -> Ranking:
    """Ranks the blocks of an example by its scores."""
    if isinstance(scores, WindowScores):
        evidence = gather_evidence(example, scores, config.max_answer_length)
    else:
        evidence = _cascade_evidence(example, scores, config)
    return Ranking(example, evidence, config)


def decision_margin(ranking: Ranking) -> float:
    """Returns the smallest change of a log odds that would change the default decision.

    It compares the probability of the best block with its threshold. If the block is given, it also
    compares the block with the next one, the probability of its best short answer with its
    threshold and, if that is given too, the short answer with the next one. If the block is not
    given, no other block can be: that would have to gain more to reach the threshold. The margin of
    a page without blocks is infinite.
    """
    blocks = ranking.probabilities
    config = ranking.config
    if not len(blocks):
        return math.inf
    row = int(np.argmax(blocks))
    best = ranking.alternative(row)
    long = log_odds(best.long_probability) - log_odds(config.long_threshold)
    if long < 0:
        return -long
    short = log_odds(best.short_probability) - log_odds(config.short_threshold)
    gaps = [long, abs(short), _lead(blocks)]
    if short >= 0:
        options, likely = ranking.options(row)
        gaps.append(_lead(likely[options.types != AnswerType.LONG]))
    return min(gaps)


def _lead(probabilities: FloatArray) -> float:
    """Returns the log ratio of the largest and second largest value; infinite for one value."""
    if len(probabilities) < 2:
        return math.inf
    second, first = np.partition(probabilities, -2)[-2:]
    return float(np.log(first / second)) if second > 0 else math.inf


def _cascade_evidence(
    example: Example,
    scores: CascadeScores,
    config: DecisionConfig,
) -> Evidence:
    """Returns the evidence of the reader for the blocks read, with the block scores of the ranker.

    A block for which the ranker has no evidence has the lowest of its block scores.
    """
    if not isinstance(config, CascadeDecision):
        raise Error("these are the scores of two models: give the decision of both")
    blocks = Blocks.of(example)
    read = blocks.only(scores.read)
    evidence = gather_evidence(example, scores.reader, config.max_answer_length, read)
    other = gather_evidence(example, scores.ranker, config.first.max_answer_length, blocks)
    other_scores = config.first.weights.evidence * other.block_scores()
    block_scores = np.full(len(blocks.candidates), other_scores.min(initial=0.0))
    block_scores[other.rows(blocks)] = other_scores
    features = np.column_stack([evidence.features, block_scores[evidence.rows(blocks)]])
    return replace(evidence, features=features)


def log_odds(probability: float) -> float:
    """Returns ``logit(p)``, clipped so that it is finite for 0 and 1 too."""
    p = min(max(probability, 1e-9), 1 - 1e-9)
    return float(np.log(p) - np.log1p(-p))  # scipy.special.logit differs in the last bit
