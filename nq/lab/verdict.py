"""The verdict on the rows of a comparison: which to take, and why."""

from collections.abc import Callable, Iterable, Sequence
from operator import lt, truediv
from statistics import median

from nq.evaluation.gate import LEVEL, SAME, distance, median_interval, standing
from nq.lab.rows import BASELINE, Row, figure
from nq.text import counted

MAX_LOSS = 0.005
MAX_CHANCE = 0.05
"""Shares of the micro-F1 of baseline that the profile to take may lose; the second if by chance."""
MAX_BEHIND = 0.01
"""The model to take may have an F1 this much lower than the best; ``MAX_CHANCE`` by chance."""
MIN_ROUNDS = 2
MIN_BUSY_ROUNDS = 3
NEAR = 0.95
"""Quiet rounds that a verdict needs, and rounds on a busy machine; the share of the highest speed
that is as fast on a quiet one."""
AGAIN = "the same command measures busy rounds again"


def advice(rows: Sequence[Row]) -> tuple[str, str]:
    """Returns the label of the row to take, empty if none, and a sentence that tells why.

    A profile keeps the answers if it changes none, or if its relative loss of micro-F1 is at most
    ``MAX_LOSS``, or at most ``MAX_CHANCE`` and no more than chance (its interval contains 0). Of
    these, one is left out if another was faster in every round, or if its median is below ``NEAR``
    of the highest. Of the others, it is the one with the fewest changed answers, then the fewest
    optimizations.

    If other programs took much of the processor, only what was faster in every round counts, and
    no profile is named where baseline and a faster one cannot be told apart.

    The model to take is found in the same way: its F1 is at most ``MAX_BEHIND`` below the best, or
    ``MAX_CHANCE`` and no more than chance, and of those that are as fast it has the highest F1.
    """
    if any(row.name for row in rows):
        return "", _runs_advice(rows)
    if any(row.model for row in rows):
        return _model_advice(rows)
    baseline = next((row for row in rows if row.label == BASELINE and row.windows_per_s), None)
    if baseline is None:
        return "", "No profile can be named, since baseline was not measured."
    if problem := _too_few(baseline, rows):
        return "", f"No profile is named: {problem}."
    measured = _by_speed(rows)
    busy = is_busy(rows)
    fit = [row for row in measured if _keeps_answers(row)]
    near = _fastest(fit, busy)
    if busy and near != [baseline]:
        near = [row for row in near if median_interval(row.ratios)[0] > 1 and min(row.ratios) > 1]
        if not near:
            text = "No profile is named: on a busy machine none that keeps the answers was faster"
            return "", f"{text} than baseline in every round; {AGAIN}."
    best = min(near, key=lambda row: (row.changed or 0, row != baseline, row.profile.count("+")))
    reason = _cost(best) if best != baseline else "no profile that keeps the answers is faster"
    reason += _as_fast(row.label for row in near if row is not best)
    text = f"Take {best.label}: {reason}."
    if measured[0] not in fit:
        text += f" The fastest, {measured[0].label}, loses too much: {_cost(measured[0])}."
    if busy:
        text += " It was measured on a busy machine, so --profile auto does not take it."
    return best.label, text


def is_busy(rows: Iterable[Row]) -> bool:
    """Returns whether other programs took much of the processor in rounds that count."""
    return any(row.busy for row in rows)


def _too_few(row: Row, rows: Iterable[Row]) -> str:
    """Returns why the rounds are too few for a verdict, or nothing."""
    count = counted(len(row.ratios), "round")
    if is_busy(rows):
        problem = f"{count} on a busy machine, and {MIN_BUSY_ROUNDS} are needed; {AGAIN}"
        return problem if len(row.ratios) < MIN_BUSY_ROUNDS else ""
    problem = f"there was {count}; give --rounds {MIN_ROUNDS} or more"
    return problem if len(row.ratios) < MIN_ROUNDS else ""


def _by_speed(rows: Sequence[Row]) -> list[Row]:
    measured = [row for row in rows if row.ratios]
    return sorted(measured, key=lambda row: (-median(row.ratios), row.label))


