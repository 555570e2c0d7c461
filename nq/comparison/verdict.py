"""The verdict on the rows of a comparison: which to take, and why."""

from collections.abc import Iterable, Sequence
from operator import lt, truediv
from statistics import median

from nq.evaluation.gate import LEVEL
from nq.report.comparison import BASELINE, ComparisonRow, figure
from nq.text import counted

MAX_LOSS, MAX_CHANCE = 0.005, 0.05
"""The profile to take may lose this share of the micro-F1 of baseline; and by chance the second."""
MAX_BEHIND = 0.01
"""The model to take may have an F1 this much lower than the best; ``MAX_CHANCE`` by chance."""
MIN_ROUNDS, NEAR = 2, 0.95
"""Quiet rounds that a verdict needs; the share of the highest speed that is as fast."""


def advice(rows: Sequence[ComparisonRow]) -> tuple[str, str]:
    """Returns the label of the row to take, empty if none, and a sentence that tells why.

    A profile keeps the answers if it changes none, or if its relative loss of micro-F1 is at most
    ``MAX_LOSS``, or at most ``MAX_CHANCE`` and no more than chance (its interval contains 0). Of
    these, one is left out if another was faster in every quiet round, or if its median is below
    ``NEAR`` of the highest. Of the others, it is the one with the fewest changed answers, then the
    fewest optimizations.

    The model to take is found in the same way: its F1 is at most ``MAX_BEHIND`` below the best, or
    ``MAX_CHANCE`` and no more than chance, and of those that are as fast it has the highest F1.
    """
    if any(row.model for row in rows):
        return _model_advice(rows)
    baseline = next((row for row in rows if row.label == BASELINE and row.windows_per_s), None)
    if baseline is None:
        return "", "No profile can be named, since baseline was not measured."
    if len(baseline.ratios) < MIN_ROUNDS:
        return "", f"No profile is named: {_too_few(baseline, rows)}."
    measured = _by_speed(rows)
    fit = [row for row in measured if _keeps_answers(row)]
    near = _fastest(fit)
    best = min(near, key=lambda row: (row.changed or 0, row != baseline, row.profile.count("+")))
    reason = _cost(best) if best != baseline else "no profile that keeps the answers is faster"
    reason += _as_fast(row.label for row in near if row is not best)
    text = f"Take {best.label}: {reason}."
    if measured[0] not in fit:
        text += f" The fastest, {measured[0].label}, loses too much: {_cost(measured[0])}."
    return best.label, text


def _too_few(row: ComparisonRow, rows: Iterable[ComparisonRow]) -> str:
    is_busy = any(one.busy for one in rows)
    advice = "the same command measures busy rounds again" if is_busy else "give more rounds"
    return f"{MIN_ROUNDS} quiet rounds are needed, and there are {len(row.ratios)}; {advice}"


def _by_speed(rows: Sequence[ComparisonRow]) -> list[ComparisonRow]:
    measured = [row for row in rows if row.ratios]
    return sorted(measured, key=lambda row: (-median(row.ratios), row.label))


def _fastest(fit: Sequence[ComparisonRow]) -> list[ComparisonRow]:
    """Returns those of rows, the fastest first, that are as fast as the fastest."""
    near = [row for row in fit if median(row.ratios) >= NEAR * median(fit[0].ratios)]
    return [row for row in near if not any(all(map(lt, row.ratios, one.ratios)) for one in fit)]


def _as_fast(labels: Iterable[str]) -> str:
    others = ", ".join(labels)
    return f"; as fast within the rounds: {others}" if others else ""


def _model_advice(rows: Sequence[ComparisonRow]) -> tuple[str, str]:
    def name(row: ComparisonRow) -> str:
        return row.label if sum(one.model == row.model for one in rows) > 1 else row.model

    judged = [row for row in rows if row.behind is not None and not row.error]
    if not judged:
        fastest = next((name(row) for row in rows if not row.error), "")
        advice = f"the fastest is {fastest}, and the page has the questions on which they differ"
        return "", f"No model is named, since the questions have no gold answers: {advice}."
    best = max(judged, key=_f1)
    quality = f"the best F1, {figure(best.f1, 3)}"
    if len(best.ratios) < MIN_ROUNDS:
        return "", f"{name(best)} has {quality}. No model is named: {_too_few(best, rows)}."
    measured = _by_speed(judged)
    fit = [row for row in measured if _is_as_good(row)]
    near = _fastest(fit)
    take = max(near, key=_f1)
    second = max((row for row in judged if row is not best), key=_f1, default=None)
    if take is not best:
        times = figure(median(map(truediv, take.ratios, best.ratios)), 2)
        reason = f"its F1 of {figure(take.f1, 3)} is {_distance(take)} lower than the best, that of"
        reason += f" {name(best)}, and it is {times} times as fast"
    else:
        reason = f"it has {quality}"
        reason += f"; that of {name(second)} is {_distance(second)} lower" if second else ""
    reason += _as_fast(name(row) for row in near if row is not take)
    text = f"Take {name(take)}: {reason}."
    if len(fit) > 1 and all((row.behind or (0.0, 0.0))[1] <= 0 for row in fit):
        text += f" No difference in F1 can be seen between {', '.join(map(name, fit))}."
    if measured[0] not in fit:
        first = measured[0]
        text += f" The fastest, {name(first)}, is not as good: {_distance(first)} lower."
    return take.label, text


def _f1(row: ComparisonRow) -> float:
    return row.f1 or 0.0


def _is_as_good(row: ComparisonRow) -> bool:
    behind, low, _ = row.behind or (0.0, 0.0, 0.0)
    return behind <= (MAX_BEHIND if low > 0 else MAX_CHANCE)


def _distance(row: ComparisonRow) -> str:
    """Returns how much lower an F1 is than the best, with its interval."""
    behind, low, high = (figure(x + 0.0, 3) for x in row.behind or ())
    return f"{behind} ({LEVEL:.0%}: {low} to {high})"


def _keeps_answers(row: ComparisonRow) -> bool:
    if not row.changed or row.loss is None:
        return not row.changed
    loss, low = row.loss
    return loss <= (MAX_LOSS if low > 0 else MAX_CHANCE)


def _cost(row: ComparisonRow) -> str:
    speed = f"{figure(median(row.ratios), 2)} times as fast as baseline"
    if not row.changed:
        return f"{speed}, no changed answer"
    text = f"{speed}, {counted(row.changed, 'changed answer')}"
    if row.loss is None:
        return text
    loss, low = row.loss
    chance = " (may be chance)" if low <= 0 < loss else ""
    name = "F1 of words" if row.micro_f1 is None else "micro-F1"
    return f"{text}, relative {'loss' if loss >= 0 else 'gain'} of {name} {abs(loss):.1%}{chance}"
