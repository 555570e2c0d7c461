"""Examples and logits by chance, and the scores that leave the device, taken slowly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nq.records import Candidate, Example, FloatArray, IntArray, Span, WindowScores

N_TOKENS = 40


@dataclass(frozen=True)
class Logits:
    """All logits of an example's windows: ``[W, L]``, ``[W, L]``, ``[W, 5]``; and the map."""

    start: FloatArray
    end: FloatArray
    types: FloatArray
    doc: IntArray


def logits(seed: int, ties: bool, n_windows: int | None = None, length: int = 24) -> Logits:
    """Random logits; with ``ties`` small whole numbers, so that many are equal.

    Now and then a window has no text, or the text of two blocks is out of order.
    """
    draw = np.random.default_rng(seed)
    n = int(draw.integers(1, 5)) if n_windows is None else n_windows

    def some(*shape: int) -> FloatArray:
        values = draw.normal(0, 5, shape)
        return (np.rint(values / 2) if ties else values).astype(np.float32)

    n_text = draw.integers(0, N_TOKENS - length, n)
    doc = n_text[:, None] + np.arange(length)
    doc = np.where(draw.random(doc.shape) < 0.25, -1, doc)
    doc[:, : draw.integers(1, 6)] = -1
    doc[draw.random(n) < 0.1] = -1
    if n and draw.random() < 0.2:
        doc[0, 12:] = np.where(doc[0, 12:] >= 12, doc[0, 12:] - 12, -1)
    return Logits(some(n, length) + 1, some(n, length) + 1, some(n, 5), doc)


def example(seed: int) -> Example:
    """Random candidates, nested and empty ones among them, some of them not top level."""
    draw = np.random.default_rng(seed)
    candidates = []
    for _ in range(draw.integers(0, 7)):
        start, end = sorted(draw.integers(0, N_TOKENS + 1, 2).tolist())
        candidates.append(Candidate(Span(start, end), bool(draw.random() < 0.7)))
    words = [f"w{i}" for i in range(N_TOKENS)]
    return Example(seed, "who", words, [False] * N_TOKENS, candidates)


def window_scores(found: Logits, k: int, text_only: bool) -> WindowScores:
    """What the device keeps: the k best allowed positions, equal ones from the left."""

    def best(values: FloatArray) -> tuple[IntArray, IntArray, FloatArray]:
        docs, positions, scores = [], [], []
        for row, doc in zip(values.tolist(), found.doc.tolist(), strict=True):
            allowed = [i for i in range(1, len(row)) if doc[i] >= 0 or not text_only]
            top = sorted(allowed, key=lambda i: (-row[i], i))[:k]
            rest = [i for i in range(len(row)) if i not in allowed][: k - len(top)]
            positions.append(top + rest)
            docs.append([doc[i] for i in top] + [-1] * len(rest))
            scores.append([row[i] for i in top] + [float(np.finfo(np.float32).min)] * len(rest))
        return (
            np.array(docs, np.int32).reshape(-1, k),
            np.array(positions, np.int32).reshape(-1, k),
            np.array(scores, np.float32).reshape(-1, k),
        )

    cls = np.stack([found.start[:, 0], found.end[:, 0]], axis=1)
    return WindowScores(*best(found.start), *best(found.end), cls, found.types)
