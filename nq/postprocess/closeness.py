"""How near an example is to another answer: what a less exact computation may turn round."""

from __future__ import annotations

import math

import numpy as np

from nq.config import DecisionConfig
from nq.postprocess.choice import Evidence, alternative, evidence, log_odds
from nq.records import AnswerType, Example, FloatArray, WindowScores


def closeness(example: Example, scores: WindowScores, config: DecisionConfig) -> float:
    """The least change of a log odds that makes the default decision another one."""
    return distance(example, evidence(example, scores, config.max_answer_length), config)


def distance(example: Example, found: Evidence, config: DecisionConfig) -> float:
    """The same of what the windows are found to say.

    Log odds are those of the best block against the next, of its best short answer against the
    next, and of the probability of each against its threshold; what is not given does not have to
    beat others. Infinite where a page has nothing to answer.
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
    if short >= 0:
        options = found.options(row)
        gaps.append(_lead(options.probabilities(weights)[options.kinds != AnswerType.LONG]))
    return min(gaps)


def _lead(probabilities: FloatArray) -> float:
    """Log of how much more likely the first is than the second; infinite for one alone."""
    if len(probabilities) < 2:
        return math.inf
    second, first = np.partition(probabilities, -2)[-2:]
    return float(np.log(first / second)) if second > 0 else math.inf
