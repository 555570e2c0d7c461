"""``refine``: of a page only those windows are read that may change its answer.

Windows overlap several times; and what speaks for a block before anything is read (where it
stands, which words it shares with the question: ``choice.Blocks``) bounds what it can weigh, since
evidence has a highest value. So, for each page:

1. windows that hardly overlap, those with the weightiest blocks first, as long as one of them can
   come within ``far`` of the best choice so far, "no answer" included;
2. all windows that hold a block within ``near`` of the best choice, since they may say otherwise;
3. both again on the next of ``levels``, until the decision is at least ``sure`` away from another
   one (``nq.postprocess.margin``); all windows, if it never is.

A window that is not read says nothing. What ``NEAR`` saves and what it costs, ``python -m
experiments.margin`` tells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nq.config import DecisionConfig
from nq.postprocess.margin import distance
from nq.postprocess.ranking import Blocks, evidence
from nq.records import READ, SCORE_COLUMNS, Example, IntArray, WindowScores

if TYPE_CHECKING:
    from nq.inference.engine import Rows
    from nq.inference.predictor import Columns, Predictor

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class Level:
    """How carefully a page is read; differences of log odds.

    Args:
        far: a window is left out if its blocks stay further below the best choice.
        near: blocks less far below it are read in all their windows.
        sure: the page is done if no other answer is nearer; else it is read more carefully, in the
            end as a whole.
    """

    far: float
    near: float
    sure: float


NEAR = 2.5


def levels(near: float = NEAR) -> tuple[Level, ...]:
    """From a page that leaves no doubt to one that leaves much."""
    return tuple(Level(far, near, sure) for far, sure in ((0, 0.3), (1, 0.1), (2, 0.06), (3, 0.04)))


AT_ONCE = 4
PARTS_AT_ONCE = 16
OVERLAP = 0.125


def scores(
    predictor: Predictor,
    rows: Rows,
    examples: Sequence[Example],
    decision: DecisionConfig,
    on_windows: Callable[[int], None] = lambda n: None,
) -> Columns:
    """As ``Predictor.scores``, most windows without reading them.

    Args:
        predictor: reads windows; call it while this is ``ready``.
        rows: the windows of ``examples``, in their order.
        examples: the pages.
        decision: what is to be decided.
        on_windows: told how many windows were done just now.
    """
    starts = np.flatnonzero(rows["window_ids"][:, 0] == 0).tolist()
    pages = [slice(a, b) for a, b in pairwise([*starts, len(rows["window_ids"])])]

    def score(windows: IntArray) -> Columns:
        return predictor.scores({name: rows[name][windows] for name in rows}, on_windows)

    found = read(score, rows["token_map"], examples, pages, decision)
    on_windows(int((~found[READ]).sum()))
    return found


def read(
    score: Callable[[IntArray], Columns],
    token_map: IntArray,
    examples: Sequence[Example],
    pages: Sequence[slice],
    decision: DecisionConfig,
    careful: Sequence[Level] = levels(),
) -> Columns:
    """Scores of the windows of some pages, of most of them without reading them.

    Args:
        score: gives the columns ``SCORE_COLUMNS`` of the windows with those numbers, which rise.
        token_map: ``[N, L]`` of all windows.
        examples: the pages.
        pages: the windows of each page.
        decision: what is to be decided.
        careful: how carefully, from the first level on.

    Returns:
        The columns ``SCORE_COLUMNS`` and ``READ`` of all windows.
    """
    readings = [
        Reading(example, token_map[page], decision, careful)
        for example, page in zip(examples, pages, strict=True)
    ]
    table: Columns = {READ: np.zeros(len(token_map), np.bool_)}
    while True:
        parts = [
            page.start + r.wanted(table, page) for r, page in zip(readings, pages, strict=True)
        ]
        windows = np.sort(np.concatenate(parts))
        if not len(windows):
            return table
        for name, rows in score(windows).items():
            if name not in table:
                shape = len(token_map), *rows.shape[1:]
                table[name] = np.full(shape, -1 if name.endswith("_doc") else 0, rows.dtype)
            table[name][windows] = rows
        table[READ][windows] = True


class Reading:
    """Which windows of one page to read next."""

    def __init__(
        self,
        example: Example,
        token_map: IntArray,
        decision: DecisionConfig,
        careful: Sequence[Level],
    ) -> None:
        self.example, self.decision = example, decision
        self._levels, self._done = list(careful), False
        self.blocks = Blocks.of(example)
        held = text(token_map)
        self._holds = _holds(held, self.blocks)
        weights = decision.weights
        known = self.blocks.utility(weights) + weights.most_evidence
        self._bound = np.where(self._holds, known, -np.inf).max(axis=1, initial=-np.inf)
        first = coarse(held)
        self._left = first[np.argsort(-self._bound[first], kind="stable")]

    def wanted(self, table: Columns, page: slice) -> IntArray:
        """The windows to read next, none if the page is done.

        Args:
            table: the columns of all windows that were read.
            page: where the windows of this page are in it.
        """
        if self._done:
            return np.empty(0, np.int64)
        read = table[READ][page]
        self._left = self._left[~read[self._left]]
        if not read.any():
            return self._next(-np.inf)
        scores = WindowScores(**{name: table[name][page][read] for name in SCORE_COLUMNS})
        found = evidence(self.example, scores, self.decision.max_answer_length, self.blocks)
        weights = self.decision.weights
        utility = found.utility(weights)
        best = utility.max(initial=weights.null)
        while self._levels and not self._done:
            level = self._levels[0]
            wanted = self._next(best - level.far)
            if not len(wanted):
                near = np.isin(self.blocks.candidates, found.blocks[utility > best - level.near])
                wanted = np.flatnonzero(self._holds[:, near].any(axis=1) & ~read)
            if len(wanted):
                return wanted
            self._done = distance(self.example, found, self.decision) >= level.sure
            self._levels.pop(0)
        wanted = np.empty(0, np.int64) if self._done else np.flatnonzero(~read)
        self._done = True
        return wanted

    def _next(self, bound: float) -> IntArray:
        """The weightiest windows of those that hardly overlap, if they can weigh so much."""
        first = self._left[:AT_ONCE]
        return np.asarray(first[self._bound[first] >= bound])


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


def _holds(held: BoolArray, blocks: Blocks) -> BoolArray:
    """``[W, B]`` whether a window holds a word of a block."""
    found = np.zeros((len(held), len(blocks.candidates) + 1), np.bool_)
    window, token = np.nonzero(held[:, :-1])
    block = blocks.of_token[token]
    row = np.searchsorted(blocks.candidates, block)
    found[window, np.where(block < 0, len(blocks.candidates), row)] = True
    return found[:, :-1]


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
