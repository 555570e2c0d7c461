"""The default decision: block, span and type of the answer chosen together, by probability.

A hypothesis is a window, a pair of positions in one top-level block, and a type. Its evidence
is how much more likely the model holds it than "no answer" in that window,

    log P(start, end, type) - log P([CLS], [CLS], UNKNOWN)
        = (start + end logit) - ([CLS] start + end logit) + type logit - UNKNOWN logit,

in which the normalisers of the three softmaxes cancel. A model that learnt its training data by
heart is too sure: evidence counts as much as held-out data show (a temperature, the inverse of
``RankingWeights.evidence``). What a window says for a block is the log-sum-exp over its positions
there; of several windows, which are no independent witnesses, the one that says most speaks. For
one answer in a block all of its hypotheses add up. A model without a head for types (all its type
logits are 0) says neither yes nor no: both would outweigh any one span. What words block and
question share counts too (``overlap``), and where on its page a block stands (``place``). Two
softmaxes follow, whose weights are ``config.RankingWeights``:

    P(block) over the blocks of the page and "no answer",
    P(option | block) over its short spans, yes, no and "the whole block".

The most probable block is the long answer, its most probable option but the last one the short
answer; both probabilities are scaled to what the tuning data show (Platt 1999) and held against
thresholds of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

import numpy as np

from nq.config import DecisionConfig, RankingWeights
from nq.postprocess.bm25 import overlap
from nq.postprocess.position_prior import place
from nq.postprocess.spans import Pairs, pairs
from nq.records import (
    Alternative,
    AnswerType,
    Example,
    FloatArray,
    IntArray,
    Prediction,
    Span,
    WindowScores,
    YesNo,
)

KINDS = (AnswerType.SHORT, AnswerType.LONG, AnswerType.YES, AnswerType.NO)
_WITHOUT_TYPES = KINDS[:2]
_YES_NO = {AnswerType.YES: YesNo.YES, AnswerType.NO: YesNo.NO}
_SHORT = KINDS.index(AnswerType.SHORT)
APPARATUS = (("^",), ("Jump", "up"), ("This", "page", "was", "last", "edited"))


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """The blocks of a page, and what is known of them before anything is read.

    Args:
        of_token: ``[T]`` which of them each document token lies in, -1 for none.
        candidates: ``[B]`` their indices; blocks without a word are left out.
        features: ``[B, 4]`` in the order of ``RankingWeights.block_vector``.
    """

    of_token: IntArray
    candidates: IntArray
    features: FloatArray

    @classmethod
    def of(cls, example: Example) -> Blocks:
        """Those of a page."""
        of_token = blocks(example)
        found = np.unique(of_token[(of_token >= 0) & ~np.array(example.is_html, np.bool_)])
        types = [example.block_type(example.candidates[i].span) for i in found]
        held = np.where(np.isin(of_token, found), of_token, -1)
        features = np.column_stack([overlap(example, found.tolist()), place(types)])
        return cls(held, found, features)

    def utility(self, weights: RankingWeights) -> FloatArray:
        """``[B]`` what is known of each, as its probability counts it."""
        return self.features @ weights.block_vector()


@dataclass(frozen=True, slots=True, eq=False)
class Hypotheses:
    """What the model says for each of some choices, window by window.

    Args:
        evidence: ``[H]`` of each hypothesis, finite.
        reading: ``[H]`` which of R readings it belongs to, rising: what one window says for one
            choice. Each has one at least.
        choice: ``[R]`` the choice of each reading, rising; each choice has one at least.
    """

    evidence: FloatArray
    reading: IntArray
    choice: IntArray

    def said(self, weight: float) -> FloatArray:
        """``[N]`` for each choice by the window that says most, evidence counted ``weight``."""
        return self.said_and_slope(weight)[0]

    def said_and_slope(self, weight: float) -> tuple[FloatArray, FloatArray]:
        """The same, and its derivative by the weight ``[N]``.

        Args:
            weight: above 0.
        """
        if not len(self.reading):
            return np.empty(0), np.empty(0)
        begin = _firsts(self.reading)
        highest = np.maximum.reduceat(self.evidence, begin)
        powers = np.exp(weight * (self.evidence - highest[self.reading]))
        total = np.add.reduceat(powers, begin)
        mean = np.add.reduceat(powers * self.evidence, begin) / total
        readings = weight * highest + np.log(total)
        speaks = np.lexsort((-readings, self.choice))[_firsts(self.choice)]
        return readings[speaks], mean[speaks]


@dataclass(frozen=True, slots=True, eq=False)
class Options:
    """What one block may say in short.

    Args:
        kinds: ``[O]`` ``AnswerType`` of each.
        spans: ``[O]`` the document tokens that it rests on, start and inclusive end ``[O, 2]``.
        evidence: ``[O]`` of all hypotheses of each.
        features: ``[O, 4]`` in the order of ``RankingWeights.option_vector``.
    """

    kinds: IntArray
    spans: IntArray
    evidence: FloatArray
    features: FloatArray

    def probabilities(self, weights: RankingWeights) -> FloatArray:
        """``[O]`` P(option | block)."""
        said = weights.short_evidence * self.evidence
        return _softmax(said + self.features @ weights.option_vector())


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """What the windows of an example say for each block of its page.

    Args:
        blocks: ``[B]`` indices of candidates, those with a hypothesis only.
        features: ``[B, 4]`` in the order of ``RankingWeights.block_vector``.
        found: all pairs that lie in one block.
        pair_block: ``[P]`` which row of ``blocks`` each pair lies in.
        likely: ``[K, P]`` evidence of each pair as each of the first K of ``KINDS``.
    """

    blocks: IntArray
    features: FloatArray
    found: Pairs
    pair_block: IntArray
    likely: FloatArray

    @property
    def hypotheses(self) -> Hypotheses:
        """Of the blocks."""
        _, pair = possible = np.nonzero(np.isfinite(self.likely))
        window = self.found.window[pair]
        windows = int(window.max(initial=0)) + 1
        keys = self.pair_block[pair] * windows + window
        order = np.argsort(keys, kind="stable")
        of_reading, reading = np.unique(keys[order], return_inverse=True)
        said = self.likely[possible][order]
        return Hypotheses(said, reading.reshape(-1), of_reading // windows)

    def utility(self, weights: RankingWeights) -> FloatArray:
        """``[B]`` log P(block), but for a constant of the page."""
        return self.hypotheses.said(weights.evidence) + self.features @ weights.block_vector()

    def probabilities(self, weights: RankingWeights) -> FloatArray:
        """``[B]`` P(block); what is missing to 1 is P("no answer")."""
        return _softmax(np.append(self.utility(weights), weights.null))[:-1]

    def options(self, row: int) -> Options:
        """The options of the block in that row."""
        inside = self.pair_block == row
        found, likely = self.found.where(inside), self.likely[:, inside]
        short = np.isfinite(likely[_SHORT])
        spans = np.column_stack([found.start_doc, found.end_doc])
        distinct, which = np.unique(spans[short], axis=0, return_inverse=True)
        together = _logsumexp_by(likely[_SHORT, short], which.reshape(-1), len(distinct))
        best = likely.argmax(axis=1)
        others = [i for i in range(len(likely)) if i != _SHORT]
        kinds = np.array([AnswerType.SHORT] * len(distinct) + [KINDS[i] for i in others])
        length = np.append(np.log1p(distinct[:, 1] - distinct[:, 0]), [0.0] * len(others))
        flags = [kinds == kind for kind in KINDS[1:]]
        return Options(
            kinds,
            np.concatenate([distinct, spans[best[others]]]),
            np.append(together, np.logaddexp.reduce(likely[others], axis=1)),
            np.column_stack([length, *flags]),
        )


def evidence(
    example: Example, scores: WindowScores, max_pieces: int, page: Blocks | None = None
) -> Evidence:
    """What all windows of an example say, by block.

    Args:
        example: the page.
        scores: of all its windows.
        max_pieces: length of a short answer at most.
        page: its blocks, if they are at hand.
    """
    page = page or Blocks.of(example)
    found = pairs(scores)
    first = page.of_token[found.start_doc]
    inside = (first >= 0) & (first == page.of_token[found.end_doc])
    found, first = found.where(inside), first[inside]
    likely = _hypotheses(found, scores, max_pieces)
    present, pair_block = np.unique(first, return_inverse=True)
    known = page.features[np.searchsorted(page.candidates, present)]
    return Evidence(present, known, found, pair_block.reshape(-1), likely)


def choose(example: Example, scores: WindowScores, config: DecisionConfig) -> Prediction:
    """The most probable block and answer; null where a probability is below its threshold."""
    best = alternatives(example, scores, config, 1)
    if not best:
        return Prediction(example.example_id)
    long, short = best[0].long_probability, best[0].short_probability
    given = short >= config.short_threshold
    return Prediction(
        example.example_id,
        best[0].long if long >= config.long_threshold else None,
        long,
        best[0].shorts if given else (),
        short,
        best[0].yes_no if given else YesNo.NONE,
    )


def alternatives(
    example: Example, scores: WindowScores, config: DecisionConfig, limit: int
) -> tuple[Alternative, ...]:
    """The most probable blocks, each with its most probable short answer, best first."""
    found, weights = evidence(example, scores, config.max_answer_length), config.weights
    likely = found.probabilities(weights)
    best = np.argsort(-likely, kind="stable")[:limit]
    return tuple(alternative(example, found, int(i), float(likely[i]), weights) for i in best)


def alternative(
    example: Example, found: Evidence, row: int, probability: float, weights: RankingWeights
) -> Alternative:
    """The block in a row of the evidence, with its most probable short answer."""
    options = found.options(row)
    likely = np.where(options.kinds == AnswerType.LONG, -1.0, options.probabilities(weights))
    best = int(np.argmax(likely))
    kind, (start, end) = AnswerType(int(options.kinds[best])), options.spans[best].tolist()
    return Alternative(
        example.candidates[int(found.blocks[row])].span,
        (Span(start, end + 1),) if kind is AnswerType.SHORT else (),
        _YES_NO.get(kind, YesNo.NONE),
        scaled(probability, weights.long_scale, weights.long_shift),
        scaled(probability * float(likely[best]), weights.short_scale, weights.short_shift),
    )


def scaled(probability: float, scale: float, shift: float) -> float:
    """Platt's scaling, ``sigmoid(scale * logit(p) + shift)``.

    >>> round(scaled(0.25, 1.0, 0.0), 6), scaled(0.5, 2.0, 0.0), scaled(1.0, 1.0, 0.0) < 1
    (0.25, 0.5, True)
    """
    return float(1 / (1 + np.exp(-(scale * log_odds(probability) + shift))))


def log_odds(probability: float) -> float:
    """``logit(p)``, finite for 0 and 1 too."""
    p = min(max(probability, 1e-9), 1 - 1e-9)
    return float(np.log(p) - np.log1p(-p))


def blocks(example: Example) -> IntArray:
    """For each document token the first top-level candidate that holds it.

    -1 for none, and for what Wikipedia puts below an article: notes, references, the page's date.
    """
    block = np.full(len(example.tokens), -1)
    for index in range(len(example.candidates) - 1, -1, -1):
        candidate = example.candidates[index]
        if candidate.top_level:
            span = candidate.span
            block[span.start : span.end] = -1 if _is_apparatus(example, span) else index
    return block


def _is_apparatus(example: Example, span: Span) -> bool:
    """Whether a block begins as notes, references and the foot of a page do."""
    words = (i for i in range(span.start, span.end) if not example.is_html[i])
    first = [example.tokens[i] for i in islice(words, max(map(len, APPARATUS)))]
    return any(first[: len(words)] == list(words) for words in APPARATUS)


def _hypotheses(found: Pairs, scores: WindowScores, max_pieces: int) -> FloatArray:
    """``[K, P]`` evidence; -inf for a short answer that is too long."""
    types = scores.type_logits.astype(np.float64)
    kinds = KINDS if types.any() else _WITHOUT_TYPES
    gain = types[:, kinds] - types[:, [AnswerType.UNKNOWN]]
    likely = found.score + gain[found.window].T
    likely[_SHORT, found.end_pos - found.start_pos >= max_pieces] = -np.inf
    return np.asarray(likely)


def _softmax(utility: FloatArray) -> FloatArray:
    powers = np.exp(utility - utility.max())
    return np.asarray(powers / powers.sum())


def _firsts(groups: IntArray) -> IntArray:
    """Where each group begins; ``groups`` rise."""
    return np.flatnonzero(np.diff(groups, prepend=-1))


def _logsumexp_by(values: FloatArray, group: IntArray, n: int) -> FloatArray:
    """Log-sum-exp of ``values`` in each of ``n`` groups, none of them empty."""
    highest = np.full(n, -np.inf)
    np.maximum.at(highest, group, values)
    total = np.zeros(n)
    np.add.at(total, group, np.exp(values - highest[group]))
    return np.asarray(highest + np.log(total))
