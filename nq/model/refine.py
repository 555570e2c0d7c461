"""Coarse to fine: which windows of a page are read, and what stands for the others.

Fine windows overlap several times. First those are read that hardly overlap; then the others
that hold the best span of a window whose evidence is within ``MARGIN`` of the page's best. A
window that is not read says what the one that was read there says of the same text.

The margin was found on the even half of dev (``python -m experiments.margin``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from nq.formats.results import SCORES
from nq.postprocess.answers import pairs
from nq.records import AnswerType, FloatArray, IntArray, WindowScores

MARGIN = 4.0
MOST = 4
OVERLAP = 0.125

Columns = Mapping[str, np.ndarray]
Score = Callable[[IntArray], Columns]


def read(
    score: Score,
    token_map: IntArray,
    examples: Sequence[slice],
    margin: float = MARGIN,
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Scores of all windows, most of them without reading them.

    Args:
        score: gives the columns ``SCORES`` of the windows with those numbers.
        token_map: ``[N, L]`` of all windows.
        examples: which windows belong together.
        margin: how far from a page's best a window may be to be read again in detail.

    Returns:
        The columns of all windows, and which of these were read, ``[N]``.
    """
    low, high = ranges(token_map)
    first = np.concatenate([e.start + coarse(low[e], high[e]) for e in examples])
    found = dict(score(first))
    second = [
        _fine(_rows(found, np.searchsorted(first, part)), part, e, low, high, margin)
        for e, part in _by_example(first, examples)
    ]
    more = np.setdiff1d(np.concatenate(second), first)
    if len(more):
        added = score(more)
        found = {name: np.concatenate([found[name], added[name]]) for name in SCORES}
    windows = np.concatenate([first, more])
    order = np.argsort(windows, kind="stable")
    windows, found = windows[order], {name: found[name][order] for name in SCORES}
    return _complete(found, windows, examples, low, high), np.isin(np.arange(len(low)), windows)


def ranges(token_map: IntArray) -> tuple[IntArray, IntArray]:
    """First and last document token of each window ``[N]``; -1 for windows without text."""
    text = token_map >= 0
    low = np.where(text, token_map, np.iinfo(token_map.dtype).max).min(axis=1)
    high = token_map.max(axis=1)
    return np.where(high >= 0, low, -1), high


def coarse(low: IntArray, high: IntArray) -> IntArray:
    """As few windows of one example as hold all of its text, each overlapping the next a little.

    Every window after a chosen one that begins early enough in it may be the next: the last is.

    >>> coarse(np.array([0, 10, 20, 30, 40]), np.array([35, 45, 55, 65, 75])).tolist()
    [0, 3, 4]
    """
    chosen = [0]
    while chosen[-1] < len(low) - 1:
        now = chosen[-1]
        until = high[now] - OVERLAP * (high[now] - low[now])
        later = np.arange(now + 1, len(low))
        near = later[low[later] <= until]
        chosen.append(int(near[-1]) if len(near) else now + 1)
    return np.array(chosen)


def evidence(scores: WindowScores) -> tuple[FloatArray, IntArray]:
    """Evidence of the best span of each window ``[W]`` and its document tokens ``[W, 2]``.

    -inf and -1 where a window has no span.
    """
    types = scores.type_logits.astype(np.float64)
    gain = np.logaddexp.reduce(types[:, 1:], axis=1) - types[:, AnswerType.UNKNOWN]
    found = pairs(scores)
    window, best = np.unique(found.window, return_index=True)  # best first
    likely = np.full(len(scores), -np.inf)
    likely[window] = found.score[best] + gain[window]
    span = np.full((len(scores), 2), -1)
    span[window] = np.column_stack([found.start_doc[best], found.end_doc[best]])
    return likely, span


def _fine(
    scores: WindowScores,
    windows: IntArray,
    example: slice,
    low: IntArray,
    high: IntArray,
    margin: float,
) -> IntArray:
    """The windows of an example that hold a span which may be its answer."""
    likely, span = evidence(scores)
    best = np.argsort(-likely, kind="stable")[:MOST]
    close = best[likely[best] >= likely.max() - margin]
    starts, ends = span[close, 0], span[close, 1]
    numbers = np.arange(example.start, example.stop)
    holds = (low[numbers, None] <= starts) & (ends <= high[numbers, None]) & (starts >= 0)
    kept: IntArray = numbers[holds.any(axis=1)]
    return kept


def _complete(
    found: Columns, windows: IntArray, examples: Sequence[slice], low: IntArray, high: IntArray
) -> dict[str, np.ndarray]:
    """The columns of all windows; those that were not read say what their likest one says."""
    nearest = np.empty(examples[-1].stop, np.int64)
    for example, part in _by_example(windows, examples):
        numbers = np.arange(example.start, example.stop)[:, None]
        shared = np.minimum(high[numbers], high[part]) - np.maximum(low[numbers], low[part])
        distance = np.abs(numbers - part)
        likest = np.lexsort((distance, -shared), axis=1)[:, 0]
        nearest[example] = np.searchsorted(windows, part)[likest]
    columns = {name: found[name][nearest] for name in SCORES}
    unread = np.setdiff1d(np.arange(len(nearest)), windows)
    for name in ("start_doc", "end_doc"):
        doc = columns[name][unread]
        inside = (low[unread, None] <= doc) & (doc <= high[unread, None])
        columns[name][unread] = np.where(inside, doc, -1)
    return columns


def _by_example(windows: IntArray, examples: Sequence[slice]) -> list[tuple[slice, IntArray]]:
    """The chosen windows of each example; ``windows`` are sorted."""
    return [
        (e, windows[np.searchsorted(windows, e.start) : np.searchsorted(windows, e.stop)])
        for e in examples
    ]


def _rows(columns: Columns, rows: IntArray) -> WindowScores:
    return WindowScores(**{name: columns[name][rows] for name in SCORES})
