"""What the page shows above its questions: the run, figures, charts and the error analysis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nq.evaluation.gate import Gate
from nq.evaluation.nq_eval import Decision
from nq.report.analysis import KINDS, Analysis
from nq.report.charts import Curve, Plot, curve, phases, plot_of
from nq.report.losses import MEANING, Outcome, Stage
from nq.report.tables import COUNTS, loss, notes, number
from nq.text import format_bytes

F1 = {
    "micro-F1": "micro_f1",
    "long F1": "long-answer-f1",
    "short F1": "short-answer-f1",
    "exact match": "squad_exact_match",
    "F1 of words": "squad_f1",
}


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of the run; ``note`` is what it was in the other run, or a detail."""

    name: str
    value: str
    note: str = ""


def readable(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the numbers of a ``metrics.json``; a value of another type is left out."""

    def numbers(values: object) -> dict[str, Any]:
        items = values.items() if isinstance(values, Mapping) else ()
        return {name: value for name, value in items if type(value) in (int, float)}

    parts = {name: numbers(metrics.get(name)) for name in ("metrics", "time")}
    comparable = {"speed_comparable": str(metrics.get("speed_comparable", ""))}
    return numbers(metrics) | parts | comparable


def figures(mine: Mapping[str, Any], other: Mapping[str, Any] | None) -> list[Figure]:
    """Returns the figures of a run.

    Args:
        mine: its numbers; those that an earlier version did not write are left out.
        other: that of the run that it is compared with.
    """
    return [*_f1_figures(mine, other), *_speed_figures(mine, other), *_counts(mine)]


def _f1_figures(mine: Mapping[str, Any], other: Mapping[str, Any] | None) -> list[Figure]:
    metrics, others = mine["metrics"], other["metrics"] if other else {}
    return [
        Figure(
            name,
            number(metrics[key]),
            _difference(metrics[key], others[key]) if key in others else _best(metrics, key),
        )
        for name, key in F1.items()
        if key in metrics
    ]


def _best(metrics: Mapping[str, float], key: str) -> str:
    """Returns the F1 at the best threshold."""
    best = metrics.get(key.replace("answer", "best-threshold")) if "answer" in key else None
    best = metrics.get("micro_f1_best") if key == "micro_f1" else best
    return f"best {number(best)}" if best is not None else ""


def _difference(mine: float, other: float) -> str:
    return f"{mine - other:+.3f} against {number(other)}"


def _gate_figures(gate: Gate | None) -> list[Figure]:
    """Returns the relative loss of micro-F1 with its interval, and whether it is accepted."""
    if gate is None:
        return []
    note = gate.loss.interval + (f": {gate.verdict}" if gate.verdict else "")
    return [Figure("relative loss of micro-F1", f"{gate.loss.loss:.1%}", note)]


def _speed_figures(mine: Mapping[str, Any], other: Mapping[str, Any] | None) -> list[Figure]:
    before = other or {"time": {}}
    (_, total), (_, other_total) = (phases(x["time"]) for x in (mine, before))
    speed, other_speed = mine.get("windows_per_s"), before.get("windows_per_s")
    windows = f"{mine['windows']:,} windows" if "windows" in mine else ""
    runs = {"this run": mine, "the other run": before} if other else {"": mine}
    reasons = [
        ": ".join(filter(None, (name, text.removeprefix("no: "))))
        for name, run in runs.items()
        if (text := str(run.get("speed_comparable", ""))).startswith("no")
    ]
    ratio = f"{other_total / total:.2f}x as fast" if total and other_total else ""
    note = f"not comparable: {'; '.join(reasons)}" if reasons else ratio
    shown = []
    if total:
        shown.append(Figure("total time", format_seconds(total), note))
    if speed:
        against = f"against {other_speed:.1f}" if other_speed else windows
        shown.append(Figure("windows/s", f"{speed:.1f}", against))
    if peak := mine.get("peak_memory_bytes"):
        shown.append(Figure("peak memory", format_bytes(int(peak))))
    return shown


def _counts(mine: Mapping[str, Any]) -> list[Figure]:
    answered = f"{mine['answered']:,} answered" if "answered" in mine else ""
    bad = f"{mine['dead_letters']:,} bad records" if mine.get("dead_letters") else ""
    note = ", ".join(filter(None, (answered, bad)))
    return [Figure("questions", f"{mine['examples']:,}", note)] if "examples" in mine else []


def format_seconds(seconds: float) -> str:
    """Returns a duration.

    >>> format_seconds(0.25), format_seconds(83.2), format_seconds(754), format_seconds(7500)
    ('0.2 s', '83.2 s', '12 min 34 s', '2 h 5 min')
    """
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


@dataclass(frozen=True, slots=True)
class KindView:
    """The charts and tables of the answers of one kind.

    Args:
        name: ``long`` or ``short``.
        part: its part of the analysis.
        curve: F1 over the threshold; ``None`` without answers.
        other: the curve of the other run.
        threshold: of the run's decision, if it has one.
        losses: name, meaning, count, recall and F1 of each stage.
    """

    name: str
    part: Any
    curve: Curve | None
    other: Curve | None
    threshold: float | None
    losses: Sequence[tuple[str, str, int, str, str]]


def kind_views(
    analysis: Analysis,
    decisions: Mapping[str, Sequence[Decision]],
    others: Mapping[str, Sequence[Decision]],
    thresholds: Mapping[str, float | None],
) -> list[KindView]:
    """Returns the views of both kinds.

    Args:
        analysis: of the run.
        decisions: of its annotated examples, by kind.
        others: those of the other run; empty without it.
        thresholds: of the run's decision, by kind.
    """
    return [
        KindView(
            kind,
            getattr(analysis, kind),
            curve(decisions[kind]),
            curve(others[kind]) if others else None,
            thresholds.get(kind),
            _losses(analysis, kind),
        )
        for kind in KINDS
    ]


def _losses(analysis: Analysis, kind: str) -> list[tuple[str, str, int, str, str]]:
    part, rows = getattr(analysis, kind), []
    for bound in part.bounds:
        is_last = bound.stage is Stage.DECISION
        f1 = number(part.overall.f1 if is_last else bound.f1)
        limit = "" if is_last else "≤ "
        meaning = loss(kind, bound.stage, analysis.stages)
        if is_last:
            meaning += f": {part.other} to another, {part.null} to none"
        recall = limit + number(bound.recall)
        rows.append((str(bound.stage), meaning, bound.lost, recall, limit + f1))
    return rows


def view(
    run: Mapping[str, str],
    metrics: Mapping[str, Any],
    other_metrics: Mapping[str, Any] | None,
    analysis: Analysis | None,
    kinds: Sequence[KindView],
    problems: Sequence[str],
    changed: tuple[int, int] | None,
    gate: Gate | None = None,
) -> dict[str, Any]:
    """Returns what the template shows, and the part that the script needs.

    Args:
        run: description of the run, by name.
        metrics: its ``metrics.json``.
        other_metrics: that of the run that it is compared with.
        analysis: ``None`` without gold.
        kinds: the views of long and short answers; empty without gold.
        problems: what is missing, one sentence each.
        changed: how many answers changed, and of how many; ``None`` without another run.
        gate: the relative loss of micro-F1 against that run; ``None`` without one or without gold.
    """
    mine, other = readable(metrics), readable(other_metrics) if other_metrics else None
    shown_phases, total = phases(mine["time"])
    curves = [c for kind in kinds for c in (kind.curve, kind.other)]
    return {
        "run": run,
        "figures": [*_gate_figures(gate), *figures(mine, other)],
        "phases": shown_phases,
        "total": format_seconds(total),
        "seconds": format_seconds,
        "analysis": analysis,
        "kinds": kinds,
        "plot": plot_of(curves),
        "unit": Plot(),
        "counts": COUNTS,
        "meanings": {str(outcome): MEANING[outcome] for outcome in Outcome},
        "number": number,
        "notes": notes(analysis) if analysis else [],
        "problems": problems,
        "changed": changed,
        "script": {
            "compared": changed is not None,
            "scored": analysis is not None,
            "outcomes": [str(outcome) for outcome in Outcome],
        },
    }
