"""Coarse to fine: which windows of a page are read, and what stands for the others.

Fine windows overlap several times. First those are read that hardly overlap; then the others
that hold the best span of a window whose evidence is within ``MARGIN`` of the page's best. A
window that is not read says what the nearest one that was read there says of the same text.

What a margin saves and what it costs, ``python -m experiments.margin`` tells: with these, one of
81 questions of dev changed (windows of 512, stride 128), for 86 % of the windows; of whole pages,
which are longer, about half of the windows are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from nq.formats.results import SCORES
from nq.postprocess.answers import pairs
from nq.records import AnswerType, FloatArray, IntArray, WindowScores

MARGIN = 32.0
MOST = 16
OVERLAP = 0.125

BoolArray = NDArray[np.bool_]
Columns = Mapping[str, np.ndarray]
Score = Callable[[IntArray], Columns]


def read(
    score: Score,
    token_map: IntArray,
    examples: Sequence[slice],
    margin: float = MARGIN,
    most: int | None = MOST,
) -> tuple[dict[str, np.ndarray], BoolArray]:
    """Scores of all windows, most of them without reading them.

    Args:
        score: gives the columns ``SCORES`` of the windows with those numbers, which rise.
        token_map: ``[N, L]`` of all windows.
        examples: which windows belong together; each belongs to one example.
        margin: how far from a page's best a window may be to be read again in detail.
        most: so many windows of a page, the best, are read again at most; ``None``: any number.

    Returns:
        The columns of all windows, and which of these were read ``[N]``.
    """
    texts = [text(token_map[e]) for e in examples]
    first = [e.start + coarse(t) for e, t in zip(examples, texts, strict=True)]
    table = _Table(score, len(token_map))
    table.read(first)
    table.read(
        e.start + fine(table.rows(windows), t, margin, most)
        for e, t, windows in zip(examples, texts, first, strict=True)
    )
    for e, t in zip(examples, texts, strict=True):
        table.complete(e, t)
    return table.columns, table.known


def text(token_map: IntArray) -> BoolArray:
    """Which document tokens each window of an example holds ``[W, T + 1]``.

    The last column is that of token -1, which none holds.

    >>> text(np.array([[-1, 0, 2], [-1, 2, -1]])).astype(int).tolist()
    [[1, 0, 1, 0], [0, 0, 1, 0]]
    """
    held = np.zeros((len(token_map), token_map.max(initial=-1) + 2), np.bool_)
    held[np.arange(len(token_map))[:, None], token_map] = True
    held[:, -1] = False
    return held


def coarse(held: BoolArray) -> IntArray:
    """Few windows of one example that hold all of its text, each overlapping the next a little.

    The next window is the last one that holds the first token which is still missing, and some
    before it; where none does, the first that holds the missing one.

    Args:
        held: see ``text``.

    >>> coarse(text(np.arange(0, 50, 10)[:, None] + np.arange(36))).tolist()
    [0, 3, 4]
    """
    tokens = np.flatnonzero(held.any(axis=0))
    found, seen, overlap = list[int](), np.zeros(len(tokens), np.bool_), 0
    while not seen.all():
        missing = int(seen.argmin())
        holds = held[:, tokens[missing]]
        both = np.flatnonzero(holds & held[:, tokens[max(0, missing - overlap)]])
        found.append(int(both[-1]) if len(both) else int(holds.argmax()))
        now = held[found[-1], tokens]
        seen |= now
        overlap = int(np.ceil(OVERLAP * np.count_nonzero(now)))
    return np.unique(found).astype(np.int64) if found else np.arange(min(1, len(held)))


def fine(scores: WindowScores, held: BoolArray, margin: float, most: int | None) -> IntArray:
    """The windows of an example that hold a span which may be its answer.

    Args:
        scores: of those that were read.
        held: see ``text``, of all.
        margin, most: see ``read``.
    """
    likely, span = evidence(scores)
    best = np.argsort(-likely, kind="stable")[:most]
    start, end = span[best[likely[best] >= likely.max(initial=-np.inf) - margin]].T
    return np.flatnonzero((held[:, start] & held[:, end]).any(axis=1))


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


class _Table:
    """The columns of ``n`` windows, those that ``known`` says so far."""

    def __init__(self, score: Score, n: int) -> None:
        self.score, self.known = score, np.zeros(n, np.bool_)
        self.columns: dict[str, np.ndarray] = {}

    def read(self, parts: Iterable[IntArray]) -> None:
        """Reads those windows that are not known yet."""
        wanted = np.zeros_like(self.known)
        for part in parts:
            wanted[part] = True
        windows = np.flatnonzero(wanted & ~self.known)
        if self.columns and not len(windows):
            return
        for name, rows in self.score(windows).items():
            empty = np.zeros((len(self.known), *rows.shape[1:]), rows.dtype)
            self.columns.setdefault(name, empty)[windows] = rows
        self.known[windows] = True

    def rows(self, windows: IntArray) -> WindowScores:
        """What is known of some windows."""
        return WindowScores(**{name: self.columns[name][windows] for name in SCORES})

    def complete(self, example: slice, held: BoolArray) -> None:
        """Windows of an example that were not read say what the nearest one says of their text."""
        known = self.known[example]
        there, unread = np.flatnonzero(known), np.flatnonzero(~known)
        if not len(unread):
            return
        nearest = there[np.abs(unread[:, None] - there).argmin(axis=1)]
        for column in self.columns.values():
            column[example][unread] = column[example][nearest]
        for name in ("start_doc", "end_doc"):
            doc = self.columns[name][example][unread]
            self.columns[name][example][unread] = np.where(held[unread[:, None], doc], doc, -1)
