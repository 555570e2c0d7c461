"""``prune``: the model computes only those windows of a page that are likely to matter.

Windows overlap several times, and the prior utility of a block (BM25 and length of the page,
``Blocks.prior``) is known before the model runs. With the largest weighted evidence to expect
(``RankingWeights.max_evidence``) it bounds the utility of a block. So, for each page:

1. windows that hardly overlap are computed in the order of their bounds, as long as one of them can
   come within ``far`` of the best utility so far, that of "no answer" included;
2. then all windows with a block within ``near`` of the best utility, which may raise it;
3. both again on the next level, until the decision margin is at least ``margin``; if it never is,
   all windows.

A window that is not computed contributes no evidence, so that answers may change; ``python -m
experiments.margin`` measures how many.
"""

from collections.abc import Callable, Generator, Sequence

import numpy as np
from numpy.typing import NDArray

from nq.config import DecisionConfig
from nq.inference.scorer import (
    Progress,
    Rows,
    Scorer,
    ScorerWrapper,
    example_slices,
    no_progress,
    window_scores,
)
from nq.postprocess.blocks import Blocks
from nq.postprocess.ranking import decision_margin, rank
from nq.records import READ, Columns, Example, IntArray

BoolArray = NDArray[np.bool_]

NEAR = 2.5
"""Blocks with a utility less far below the best one are computed in all their windows."""
LEVELS = ((0.0, 0.3), (1.0, 0.1), (2.0, 0.06), (3.0, 0.04))
"""How carefully a page is read: how far below the best utility the bounds of a window may be, and
the decision margin with which the page is done. All these values are differences of log odds."""
WINDOWS_AT_ONCE = 4
PART_FACTOR = 16
"""Parts with so many times more windows: of each page only some fill the batches."""
OVERLAP = 0.125
"""Share of a window that overlaps the next one in the first pass over a page."""


class PruningScorer(ScorerWrapper):
    """Scores the windows of examples by computing only those that may change the decision."""

    def __init__(self, inner: Scorer, decision: DecisionConfig, near: float = NEAR) -> None:
        super().__init__(inner)
        self.decision, self.near = decision, near
        self.part_batches = PART_FACTOR * inner.part_batches

    def scores(
        self, rows: Rows, examples: Sequence[Example], progress: Progress = no_progress
    ) -> Columns:
        """See ``Scorer.scores``; the column ``READ`` tells which windows were computed."""

        def compute(windows: IntArray) -> Columns:
            return self.inner.scores({name: rows[name][windows] for name in rows}, (), progress)

        columns = pruned_scores(
            compute, rows["token_map"], examples, example_slices(rows), self.decision, self.near
        )
        progress(int((~columns[READ]).sum()))
        return columns


def pruned_scores(
    compute: Callable[[IntArray], Columns],
    token_map: IntArray,
    examples: Sequence[Example],
    pages: Sequence[slice],
    decision: DecisionConfig,
    near: float = NEAR,
) -> Columns:
    """Returns the columns ``SCORE_COLUMNS`` and ``READ`` of all N windows, most not computed.

    ``compute`` returns the columns ``SCORE_COLUMNS`` of the windows with these ascending numbers,
    ``token_map`` is ``[N, L]``, and ``pages`` has the windows of each example.
    """
    plans = [
        _page_plan(example, token_map[page], decision, near)
        for example, page in zip(examples, pages, strict=True)
    ]
    chosen = [next(plan) for plan in plans]
    table: Columns = {READ: np.zeros(len(token_map), np.bool_)}
    while True:
        parts = [page.start + new for page, new in zip(pages, chosen, strict=True)]
        windows = np.sort(np.concatenate(parts))
        if not len(windows):
            return table
        for name, values in compute(windows).items():
            if name not in table:
                shape = len(token_map), *values.shape[1:]
                table[name] = np.full(shape, -1 if name.endswith("_doc") else 0, values.dtype)
            table[name][windows] = values
        table[READ][windows] = True
        for n, (plan, page) in enumerate(zip(plans, pages, strict=True)):
            if len(chosen[n]):
                chosen[n] = plan.send({name: column[page] for name, column in table.items()})


