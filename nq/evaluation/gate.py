"""Whether a run loses too much micro-F1 against another run of the same questions.

    F1 = 2 * correct / (predicted + gold),  over the long and the short answers of all questions
    loss = 1 - F1 of the run / F1 of the other run

A loss of 0.02 is 2 % of the other run's micro-F1; a gain is negative. Its interval is a bootstrap
of pairs: all Q questions are drawn Q times with replacement, both runs are scored on the same draw,
and the ends are percentiles of the losses of many draws. It is narrower than a difference of two
separate intervals, since questions that are hard for one run are mostly hard for the other too.

Source: Efron and Tibshirani 1993, An Introduction to the Bootstrap, section 13.3 (the percentile
interval); Koehn 2004, Statistical Significance Tests for Machine Translation Evaluation, section 4
(both systems on the same draws).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from nq.evaluation.nq_eval import Gold, decisions
from nq.records import ExampleId, Prediction

LEVEL = 0.9
RESAMPLES = 2000
SAME = 1e-9
MAX_NAMES = 3
"""Below ``SAME`` a difference of two F1 is none; of the same F1 ``MAX_NAMES`` names are told."""
BATCH_ITEMS = 1_000_000
"""Questions that are drawn at once, which bounds the memory."""
PASSED = "passed"
FAILED = "failed"
UNDECIDED = "undecided"

Counts = tuple[float, float, float]
"""Of one question, how many of its two answers are correct, are predicted, and have gold.

Half of an F1 of words, 0 and 1 give the mean of such F1 as micro-F1.
"""


@dataclass(frozen=True, slots=True)
class Gate:
    """The ``loss`` of micro-F1 with its interval from ``low`` to ``high``, and what is accepted."""

    micro_f1: float
    other_micro_f1: float
    loss: float
    low: float
    high: float
    questions: int
    max_loss: float | None = None

    @property
    def verdict(self) -> str | None:
        """Whether the loss is at most ``max_loss``, as far as the interval tells.

        >>> [Gate(0.48, 0.5, 0.04, 0.01, 0.07, 100, x).verdict for x in (0.07, 0.04, 0.01, 0.005)]
        ['passed', 'undecided', 'undecided', 'failed']
        """
        if self.max_loss is None:
            return None
        if self.high <= self.max_loss:
            return PASSED
        return FAILED if self.low > self.max_loss else UNDECIDED

    @property
    def change(self) -> tuple[str, str, str]:
        """The relative loss or gain in words, with its interval."""
        name, *ends = ("loss", self.loss, self.low, self.high)
        if self.loss < 0:
            name = "gain"
            ends = [-self.loss, -self.high, -self.low]
        size, low, high = (f"{100 * end + 0.0:.1f}%" for end in ends)
        return f"relative {name}", size, f"{LEVEL:.0%}: {low} to {high}"

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "verdict": self.verdict}

    def __str__(self) -> str:
        scores = f"micro-F1 {self.micro_f1:.4f} against {self.other_micro_f1:.4f}"
        name, size, interval = self.change
        text = f"{scores}, {name} {size} [{interval}]"
        if self.max_loss is None:
            return text
        return f"{text}, a loss of at most {100 * self.max_loss:.3g}% allowed: {self.verdict}"


def question_counts(gold: Gold, predictions: Mapping[ExampleId, Prediction]) -> list[Counts]:
    """Returns the counts of each question of ``gold`` from which micro-F1 is computed."""
    long, short = decisions(gold, predictions, (1, 1))  # one annotator is enough
    return [
        (one.correct + two.correct, one.predicted + two.predicted, one.has_gold + two.has_gold)
        for one, two in zip(long, short, strict=True)
    ]


def relative_loss(
    mine: Sequence[Counts], others: Sequence[Counts], *, max_loss: float | None = None
) -> Gate:
    """Returns the relative loss of micro-F1 with its bootstrap interval, by a fixed seed.

    A draw in which the other run has no correct answer has the loss 0, since nothing can be lost
    there. ``mine`` and ``others`` are ``[Q]`` counts, in the same order. Fewer than two questions,
    and a micro-F1 of 0 of the other run, are a ``ValueError``.

    >>> wrong, right = (0, 1, 1), (1, 1, 1)
    >>> one = relative_loss([right] * 8 + [wrong] * 2, [right] * 9 + [wrong])
    >>> one.micro_f1, one.other_micro_f1, round(one.loss, 3), one.low
    (0.8, 0.9, 0.111, 0.0)
    """
    if len(mine) < 2:
        raise ValueError(
            f"a relative loss of micro-F1 needs two questions with annotations, found {len(mine)}"
        )
    tables = _tables(mine, others)
    f1, other_f1 = (float(_f1(*run, 0)) for run in (tables[:2], tables[2:]))
    if not other_f1:
        raise ValueError(
            "the micro-F1 of the other run is 0, so that no loss is relative to it: compare with a "
            "run that answers a question correctly"
        )
    loss = float(_losses(*tables, 0))
    interval = _interval(_losses, tables)
    return Gate(f1, other_f1, loss, *interval, len(mine), max_loss)


def f1_behind(mine: Sequence[Counts], others: Sequence[Counts]) -> tuple[float, float, float]:
    """Returns how much lower the F1 is than that of others, with the ends of its interval.

    The interval of one question, which tells nothing, is from -1 to 1. Arguments are those of
    ``relative_loss``.

    >>> wrong, right = (0, 1, 1), (1, 1, 1)
    >>> f1_behind([wrong, right], [right, right]), f1_behind([wrong], [right])
    ((0.5, 0.0, 1.0), (1.0, -1.0, 1.0))
    """
    tables = _tables(mine, others)
    behind = float(_differences(*tables, 0))
    return (behind, *(_interval(_differences, tables) if len(mine) > 1 else (-1.0, 1.0)))


def is_better(
    answers: Mapping[ExampleId, Prediction], others: Mapping[ExampleId, Prediction], gold: Gold
) -> bool:
    """Returns whether the micro-F1 of some answers is higher than that of others beyond chance.

    The interval of the difference (``f1_behind``) then lies above 0.
    """
    _, low, _ = f1_behind(question_counts(gold, others), question_counts(gold, answers))
    return low > 0


def standing(several: Mapping[str, tuple[float, float, float, float]]) -> str:
    """Returns which of several models or runs has the best F1, and how far the next one is from it.

    Args:
        several: by name the F1, how much lower it is than the best, and the ends of the interval of
            that (``f1_behind``).

    >>> standing({"a": (0.6, 0, 0, 0), "b": (0.59, 0.01, -0.02, 0.04)})
    'a has the best F1, 0.600; that of b is 0.010 lower (90%: -0.020 to 0.040, may be chance)'
    >>> standing({"a": (1, 0, 0, 0), "b": (1, 0, 0, 0)})
    'a and b have the same F1, 1.000'
    """
    best = [name for name, (_, behind, *_) in several.items() if behind < SAME]
    others = [(f1, name) for name, (f1, *_) in several.items() if name not in best]
    f1, *_ = several[best[0]]
    if len(best) > 1:
        *names, last = best if len(best) <= MAX_NAMES else [*best[:1], f"{len(best) - 1} others"]
        text = f"{', '.join(names)} and {last} have the same F1, {f1:.3f}"
    else:
        text = (
            f"{best[0]} has the best F1, {f1:.3f}" if others else f"{best[0]} has an F1 of {f1:.3f}"
        )
    if others:
        _, name = max(others, key=lambda one: one[0])
        text += f"; that of {name} is {distance(several[name][1:])}"
    return text


def distance(behind: Sequence[float]) -> str:
    """Returns how much lower an F1 is than another, given with its interval as by ``f1_behind``."""
    one, low, high = (f"{x + 0.0:.3f}" for x in behind)
    chance = ", may be chance" if behind[1] <= 0 else ""
    return f"{one} lower ({LEVEL:.0%}: {low} to {high}{chance})"


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Returns the ends of the bootstrap interval of the median of at least two values.

    >>> median_interval([1.5, 1.2, 1.4])
    (1.2, 1.5)
    """
    return _interval(np.median, [np.asarray(values, np.float64)])


