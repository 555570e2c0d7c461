"""The default decision: block, span and type of the answer chosen together.

A hypothesis is a window, a pair of positions in one top-level block, and a type. Its score
is how much more likely the model holds it than "no answer" in that window,

    log P(start, end, type) - log P([CLS], [CLS], UNKNOWN)
        = (start + end logit) - ([CLS] start + end logit) + type logit - UNKNOWN logit,

in which the normalisers of the three softmaxes cancel. The best hypothesis of all windows
names the block; the best short, yes or no in that block is the short answer; the two are
held against thresholds of their own.
"""

from __future__ import annotations

import numpy as np

from nq.config import DecisionConfig
from nq.postprocess.answers import Pairs, pairs
from nq.records import (
    Alternative,
    AnswerType,
    Example,
    FloatArray,
    IntArray,
    Prediction,
    Span,
    WindowScores,
    YesNo,
)

KINDS = (AnswerType.SHORT, AnswerType.LONG, AnswerType.YES, AnswerType.NO)
_YES_NO = {AnswerType.YES: YesNo.YES, AnswerType.NO: YesNo.NO}


def choose(example: Example, scores: WindowScores, config: DecisionConfig) -> Prediction:
    """The prediction by the best hypothesis; null where nothing reaches its threshold."""
    block = blocks(example)
    found = pairs(scores)
    first = block[found.start_doc]
    inside = (first >= 0) & (first == block[found.end_doc])
    found, first = found.where(inside), first[inside]
    if not len(found):
        return Prediction(example.example_id)
    likely = hypotheses(found, scores, config.max_answer_length)
    best = int(np.argmax(likely.max(axis=0)))
    long_score = float(likely[:, best].max())
    likely[:, first != first[best]] = -np.inf
    kind, short, short_score = _short(found, likely)
    long = example.candidates[int(first[best])].span
    given = short_score >= config.short_threshold
    return Prediction(
        example.example_id,
        long if long_score >= config.long_threshold else None,
        long_score,
        (short,) if given and kind is AnswerType.SHORT else (),
        short_score,
        _YES_NO.get(kind, YesNo.NONE) if given else YesNo.NONE,
    )


def alternatives(
    example: Example, scores: WindowScores, config: DecisionConfig, limit: int
) -> tuple[Alternative, ...]:
    """The best blocks, each with its best short answer, best first; provisional."""
    block = blocks(example)
    found = pairs(scores)
    first = block[found.start_doc]
    inside = (first >= 0) & (first == block[found.end_doc])
    found, first = found.where(inside), first[inside]
    likely = hypotheses(found, scores, config.max_answer_length)
    best = likely.max(axis=0)
    given = []
    for index in dict.fromkeys(first[np.argsort(-best, kind="stable")].tolist()):
        kind, short, score = _short(found, np.where(first == index, likely, -np.inf))
        given.append(
            Alternative(
                example.candidates[index].span,
                (short,) if kind is AnswerType.SHORT else (),
                _YES_NO.get(kind, YesNo.NONE),
                float(1 / (1 + np.exp(-best[first == index].max()))),
                float(1 / (1 + np.exp(-score))),
            )
        )
    return tuple(given[:limit])


def blocks(example: Example) -> IntArray:
    """For each document token the first top-level candidate that holds it, -1 for none."""
    block = np.full(len(example.tokens), -1)
    for index in range(len(example.candidates) - 1, -1, -1):
        candidate = example.candidates[index]
        if candidate.top_level:
            block[candidate.span.start : candidate.span.end] = index
    return block


def hypotheses(found: Pairs, scores: WindowScores, max_pieces: int) -> FloatArray:
    """``[len(KINDS), len(found)]`` scores; -inf for a short answer that is too long."""
    types = scores.type_logits.astype(np.float64)
    gain = types[:, KINDS] - types[:, [AnswerType.UNKNOWN]]
    likely = found.score + gain[found.window].T
    likely[KINDS.index(AnswerType.SHORT), found.end_pos - found.start_pos >= max_pieces] = -np.inf
    return np.asarray(likely)


def _short(found: Pairs, likely: FloatArray) -> tuple[AnswerType, Span, float]:
    """The best hypothesis that answers in short: its type, span and score."""
    rows = [KINDS.index(kind) for kind in (AnswerType.SHORT, AnswerType.YES, AnswerType.NO)]
    row, pair = np.unravel_index(np.argmax(likely[rows]), (len(rows), len(found)))
    kind = KINDS[rows[int(row)]]
    return kind, found.answer(int(pair)).span, float(likely[rows[int(row)], pair])
