"""Random pages with the scores of all their windows, and a scorer that looks scores up."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import strategies as st

from nq.config import DecisionConfig, RankingWeights
from nq.inference.scorer import Counters, Rows, Scorer, Steps, window_scores
from nq.preprocess.features import window_ranges
from nq.records import SCORE_COLUMNS, Candidate, Columns, Example, IntArray, Span, WindowScores
from tests.postprocess import synthetic_pages

LENGTH, OFFSET, K = 14, 2, 4
FEW_EDGES, MANY_EDGES = 8, 120


@dataclass(eq=False)
class TableScorer(Scorer):
    """A scorer that looks up the scores of windows by the column ``numbers`` of their rows.

    Attributes:
        calls: the numbers of the windows of each call.
    """

    table: WindowScores
    batch_size: int = 4
    part_batches: int = 2
    network: Any = None
    precision: str = "float32"
    device: str = "CPU"
    counters: Counters = field(default_factory=Counters)
    calls: list[list[int]] = field(default_factory=list)

    def steps(self, rows: Rows, examples: Sequence[Example]) -> Steps:
        """See ``Scorer.steps``."""
        numbers = rows["numbers"][:, 0]
        self.calls.append(numbers.tolist())
        self.counters.computed_windows += len(numbers)
        yield from ()
        return {name: getattr(self.table, name)[numbers] for name in SCORE_COLUMNS}


@dataclass(frozen=True, eq=False)
class Pages:
    """Some examples with their windows and scores.

    Args:
        examples: question and page.
        slices: the windows of each example.
        rows: ``token_map``, ``window_ids`` and ``numbers`` of all windows.
        table: scores of all windows.
        decision: weights and thresholds.
    """

    examples: Sequence[Example]
    slices: Sequence[slice]
    rows: Columns
    table: WindowScores
    decision: DecisionConfig

    def rows_of(self, page: slice) -> Columns:
        return {name: column[page] for name, column in self.rows.items()}

    def scores_of(self, page: slice) -> WindowScores:
        return window_scores({n: getattr(self.table, n) for n in SCORE_COLUMNS}, page)


def page_token_map(draw: np.random.Generator) -> IntArray:
    """Returns the token map of a page: contexts with markers before them, cut into windows.

    Most contexts are in order and disjoint; some repeat the text of another one, and some have so
    many pieces without a token that a window has no text.
    """
    pieces: list[int] = []
    contexts, doc = list[list[int]](), 0
    for _ in range(draw.integers(0, 6)):
        doc += int(draw.integers(0, 9))
        words = [w for w in range(doc, doc + int(draw.integers(1, 25))) if draw.random() < 0.9]
        doc += len(words) + 1
        contexts.append(words)
    if draw.random() < 0.3:
        draw.shuffle(contexts)
    if contexts and draw.random() < 0.2:
        contexts.append(contexts[0])
    for words in contexts:
        pieces += [-1] * int(draw.choice([2, 2, 2, 30]))
        pieces += np.repeat(np.array(words, int), draw.integers(1, 4, len(words))).tolist()
    pieces += [-1] * int(draw.choice([0, 0, 1, 20]))
    room = int(draw.integers(1, LENGTH - OFFSET + 1))
    spans = window_ranges(len(pieces), room, int(draw.integers(1, room + 3)))
    token_map = np.full((max(1, len(spans)), LENGTH), -1)
    for row, (start, end) in zip(token_map, spans, strict=False):
        row[OFFSET : OFFSET + end - start] = pieces[start:end]
    return token_map


def page_example(seed: int, token_map: IntArray) -> Example:
    """Returns a page with these tokens in few or many blocks of some types, with gaps."""
    draw = np.random.default_rng(seed)
    n = int(token_map.max(initial=-1)) + 2
    edges = np.unique(draw.integers(0, n + 1, draw.choice([FEW_EDGES, MANY_EDGES]))).tolist()
    candidates = [Candidate(Span(a, b), bool(draw.random() < 0.8)) for a, b in pairwise(edges)]
    words = draw.choice(["who", "wrote", "it", "<P>", "<Table>", "<Ul>"], n).tolist()
    return Example(seed, "who wrote", words, [word[0] == "<" for word in words], candidates)


def random_scores(token_map: IntArray, seed: int, ties: bool = False, k: int = K) -> WindowScores:
    """Returns random scores of windows with this token map."""
    logits = synthetic_pages.logits(seed, ties, len(token_map), LENGTH)
    return synthetic_pages.window_scores(replace(logits, doc=token_map), k, text_only=True)


@st.composite
def decisions(draw: st.DrawFn) -> DecisionConfig:
    weights = RankingWeights(
        evidence=draw(st.sampled_from([0.05, 0.2, 1.0])),
        bm25=draw(st.sampled_from([0.0, 3.0])),
        page_length=draw(st.sampled_from([0.0, -1.0])),
        few_blocks=draw(st.sampled_from([0.0, -1.5])),
        null=draw(st.sampled_from([-5.0, 1.0])),
    )
    long, short = draw(st.floats(0, 1)), draw(st.floats(0, 1))
    return DecisionConfig(long_threshold=long, short_threshold=short, weights=weights)


@st.composite
def pages(draw: st.DrawFn, min_pages: int = 1, max_pages: int = 3) -> Pages:
    """Some random pages, with random scores of their windows."""
    seeds = draw(st.lists(st.integers(0, 2**32 - 1), min_size=min_pages, max_size=max_pages))
    maps = [page_token_map(np.random.default_rng(seed)) for seed in seeds]
    token_map = np.concatenate(maps)
    numbers = np.arange(len(token_map))[:, None]
    ids = [np.column_stack([np.arange(len(m)), np.full(len(m), len(m))]) for m in maps]
    rows = {"token_map": token_map, "window_ids": np.concatenate(ids), "numbers": numbers}
    edges = np.cumsum([0, *map(len, maps)]).tolist()
    return Pages(
        [page_example(seed, rows) for seed, rows in zip(seeds, maps, strict=True)],
        [slice(a, b) for a, b in pairwise(edges)],
        rows,
        random_scores(token_map, draw(st.integers(0, 999)), draw(st.booleans())),
        draw(decisions()),
    )