def _tables(mine: Sequence[Counts], others: Sequence[Counts]) -> tuple[Any, Any, Any, Any]:
    """Returns ``[Q]`` correct answers, and predicted ones and gold together, of both runs."""
    own, other = (np.asarray(counts, np.float64) for counts in (mine, others))
    return own[:, 0], own[:, 1] + own[:, 2], other[:, 0], other[:, 1] + other[:, 2]


def _interval(statistic: Callable[..., Any], tables: Sequence[Any]) -> tuple[float, float]:
    """Returns the ends of the interval of a statistic of all tables on the same draws."""
    from scipy.stats import bootstrap

    result = bootstrap(
        tables,
        statistic,
        paired=True,
        vectorized=True,
        n_resamples=RESAMPLES,
        batch=max(1, BATCH_ITEMS // len(tables[0])),
        confidence_level=LEVEL,
        method="percentile",
        rng=np.random.default_rng(0),
    )
    low, high = map(float, result.confidence_interval)
    return low, high


def _f1(correct: Any, items: Any, axis: int) -> Any:
    """Returns the micro-F1 of each bootstrap sample along ``axis``, 0 without any answer."""
    correct = 2 * correct.sum(axis=axis)
    items = items.sum(axis=axis)
    return np.divide(correct, items, out=np.zeros(np.shape(items)), where=items > 0)


def _losses(correct: Any, items: Any, other_correct: Any, other_items: Any, axis: int) -> Any:
    """Returns the relative loss of micro-F1 of each bootstrap sample along ``axis``."""
    correct, items, other_correct, other_items = (
        column.sum(axis=axis) for column in (correct, items, other_correct, other_items)
    )
    # (2 c / n) / (2 c' / n'); where c' is above 0, so is the gold in n
    numerator, denominator = correct * other_items, items * other_correct
    ones = np.ones(np.shape(denominator))
    return 1 - np.divide(numerator, denominator, out=ones, where=denominator > 0)


def _differences(correct: Any, items: Any, other_correct: Any, other_items: Any, axis: int) -> Any:
    """Returns how much lower the micro-F1 of each bootstrap sample along ``axis`` is."""
    return _f1(other_correct, other_items, axis) - _f1(correct, items, axis)