def _page_plan(
    example: Example, token_map: IntArray, decision: DecisionConfig, near: float
) -> Generator[IntArray, Columns]:
    """Yields the numbers of the windows of a page to compute next; none when the page is done.

    It receives ``READ`` and the scores of the page that are computed so far.
    """
    blocks, weights, tokens = Blocks.of(example), decision.weights, tokens_in_windows(token_map)
    contains = _blocks_in_windows(tokens, blocks)
    bounds = blocks.prior(weights) + weights.max_evidence
    bound = np.where(contains, bounds, -np.inf).max(axis=1, initial=-np.inf)
    queue = covering_windows(tokens)
    queue = queue[np.argsort(-bound[queue], kind="stable")]
    levels, windows = list(LEVELS), queue[:WINDOWS_AT_ONCE]
    while levels:
        columns = yield windows
        computed = columns[READ]
        scores = window_scores({name: column[computed] for name, column in columns.items()})
        ranking = rank(example, scores, decision, blocks)
        best = ranking.utility.max(initial=weights.null)
        margin = decision_margin(ranking)
        if not len(ranking.utility) and len(blocks.candidates):
            margin = -np.inf  # the other windows may have evidence for a block
        queue = queue[~computed[queue]]
        first = queue[:WINDOWS_AT_ONCE]
        while levels:
            far, enough = levels[0]
            windows = first[bound[first] >= best - far]
            if not len(windows):
                close = ranking.evidence.blocks[ranking.utility > best - near]
                with_close = contains[:, np.isin(blocks.candidates, close)].any(axis=1)
                windows = np.flatnonzero(with_close & ~computed)
            if len(windows):
                break
            if margin >= enough:
                yield windows
            levels.pop(0)
    yield np.flatnonzero(~computed)
    yield np.empty(0, np.int64)


def tokens_in_windows(token_map: IntArray) -> BoolArray:
    """Returns which of T document tokens each window of an example contains, ``[W, T + 1]``.

    The last column is that of token -1, which no window contains.

    >>> tokens_in_windows(np.array([[-1, 0, 2], [-1, 2, -1]])).astype(int).tolist()
    [[1, 0, 1, 0], [0, 0, 1, 0]]
    """
    contains = np.zeros((len(token_map), token_map.max(initial=-1) + 2), np.bool_)
    contains[np.arange(len(token_map))[:, None], token_map] = True
    contains[:, -1] = False
    return contains


def _blocks_in_windows(tokens: BoolArray, blocks: Blocks) -> BoolArray:
    """Returns whether each window contains a word of each block, ``[W, B]``."""
    n_blocks = len(blocks.candidates)
    contains = np.zeros((len(tokens), n_blocks + 1), np.bool_)
    window, token = np.nonzero(tokens[:, :-1])
    block = blocks.of_token[token]
    column = np.searchsorted(blocks.candidates, block)
    contains[window, np.where(block < 0, n_blocks, column)] = True
    return contains[:, :-1]


def covering_windows(tokens: BoolArray) -> IntArray:
    """Returns few windows of one example that contain all its text, with a small overlap.

    The next window is the last one that contains the first missing token and some before it; where
    none does, the first that contains the missing one.

    >>> covering_windows(tokens_in_windows(np.arange(0, 50, 10)[:, None] + np.arange(36))).tolist()
    [0, 3, 4]
    """
    present = np.flatnonzero(tokens.any(axis=0))
    chosen, covered, overlap = list[int](), np.zeros(len(present), np.bool_), 0
    while not covered.all():
        missing = int(covered.argmin())
        with_missing = tokens[:, present[missing]]
        both = np.flatnonzero(with_missing & tokens[:, present[max(0, missing - overlap)]])
        chosen.append(int(both[-1]) if len(both) else int(with_missing.argmax()))
        new = tokens[chosen[-1], present]
        covered |= new
        overlap = int(np.ceil(OVERLAP * np.count_nonzero(new)))
    return np.unique(chosen).astype(np.int64) if chosen else np.arange(min(1, len(tokens)))
