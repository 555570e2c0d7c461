"""A slow reference for evidence: all hypotheses of a page, one after the other."""

import math
from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from nq.records import AnswerType, Example, Span, WindowScores

MAX_PIECES = 30
Answer = tuple[int, AnswerType, Span | None]
"""Candidate index of the block, answer type, and the span if the type is SHORT."""


def hypotheses(example: Example, scores: WindowScores) -> Iterator[tuple[int, Answer, float]]:
    """Yields each hypothesis as its window, its answer, and its log odds."""
    types = [AnswerType.SHORT, AnswerType.LONG]
    if scores.type_logits.any():
        types += [AnswerType.YES, AnswerType.NO]
    for w in range(len(scores)):
        for i, start in enumerate(scores.start_doc[w].tolist()):
            for j, end in enumerate(scores.end_doc[w].tolist()):
                pieces = int(scores.end_pos[w, j] - scores.start_pos[w, i]) + 1
                block = block_of(example, start)
                if start < 0 or end < start or pieces < 1 or block < 0:
                    continue
                if block_of(example, end) != block:
                    continue
                score = float(scores.start_logit[w, i]) + float(scores.end_logit[w, j])
                score -= float(scores.cls_logit[w].sum(dtype=np.float64))
                for kind in types:
                    short = kind is AnswerType.SHORT
                    if short and pieces > MAX_PIECES:
                        continue
                    logits = scores.type_logits[w]
                    gain = float(logits[kind]) - float(logits[AnswerType.UNKNOWN])
                    yield w, (block, kind, Span(start, end + 1) if short else None), score + gain


def answer_odds(example: Example, scores: WindowScores) -> dict[Answer, float]:
    """Returns the odds of each answer, summed over all its hypotheses."""
    total: dict[Answer, float] = defaultdict(float)
    for _, answer, log_odds in hypotheses(example, scores):
        total[answer] += math.exp(log_odds)
    return total


def block_odds(example: Example, scores: WindowScores, weight: float) -> dict[int, float]:
    """Returns the odds of each block in its best window, to the power of ``weight``."""
    total: dict[tuple[int, int], float] = defaultdict(float)
    for window, (block, *_), log_odds in hypotheses(example, scores):
        total[block, window] += math.exp(log_odds)
    return {
        block: max(value for (b, _), value in total.items() if b == block) ** weight
        for block, _ in total
    }


def block_of(example: Example, token: int) -> int:
    """Returns the first top-level candidate that contains a document token, -1 for none."""
    for index, candidate in enumerate(example.candidates):
        if candidate.top_level and candidate.span.start <= token < candidate.span.end:
            return index
    return -1
