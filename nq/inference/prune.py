"""``prune``: the model computes only the windows of the blocks that are most likely to be answers.

They are ranked by what is known before the model runs (``nq.postprocess.blocks``): by BM25, and in
an article also by place and length (``PRIOR``). The windows with a word of one of the best
``prune_blocks`` are computed. The other windows have no evidence for a block, so that answers may
change: docs/profiles.md tells how many do. Of the passages of a retriever they are those that it
ranks first, or if the decision has a weight for its score, those with the highest sum of BM25 and
that score.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nq.config import DecisionConfig, RankingWeights
from nq.inference.scorer import (
    PART_FACTOR,
    Rows,
    Scorer,
    ScorerWrapper,
    Steps,
    example_slices,
    no_value,
)
from nq.inference.vectors import Texts
from nq.postprocess.blocks import Blocks, blocks_in_windows
from nq.records import READ, Columns, Example, FloatArray, IntArray

PRIOR = RankingWeights(bm25=1.0, place=-1.5, words=0.5)
"""Of the coefficients tried, these rank gold blocks best (``experiments.block_recall``)."""


class PruningScorer(ScorerWrapper):
    """Scores the windows with a word of the best ``prune_blocks`` blocks of a page.

    With ``cls_id`` the windows are those of a dual encoder, and only the texts of these blocks.
    """

    def __init__(self, inner: Scorer, decision: DecisionConfig, cls_id: int | None = None) -> None:
        super().__init__(inner)
        self.decision = decision
        self._cls_id = cls_id
        self.part_batches = PART_FACTOR * inner.part_batches

    def steps(self, rows: Rows, examples: Sequence[Example]) -> Steps:
        """See ``Scorer.steps``; the column ``READ`` tells which windows were computed."""
        pages = zip(examples, example_slices(rows), strict=True)
        of_best = [
            best_positions(example, rows["token_map"][page], self.decision)
            for example, page in pages
        ]
        computed = np.concatenate([with_any(positions) for positions in of_best])
        read = {name: x[computed] for name, x in rows.items()}
        if self._cls_id is not None:
            texts = Texts.of(read, self._cls_id)
            read |= texts.kept(read, np.concatenate(of_best)[computed])
        scored = yield from self.inner.steps(read, ())
        columns: Columns = {READ: computed}
        for name, values in scored.items():
            shape = len(computed), *values.shape[1:]
            columns[name] = np.full(shape, no_value(name), values.dtype)
            columns[name][computed] = values
        return columns


def best_positions(
    example: Example, token_map: IntArray, decision: DecisionConfig
) -> NDArray[np.bool_]:
    """Returns which positions of an example are of a block that ``prune`` keeps, ``[W, L]``.

    ``token_map`` is ``[W, L]``, -1 for no document token. Of equal scores the earlier block of the
    page counts.
    """
    blocks = blocks_in_windows(example, token_map)
    scores = _scores(example, blocks, decision)
    best = np.argsort(-scores, kind="stable")[: decision.prune_blocks]
    block = np.where(token_map < 0, -1, blocks.of_token[token_map])
    return np.isin(block, blocks.candidates[best])


def with_any(positions: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Returns which windows have one of the positions ``[W, L]``; if none, the first."""
    windows = np.asarray(positions.any(axis=1))
    if not windows.any():
        windows[0] = True
    return windows


def _scores(example: Example, blocks: Blocks, decision: DecisionConfig) -> FloatArray:
    """Returns the scores of the blocks that are known before the model runs, ``[B]``."""
    if example.passages is None:
        return blocks.prior(PRIOR)
    if decision.weights.retriever:
        return blocks.prior(decision.weights)
    return -blocks.candidates.astype(np.float64)  # passages are in the retriever's order
