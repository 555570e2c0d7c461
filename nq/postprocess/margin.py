"""How near an example is to another answer: what a less exact computation may turn round."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from nq.config import DecisionConfig
from nq.postprocess.ranking import Evidence, alternative, evidence, log_odds
from nq.records import AnswerType, Example, FloatArray, WindowScores


def closeness(example: Example, scores: WindowScores, config: DecisionConfig) -> float:
    """The least change of a log odds that makes the default decision another one."""
    return distance(example, evidence(example, scores, config.max_answer_length), config)


def distance(example: Example, found: Evidence, config: DecisionConfig) -> float:
    """The same of what the windows are found to say.

    Log odds are those of the best block against the next, of its best short answer against the
    next, and of the probability of each against its threshold; what is not given does not have to
    beat others, unless their short answer would be given. Infinite where a page has nothing to
    answer.
    """
    weights = config.weights
    blocks = found.probabilities(weights)
    if not len(blocks):
        return math.inf
    row = int(np.argmax(blocks))
    best = alternative(example, found, row, float(blocks[row]), weights)
    long = log_odds(best.long_probability) - log_odds(config.long_threshold)
    short = log_odds(best.short_probability) - log_odds(config.short_threshold)
    gaps = [abs(long), abs(short)]
    if long >= 0 or short >= 0:
        gaps.append(_lead(blocks))
    else:
        gaps += _others(example, found, config, blocks, min(gaps))
    if short >= 0:
        options = found.options(row)
        gaps.append(_lead(options.probabilities(weights)[options.kinds != AnswerType.LONG]))
    return min(gaps)


def _others(
    example: Example, found: Evidence, config: DecisionConfig, blocks: FloatArray, within: float
) -> Iterator[float]:
    """The change under which each other block is the best one, and gives its short answer.

    Args:
        blocks: ``[B]`` P(block).
        within: only changes less than this.
    """
    for row in np.argsort(-blocks, kind="stable")[1:].tolist():
        behind = float(np.log(blocks.max() / blocks[row])) if blocks[row] > 0 else math.inf
        if behind >= within:
            return
        it = alternative(example, found, row, float(blocks[row]), config.weights)
        yield max(behind, log_odds(config.short_threshold) - log_odds(it.short_probability))


def _lead(probabilities: FloatArray) -> float:
    """Log of how much more likely the first is than the second; infinite for one alone."""
    if len(probabilities) < 2:
        return math.inf
    second, first = np.partition(probabilities, -2)[-2:]
    return float(np.log(first / second)) if second > 0 else math.inf
