"""Decision margin: the smallest change of log odds that would change the decision.

A less exact computation may change an answer only where the margin is small.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from nq.postprocess.ranking import Ranking, log_odds
from nq.records import AnswerType, FloatArray


def decision_margin(ranking: Ranking) -> float:
    """Returns the smallest change of a log odds that would change the default decision.

    It compares the log odds of the best block against the next one, of its best short answer
    against the next one, and of each probability against its threshold. An answer that is not
    given need not beat other blocks, unless one of them would then be given. The margin is infinite
    for a page without blocks.
    """
    blocks, config = ranking.probabilities, ranking.config
    if not len(blocks):
        return math.inf
    row = int(np.argmax(blocks))
    best = ranking.alternative(row)
    long = log_odds(best.long_probability) - log_odds(config.long_threshold)
    short = log_odds(best.short_probability) - log_odds(config.short_threshold)
    gaps = [abs(long), abs(short)]
    if long >= 0 or short >= 0:
        gaps.append(_lead(blocks))
    else:
        gaps += _other_blocks(ranking, min(gaps))
    if short >= 0:
        options = ranking.evidence.options(row)
        likely = options.probabilities(config.weights)
        gaps.append(_lead(likely[options.types != AnswerType.LONG]))
    return min(gaps)


def _other_blocks(ranking: Ranking, below: float) -> Iterator[float]:
    """Yields the change under which each other block would be best and give its short answer.

    Args:
        ranking: of a page whose best block gives no answer.
        below: larger changes are left out.
    """
    blocks, threshold = ranking.probabilities, log_odds(ranking.config.short_threshold)
    for row in np.argsort(-blocks, kind="stable")[1:].tolist():
        behind = float(np.log(blocks.max() / blocks[row])) if blocks[row] > 0 else math.inf
        if behind >= below:
            return
        yield max(behind, threshold - log_odds(ranking.alternative(row).short_probability))


def _lead(probabilities: FloatArray) -> float:
    """Returns the log ratio of the largest and the second; infinite for a single one."""
    if len(probabilities) < 2:
        return math.inf
    second, first = np.partition(probabilities, -2)[-2:]
    return float(np.log(first / second)) if second > 0 else math.inf
