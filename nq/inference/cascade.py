"""A cascade: a ranker scores all windows of a page, a reader windows of its best blocks.

The reader may have another vocabulary and other window settings. Its windows are cut from the whole
page, as it has them alone, so that it gives them the scores that it gives alone. It computes the
windows of the blocks that rank best (``CascadeDecision.read_blocks``):

- A word is read in the window in which it has the most context on both sides, as in Google's BERT
  for SQuAD ("max context").
- Of a long block, such as a table of many windows, ``WINDOWS_PER_BLOCK`` at most are read, those in
  which the ranker found its best spans.
- A page with no more than ``read_blocks`` blocks is read in all windows.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nq.config import CascadeDecision, DecisionConfig
from nq.inference.scorer import (
    PART_FACTOR,
    Rows,
    Scorer,
    ScorerWrapper,
    Steps,
    concatenate,
    no_value,
    split_examples,
    uncounted,
    window_scores,
)
from nq.postprocess.blocks import Blocks, blocks_in_windows
from nq.postprocess.evidence import gather_evidence
from nq.records import (
    READ,
    READ_BLOCKS,
    READER_WINDOW,
    SCORE_COLUMNS,
    WINDOW_COLUMNS,
    Columns,
    Example,
    Features,
    IntArray,
    WindowScores,
)

log = logging.getLogger(__name__)

WINDOWS_PER_BLOCK = 4
SelectedWindows = tuple[IntArray, IntArray]
"""What the reader computes of a page: ``[R]`` ascending numbers of its windows, and
``[R, 2]`` the range of blocks that each one reads (``nq.records.READ_BLOCKS``)."""


class CascadeScorer(ScorerWrapper):
    """Scores all windows by ``inner``, and windows of the best blocks by ``reader``."""

    def __init__(
        self,
        inner: Scorer,
        reader: Scorer,
        reader_features: Callable[[Example], Features],
        decision: CascadeDecision,
    ) -> None:
        super().__init__(inner)
        self.reader = reader
        self.reader_features = reader_features
        self.decision = decision
        self.network = reader.network
        self.part_batches = max(inner.part_batches, PART_FACTOR * reader.part_batches)

    def steps(self, rows: Rows, examples: Sequence[Example]) -> Steps:
        """See ``Scorer.steps``; the ranker's windows precede the reader's in an example."""
        columns = yield from self.inner.steps(rows, examples)
        started = time.perf_counter()
        before = replace(self.reader.counters)
        keys = {name: column for name, column in rows.items() if name not in WINDOW_COLUMNS}
        pages = split_examples(rows, {**keys, **columns})
        selected = [self._select(*page) for page in zip(examples, pages, strict=True)]
        parts = [reader_rows for _, reader_rows in selected if reader_rows]
        read = columns
        if parts:
            read = yield from uncounted(self.reader, concatenate(parts))
        tables = list[Columns]()
        end = 0
        for page, (selection, _) in zip(pages, selected, strict=True):
            start, end = end, end + len(selection[0])
            tables.append(_joined(page, {n: x[start:end] for n, x in read.items()}, selection))
        done = self.reader.counters - before
        done.computed_windows = done.warmup_windows = 0
        done.reader_s = time.perf_counter() - started - done.compile_s - done.warmup_s
        self.counters.add(done)
        return concatenate(tables)

    def _select(self, example: Example, page: Columns) -> tuple[SelectedWindows, Columns]:
        """Returns the selection of a page for the reader, and the rows of its windows."""
        try:
            rows = self.reader_features(example).rows
        except ValueError as error:
            log.warning("the reader cannot read example %s: %s", example.example_id, error)
            return (np.empty(0, np.int64), np.empty((0, 2), np.int64)), {}
        blocks = blocks_in_windows(example, rows["token_map"])
        selection = select(example, window_scores(page), rows["token_map"], self.decision, blocks)
        return selection, {name: column[selection[0]] for name, column in rows.items()}


def rank_blocks(
    example: Example, scores: WindowScores, decision: DecisionConfig, blocks: Blocks, limit: int
) -> dict[int, IntArray]:
    """Returns the best blocks of a page by the scores and decision of the ranker, best first.

    Each candidate index has the first document tokens of the block's spans, the one with the
    highest evidence first. Blocks without evidence come last, by their prior utility.
    """
    evidence = gather_evidence(example, scores, decision.max_answer_length, blocks)
    utility = np.full(len(blocks.candidates), -np.inf)
    utility[evidence.rows(blocks)] = evidence.utility(decision.weights)
    order = np.lexsort((-blocks.prior(decision.weights), -utility))[:limit]
    highest = evidence.evidence.max(axis=0, initial=-np.inf)
    pairs = np.argsort(-highest, kind="stable")
    block = evidence.blocks[evidence.pair_block[pairs]]
    start = evidence.pairs.start_doc[pairs]
    return {c: start[block == c] for c in blocks.candidates[order].tolist()}


def select(
    example: Example,
    scores: WindowScores,
    token_map: IntArray,
    decision: CascadeDecision,
    blocks: Blocks,
) -> SelectedWindows:
    """Returns the windows of one page that the reader computes.

    The scores are the ranker's, ``token_map`` ``[W, L]`` and the blocks the reader's.
    """
    contains = tokens_in_windows(token_map)
    of_token = blocks.of_token[: contains.shape[1]]
    best = rank_blocks(example, scores, decision.first, blocks, decision.read_blocks)
    windows = np.arange(len(token_map))
    if len(blocks.candidates) > decision.read_blocks:
        of_word = max_context_windows(token_map)
        parts = [_windows_of(*block, of_word, of_token) for block in best.items()]
        windows = np.unique(np.concatenate(parts))
    missing = contains.any(axis=0) & ~contains[windows].any(axis=0)
    partly = np.setdiff1d(of_token[missing], list(best))
    whole = np.isin(of_token, blocks.candidates) & ~np.isin(of_token, partly)
    read = [of_token[tokens & whole] for tokens in contains[windows]]
    ranges = [(of.min(), of.max() + 1) if len(of) else (-1, -1) for of in read]
    return windows, np.array(ranges, np.int64).reshape(-1, 2)


def tokens_in_windows(token_map: IntArray) -> NDArray[np.bool_]:
    """Returns which of T document tokens each window of an example contains, ``[W, T]``.

    >>> tokens_in_windows(np.array([[-1, 0, 2], [-1, 2, -1]])).astype(int).tolist()
    [[1, 0, 1], [0, 0, 1]]
    """
    contains = np.zeros((len(token_map), token_map.max(initial=-1) + 2), np.bool_)
    contains[np.arange(len(token_map))[:, None], token_map] = True
    return contains[:, :-1]  # the last column is that of -1


def max_context_windows(token_map: IntArray) -> IntArray:
    """Returns the window in which each document token has the most context, ``[T]``.

    The context is the smaller number of positions to the first and to the last word of the window.
    Of equal windows the first counts; the value is -1 for tokens in no window.

    >>> max_context_windows(np.array([[0, 1, 2, 3], [2, 3, 4, 5], [4, 5, 6, -1]])).tolist()
    [0, 0, 0, 1, 1, 2, 2]
    """
    is_word = token_map >= 0
    length = token_map.shape[1]
    first = is_word.argmax(axis=1)[:, None]
    last = length - 1 - is_word[:, ::-1].argmax(axis=1)[:, None]
    pos = np.arange(length)
    context = np.minimum(pos - first, last - pos)[is_word]
    window = np.nonzero(is_word)[0]
    token = token_map[is_word]
    order = np.lexsort((-window, context))
    result = np.full(token_map.max(initial=-1) + 1, -1)
    result[token[order]] = window[order]  # the last one stays
    return result


def _windows_of(
    candidate: int, starts: IntArray, of_word: IntArray, of_token: IntArray
) -> IntArray:
    """Returns at most ``WINDOWS_PER_BLOCK`` windows of a block, those of its best spans first.

    ``starts`` are the first tokens of the spans, best first; ``of_word`` has the window of each
    document token, ``of_token`` its block.
    """
    windows = np.unique(of_word[(of_token == candidate) & (of_word >= 0)])
    in_page = starts[starts < len(of_word)]
    by_span = [window for window in of_word[in_page].tolist() if window >= 0]
    best_first = list(dict.fromkeys([*by_span, *windows.tolist()]))
    return np.array(best_first[:WINDOWS_PER_BLOCK], np.int64)


def _joined(page: Columns, read: Columns, selection: SelectedWindows) -> Columns:
    """Returns the windows of one example, the reader's behind the ranker's.

    Short windows have few positions, so that columns of one model may have to be filled up.
    """
    windows, read_blocks = selection
    n = len(page["window_ids"])
    n_read = len(windows)
    others = {name: np.repeat(column[:1], n_read, axis=0) for name, column in page.items()}
    others |= {**read, READ: np.ones(n_read, np.bool_)}
    table: Columns = {}
    for name, column in page.items():
        both = [column, others[name]]
        if name in SCORE_COLUMNS:
            width = max(x.shape[1] for x in both)
            both = [
                np.pad(x, [(0, 0), (0, width - x.shape[1])], constant_values=no_value(name))
                for x in both
            ]
        table[name] = np.concatenate(both)
    total = n + n_read
    ids = np.column_stack([np.arange(total), np.full(total, total)])
    table["window_ids"] = ids.astype(page["window_ids"].dtype)
    table[READER_WINDOW] = np.concatenate([np.full(n, -1), windows])
    table[READ_BLOCKS] = np.concatenate([np.full((n, 2), -1), read_blocks])
    return table
