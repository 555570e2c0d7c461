"""``prune``: the model computes only the windows of the blocks that share most with the question.

These are the blocks of a page with the highest BM25 scores (``nq.postprocess.blocks``), as many as
the decision's ``prune_blocks``, and all windows with a word of one of them. The other windows have
no evidence for a block, so that answers may change: docs/profiles.md tells how many do.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nq.inference.scorer import PART_FACTOR, Rows, Scorer, ScorerWrapper, Steps, example_slices
from nq.postprocess.blocks import blocks_in_windows
from nq.records import READ, Columns, Example, IntArray


class PruningScorer(ScorerWrapper):
    """Scores the windows with a word of the ``n_blocks`` blocks of a page with the best BM25."""

    def __init__(self, inner: Scorer, n_blocks: int) -> None:
        super().__init__(inner)
        self.n_blocks = n_blocks
        self.part_batches = PART_FACTOR * inner.part_batches

    def steps(self, rows: Rows, examples: Sequence[Example]) -> Steps:
        """See ``Scorer.steps``; the column ``READ`` tells which windows were computed."""
        computed = np.concatenate(
            [
                windows_to_compute(example, rows["token_map"][page], self.n_blocks)
                for example, page in zip(examples, example_slices(rows), strict=True)
            ]
        )
        read = {name: x[computed] for name, x in rows.items()}
        scored = yield from self.inner.steps(read, ())
        columns: Columns = {READ: computed}
        for name, values in scored.items():
            fill = -1 if name.endswith("_doc") else 0
            columns[name] = np.full((len(computed), *values.shape[1:]), fill, values.dtype)
            columns[name][computed] = values
        return columns


def windows_to_compute(example: Example, token_map: IntArray, n_blocks: int) -> NDArray[np.bool_]:
    """Returns which windows of an example ``prune`` computes, ``[W]``; at least one.

    ``token_map`` is ``[W, L]``, -1 for no document token. Of equal BM25 scores the earlier block
    of the page counts.
    """
    blocks = blocks_in_windows(example, token_map)
    best = np.argsort(-blocks.features[:, 0], kind="stable")[:n_blocks]
    of_position = np.where(token_map < 0, -1, blocks.of_token[token_map])
    computed = np.asarray(np.isin(of_position, blocks.candidates[best]).any(axis=1))
    return computed if computed.any() else np.arange(len(computed)) == 0
