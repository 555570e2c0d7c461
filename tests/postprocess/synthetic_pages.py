"""Random pages and logits, and a slow reference for the scores that leave the device."""

from dataclasses import dataclass

import numpy as np

from nq.records import Candidate, Example, FloatArray, IntArray, Span, WindowScores

N_TOKENS = 40


@dataclass(frozen=True)
class Logits:
    """All logits of the windows of an example.

    Args:
        start: ``[W, L]``.
        end: ``[W, L]``.
        types: ``[W, 5]``.
        doc: ``[W, L]`` document token of each position, -1 for none.
    """

    start: FloatArray
    end: FloatArray
    types: FloatArray
    doc: IntArray


def logits(seed: int, ties: bool, n_windows: int | None = None, length: int = 24) -> Logits:
    """Returns random logits; with ``ties`` small whole numbers, so that many are equal.

    Some windows have no text, and some have the text of two blocks out of order.
    """
    draw = np.random.default_rng(seed)
    n = int(draw.integers(1, 5)) if n_windows is None else n_windows

    def normal(*shape: int) -> FloatArray:
        values = draw.normal(0, 5, shape)
        return (np.rint(values / 2) if ties else values).astype(np.float32)

    first_token = draw.integers(0, N_TOKENS - length, n)
    doc = first_token[:, None] + np.arange(length)
    doc = np.where(draw.random(doc.shape) < 0.25, -1, doc)
    doc[:, : draw.integers(1, 6)] = -1
    doc[draw.random(n) < 0.1] = -1
    if n and draw.random() < 0.2:
        doc[0, 12:] = np.where(doc[0, 12:] >= 12, doc[0, 12:] - 12, -1)
    return Logits(normal(n, length) + 1, normal(n, length) + 1, normal(n, 5), doc)


def example(seed: int) -> Example:
    """Returns a page with random candidates: some are nested, empty, or not top level."""
    draw = np.random.default_rng(seed)
    candidates = []
    for _ in range(draw.integers(0, 7)):
        start, end = sorted(draw.integers(0, N_TOKENS + 1, 2).tolist())
        candidates.append(Candidate(Span(start, end), bool(draw.random() < 0.7)))
    words = [f"w{i}" for i in range(N_TOKENS)]
    return Example(seed, "did who", words, [False] * N_TOKENS, candidates)


def window_scores(logits: Logits, k: int, text_only: bool) -> WindowScores:
    """Returns the k best allowed positions of each window; equal logits in order of position."""

    def top(values: FloatArray) -> tuple[IntArray, IntArray, FloatArray]:
        docs, positions, scores = [], [], []
        for row, doc in zip(values.tolist(), logits.doc.tolist(), strict=True):
            allowed = [i for i in range(1, len(row)) if doc[i] >= 0 or not text_only]
            best = sorted(allowed, key=lambda i: (-row[i], i))[:k]
            padding = [i for i in range(len(row)) if i not in allowed][: k - len(best)]
            positions.append(best + padding)
            docs.append([doc[i] for i in best] + [-1] * len(padding))
            lowest = [float(np.finfo(np.float32).min)] * len(padding)
            scores.append([row[i] for i in best] + lowest)
        return (
            np.array(docs, np.int32).reshape(-1, k),
            np.array(positions, np.int32).reshape(-1, k),
            np.array(scores, np.float32).reshape(-1, k),
        )

    cls = np.stack([logits.start[:, 0], logits.end[:, 0]], axis=1)
    return WindowScores(*top(logits.start), *top(logits.end), cls, logits.types)


def page(seed: int, ties: bool = False) -> tuple[Example, WindowScores]:
    """Returns a random page with the scores of the 8 best positions of its windows."""
    return example(seed), window_scores(logits(seed, ties), 8, text_only=True)
