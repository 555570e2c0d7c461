"""Evidence: the log odds that the model gives each block, and each short answer in it.

A hypothesis is a window, a pair of positions in one top-level block, and an answer type. Its
evidence is its log odds against "no answer" in that window,

    log P(start, end, type) - log P([CLS], [CLS], UNKNOWN)
        = (start + end logit) - ([CLS] start + end logit) + type logit - UNKNOWN logit,

in which the normalizers of the three softmaxes cancel. The block score of a window is the
log-sum-exp over its hypotheses in the block; overlapping windows are not independent, so the block
score is that of the best window. A model that has memorized its training data is overconfident, so
block scores are multiplied by a weight (an inverse temperature, ``RankingWeights.evidence``). To
weigh the hypotheses instead before they are summed would favour blocks with many weak ones, such as
large tables. For one short answer in a block all hypotheses are summed. A model
without a head for types (all its type logits are 0) gives neither yes nor no, since both would
outweigh any single span. Neither does a question that asks for something else by a question word,
such as "how much was he paid", get them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nq.config import RankingWeights
from nq.postprocess.blocks import Blocks
from nq.postprocess.question_words import asks_for_words
from nq.postprocess.spans import Pairs, pairs, softmax
from nq.records import AnswerType, Example, FloatArray, IntArray, WindowScores

TYPES = (AnswerType.SHORT, AnswerType.LONG, AnswerType.YES, AnswerType.NO)
"""Answer types of hypotheses: SHORT and LONG come first, YES and NO last."""
IMPOSSIBLE = -1000.0
"""A type whose logits are below this is none that the model gives, as short answers are none of a
dual encoder."""


@dataclass(frozen=True, slots=True, eq=False)
class Options:
    """The possible short answers of one block.

    Args:
        types: ``[O]`` ``AnswerType`` of each; LONG means no short answer, only the block.
        spans: ``[O, 2]`` document tokens of its best pair, start and inclusive end.
        evidence: ``[O]`` log-sum-exp over all hypotheses of each.
        features: ``[O, 3]`` in the order of ``RankingWeights.option_vector``.
        crosses: ``[O]`` whether it goes over the end of a sentence, cell or item.
    """

    types: IntArray
    spans: IntArray
    evidence: FloatArray
    features: FloatArray
    crosses: IntArray

    def probabilities(self, weights: RankingWeights) -> FloatArray:
        """Returns P(option | block) ``[O]``: a softmax in which crossing spans then become 0."""
        evidence = weights.short_evidence * self.evidence
        likely = softmax(evidence + self.features @ weights.option_vector())
        return np.where(self.crosses, 0.0, likely)


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """The evidence in the windows of an example for each block of its page.

    Args:
        blocks: ``[B]`` candidate indices of the blocks that have a hypothesis.
        features: ``[B, F]`` in the order of ``RankingWeights.block_vector``.
        pairs: all P pairs within one block, whose rows in ``blocks`` ``pair_block`` has.
        evidence: ``[K, P]`` of each pair as each of the first K of ``TYPES``; -inf where a pair
            cannot have the type.
        parts: ``[T]`` as in ``Blocks``.
    """

    blocks: IntArray
    features: FloatArray
    pairs: Pairs
    pair_block: IntArray
    evidence: FloatArray
    parts: IntArray

    def rows(self, blocks: Blocks) -> IntArray:
        """Returns the index of each block among all blocks of the page."""
        return np.searchsorted(blocks.candidates, self.blocks)

    def block_scores(self) -> FloatArray:
        """Returns block scores ``[B]``: log-sum-exp of hypotheses in each block's best window."""
        _, pair = possible = np.nonzero(np.isfinite(self.evidence))
        window = self.pairs.window[pair]
        n_windows = int(window.max(initial=0)) + 1
        keys, group = np.unique(self.pair_block[pair] * n_windows + window, return_inverse=True)
        scores = _logsumexp_by_group(self.evidence[possible], group.reshape(-1), len(keys))
        best = np.full(len(self.blocks), -np.inf)
        np.maximum.at(best, keys // n_windows, scores)
        return best

    def utility(self, weights: RankingWeights) -> FloatArray:
        """Returns ``[B]`` log P(block), up to a constant of the page."""
        return weights.evidence * self.block_scores() + self.features @ weights.block_vector()

    def options(self, row: int) -> Options:
        inside = self.pair_block == row
        pairs = self.pairs.where(inside)
        evidence = self.evidence[:, inside]
        spans = np.column_stack([pairs.start_doc, pairs.end_doc])
        short = np.isfinite(evidence[0])
        distinct, span = np.unique(spans[short], axis=0, return_inverse=True)
        n = len(distinct)
        summed = _logsumexp_by_group(evidence[0, short], span.reshape(-1), n)
        others = evidence[1:]
        types = np.array([*[AnswerType.SHORT] * n, *TYPES[1 : len(evidence)]])
        none = np.zeros(len(others))
        length = np.append(np.log1p(distinct[:, 1] - distinct[:, 0]), none)
        crosses = np.diff(self.parts[distinct], axis=1).any(axis=1)
        return Options(
            types,
            np.concatenate([distinct, spans[others.argmax(axis=1)]]),
            np.append(summed, np.logaddexp.reduce(others, axis=1)),
            np.column_stack([length, types == AnswerType.LONG, np.isin(types, TYPES[2:])]),
            np.append(crosses, none.astype(bool)),
        )


def gather_evidence(
    example: Example,
    scores: WindowScores,
    max_pieces: int,
    blocks: Blocks | None = None,
) -> Evidence:
    """Gathers the evidence of all windows; a short answer has at most ``max_pieces``."""
    blocks = blocks or Blocks.of(example)
    all_pairs = pairs(scores)
    block = blocks.of_token[all_pairs.start_doc]
    inside = (block >= 0) & (block == blocks.of_token[all_pairs.end_doc])
    kept = all_pairs.where(inside)
    candidates, pair_block = np.unique(block[inside], return_inverse=True)
    features = blocks.features[np.searchsorted(blocks.candidates, candidates)]
    logits = scores.type_logits.astype(np.float64)
    types: Sequence[AnswerType] = TYPES
    gives_yes_no = logits.any() and (logits[:, TYPES[2:]] > IMPOSSIBLE).any()
    if asks_for_words(example.question) or not gives_yes_no:
        types = TYPES[:2]
    gain = logits[:, types] - logits[:, [AnswerType.UNKNOWN]]
    gain[gain < IMPOSSIBLE] = -np.inf
    evidence = kept.score + gain[kept.window].T
    evidence[0, kept.end_pos - kept.start_pos >= max_pieces] = -np.inf
    return Evidence(candidates, features, kept, pair_block.reshape(-1), evidence, blocks.parts)


def _logsumexp_by_group(
    values: FloatArray,
    group: IntArray,
    n: int,
) -> FloatArray:
    """Returns the log-sum-exp of ``values`` in each of ``n`` groups, none of them empty."""
    highest = np.full(n, -np.inf)
    np.maximum.at(highest, group, values)
    total = np.zeros(n)
    np.add.at(total, group, np.exp(values - highest[group]))
    return np.asarray(highest + np.log(total))