def _fastest(fit: Sequence[Row], busy: bool) -> list[Row]:
    """Returns those of rows, the fastest first, that are as fast as the fastest."""
    share = 0.0 if busy else NEAR
    near = [row for row in fit if median(row.ratios) >= share * median(fit[0].ratios)]
    return [row for row in near if not any(all(map(lt, row.ratios, one.ratios)) for one in fit)]


def _as_fast(labels: Iterable[str]) -> str:
    others = ", ".join(labels)
    return f"; as fast within the rounds: {others}" if others else ""


def _model_advice(rows: Sequence[Row]) -> tuple[str, str]:
    def name(row: Row) -> str:
        return row.label if sum(one.model == row.model for one in rows) > 1 else row.model

    judged = [row for row in rows if row.behind is not None and not row.error]
    if not judged:
        fastest = next((name(row) for row in rows if not row.error), "")
        advice = f"the fastest is {fastest}, and the page has the questions on which they differ"
        return "", f"No model is named, since the questions have no gold answers: {advice}."
    if problem := _too_few(judged[0], rows):
        return "", f"{_standing(judged, name)}. No model is named: {problem}."
    measured = _by_speed(judged)
    busy = is_busy(rows)
    fit = [row for row in measured if _is_as_good(row)]
    near = _fastest(fit, busy)
    take = max(near, key=_f1)
    best = [row for row in judged if _is_best(row)]
    reason = _standing(judged if take in best else [*best, take], name)
    slower = [row for row in best if row not in near]
    if slower:
        times = figure(median(map(truediv, take.ratios, slower[0].ratios)), 2)
        reason += f", and {name(take)} is {times} times as fast"
        reason += " on a busy machine" if busy else ""
    reason += _as_fast(name(row) for row in near if row is not take)
    text = f"Take {name(take)}: {reason}."
    if measured[0] not in fit:
        first = measured[0]
        text += f" The fastest, {name(first)}, is not as good: {distance(first.behind or ())}."
    return take.label, text


def _standing(rows: Iterable[Row], name: Callable[[Row], str]) -> str:
    """Returns which row has the best F1, or that several have the same; each is judged."""
    return standing({name(row): (_f1(row), *(row.behind or (0.0, 0.0, 0.0))) for row in rows})


def _runs_advice(rows: Sequence[Row]) -> str:
    """Returns what can be said of runs that were not measured in turn."""
    machines = {row.machine for row in rows}
    text = "No run is named, since they were not measured in turn, as nq compare does."
    if len(machines) > 1:
        text = f"No run is named, since the speeds are of {len(machines)} machines."
    standing = standing_of(rows)
    return f"{standing}. {text}" if standing else text


def standing_of(rows: Sequence[Row]) -> str:
    """Returns which of several runs has the best F1, by their labels; nothing without gold."""
    judged = [row for row in rows if row.behind]
    return _standing(judged, lambda row: row.label) if judged else ""


def _f1(row: Row) -> float:
    return row.f1 or 0.0


def _is_best(row: Row) -> bool:
    return row.behind is not None and row.behind[0] < SAME


def _is_as_good(row: Row) -> bool:
    behind, low, _ = row.behind or (0.0, 0.0, 0.0)
    return behind <= (MAX_BEHIND if low > 0 else MAX_CHANCE)


def _keeps_answers(row: Row) -> bool:
    if not row.changed or row.loss is None:
        return not row.changed
    loss, low = row.loss
    return loss <= (MAX_LOSS if low > 0 else MAX_CHANCE)


def _cost(row: Row) -> str:
    speed = f"{figure(median(row.ratios), 2)} times as fast as baseline"
    if row.busy:
        ends = (figure(end, 2) for end in median_interval(row.ratios))
        speed += f" ({LEVEL:.0%}: {' to '.join(ends)})"
    if not row.changed:
        return f"{speed}, no changed answer"
    text = f"{speed}, {counted(row.changed, 'changed answer')}"
    if row.loss is None:
        return text
    loss, low = row.loss
    chance = " (may be chance)" if low <= 0 < loss else ""
    name = "F1 of words" if row.micro_f1 is None else "micro-F1"
    return f"{text}, relative {'loss' if loss >= 0 else 'gain'} of {name} {abs(loss):.1%}{chance}"
