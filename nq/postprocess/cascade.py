"""A cascade: one model ranks the blocks of a page, another one reads the best.

The ranker has scored all windows, and its decision orders the blocks. The evidence is then that of
the second model, for the blocks that it read; the others are no answers. The ranker's block score
is one more feature of a block,

    log P(block) = evidence of the second model + ranker * block score + prior features + constant,

a weighted sum of the log odds of both models, as scores of retrievers and readers are interpolated
in BERTserini (Yang et al. 2019). The short answers within a block are the second model's alone.

A second model that is a dual encoder has no short answers: it ranks the best blocks again, as the
second stage of Nogueira and Cho (2019, https://arxiv.org/abs/1901.04085). Both models then change
places in the sum: the evidence and the short answers are those of the first model, and the block
score is the second one's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from nq.config import CascadeDecision, DecisionConfig
from nq.errors import Error
from nq.postprocess.blocks import Blocks
from nq.postprocess.evidence import Evidence, gather_evidence, only_ranks
from nq.records import CascadeScores, Example, FloatArray, IntArray, WindowScores


@dataclass(frozen=True, slots=True, eq=False)
class RankedBlock:
    """A block of a page in the order of a ranker.

    Args:
        candidate: its candidate index.
        starts: first document tokens of its spans, the span with the highest evidence first.
    """

    candidate: int
    starts: IntArray


def rank_blocks(
    example: Example, scores: WindowScores, decision: DecisionConfig, blocks: Blocks, limit: int
) -> list[RankedBlock]:
    """Returns the best blocks of a page, the best one first.

    Blocks without evidence come last, by their prior utility.

    Args:
        example: question and page.
        scores: of all windows of the ranker.
        decision: of the ranker.
        blocks: of the page.
        limit: number of blocks at most.
    """
    evidence = gather_evidence(example, scores, decision.max_answer_length, blocks)
    utility = np.full(len(blocks.candidates), -np.inf)
    utility[_rows(evidence, blocks)] = evidence.utility(decision.weights)
    order = np.lexsort((-blocks.prior(decision.weights), -utility))[:limit]
    highest = evidence.evidence.max(axis=0, initial=-np.inf)
    pairs = np.argsort(-highest, kind="stable")
    block, start = evidence.blocks[evidence.pair_block[pairs]], evidence.pairs.start_doc[pairs]
    return [RankedBlock(c, start[block == c]) for c in blocks.candidates[order].tolist()]


def cascade_evidence(
    example: Example, scores: CascadeScores, config: DecisionConfig, blocks: Blocks
) -> Evidence:
    """Returns the evidence of one model for the blocks read, with the block scores of the other.

    The evidence is the second model's, or the ranker's if the second one only ranks.

    Args:
        example: question and page.
        scores: of both models.
        config: a ``CascadeDecision``.
        blocks: of the page.

    Raises:
        Error: the decision is that of a single model.
    """
    if not isinstance(config, CascadeDecision):
        raise Error("these are the scores of two models: give the decision of both")
    answering, ranking = scores.second, scores.ranker
    if only_ranks(scores.second):
        answering, ranking = ranking, answering
    read = blocks.only(scores.read)
    evidence = gather_evidence(example, answering, config.max_answer_length, read)
    ranked = _block_scores(example, ranking, config.ranker, blocks)
    features = np.column_stack([evidence.features, ranked[_rows(evidence, blocks)]])
    return replace(evidence, features=features)


def _block_scores(
    example: Example, scores: WindowScores, decision: DecisionConfig, blocks: Blocks
) -> FloatArray:
    """Returns ``[B]`` the block scores of a model; where it has no evidence, the lowest one.

    Args:
        example: question and page.
        scores: of the model.
        decision: of the model that has scored all windows; its weight of the evidence counts.
        blocks: of the page.
    """
    evidence = gather_evidence(example, scores, decision.max_answer_length, blocks)
    known = evidence.hypotheses.scores(decision.weights.evidence)
    ranked = np.full(len(blocks.candidates), known.min(initial=0.0))
    ranked[_rows(evidence, blocks)] = known
    return ranked


def _rows(evidence: Evidence, blocks: Blocks) -> IntArray:
    return np.searchsorted(blocks.candidates, evidence.blocks)
