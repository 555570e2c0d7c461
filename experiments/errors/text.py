"""Shows a report as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from experiments.errors.losses import MEANING, Outcome, Stage
from experiments.errors.report import (
    KINDS,
    Calibration,
    KindReport,
    Report,
    Split,
    Tally,
    judgment,
)
from experiments.text_tables import grid
from nq.text import truncate

COUNTS = tuple(outcome.value for outcome in Outcome)
MEASURES = ("precision", "recall", "F1")
LOSSES = {
    ("long", Stage.CONTEXTS): "it is not among the blocks that are read",
    ("long", Stage.WINDOWS): "no window contains any of it",
    ("long", Stage.POSITIONS): "no two of the best positions of a window are in it",
    ("short", Stage.CONTEXTS): "it is in none of the blocks that are read",
    ("short", Stage.WINDOWS): "no window contains all of it",
    ("short", Stage.POSITIONS): "its start and end are not among the best positions of a window",
}
DECISION = "another answer was chosen, or none"
POSITIONS_OR_DECISION = "it was not among the best positions, or not chosen"
NO_SCORES = (
    "The scores of the windows are needed to tell whether a gold answer was among the best "
    "positions: give the nq answer command again with --keep-scores, then this one."
)
NO_PROBABILITIES = "The scores are not probabilities, so that they have no calibration."
GIVEN_ONLY = "Only answers that were given: those below their threshold are not in the file."
WIDTH = 96


def text(report: Report) -> str:
    """Returns the whole report."""
    lines = [*_head(report), "", *_overall(report)]
    for kind in KINDS:
        lines += ["", *_bounds(getattr(report, kind), kind, report.with_scores)]
    if not report.with_scores:
        lines += ["", NO_SCORES]
    for trait, values in report.splits.items():
        lines += ["", *_split(trait, values)]
    for kind in KINDS:
        lines += ["", *_calibration(getattr(report, kind).calibration, kind)]
    for kind in KINDS:
        lines += _worst(getattr(report, kind), kind)
    return "\n".join(line.rstrip() for line in lines)


def number(value: float | None) -> str:
    """Returns a share with three digits, or a dash for ``None``.

    >>> number(0.5), number(None)
    ('0.500', '-')
    """
    return "-" if value is None else f"{value:.3f}"


def counts(tally: Tally) -> list[str]:
    """Returns the number of answers with each outcome, in the order of ``COUNTS``."""
    return [str(getattr(tally, name)) for name in COUNTS]


def measures(tally: Tally) -> list[str]:
    """Returns precision, recall and F1."""
    return [number(value) for value in (tally.precision, tally.recall, tally.f1)]


def loss(kind: str, stage: Stage, with_scores: bool) -> str:
    """Returns what it means that a stage loses a long or a short answer."""
    return LOSSES.get((kind, stage), DECISION if with_scores else POSITIONS_OR_DECISION)


def size(report: Report) -> str:
    """Returns the sentence on the number of examples."""
    more = f"; {report.without_gold} more have no annotations" if report.without_gold else ""
    return f"{report.n} annotated examples{more}"


def _head(report: Report) -> Iterator[str]:
    width = max(map(len, report.run), default=0)
    yield from (f"{name:<{width}}  {value}" for name, value in report.run.items())
    yield size(report)


def _overall(report: Report) -> list[str]:
    tallies = {kind: getattr(report, kind).overall for kind in KINDS}
    rows = [[kind, *counts(tally), *measures(tally)] for kind, tally in tallies.items()]
    meanings = "; ".join(f"{outcome}: {meaning}" for outcome, meaning in MEANING.items())
    return [*grid(["answers", *COUNTS, *MEASURES], rows), meanings]


def _bounds(part: KindReport, kind: str, with_scores: bool) -> list[str]:
    rows = []
    for bound in part.bounds:
        is_last = bound.stage is Stage.DECISION
        f1 = part.overall.f1 if is_last else bound.f1
        at_most = "" if is_last else "at most "
        rows.append([bound.stage, bound.lost, f"{at_most}{number(bound.recall)}", number(f1)])
    lines = grid([f"{kind} answers lost at", "lost", "recall", "F1"], rows)
    meanings = ["", *(f"  {loss(kind, b.stage, with_scores)}" for b in part.bounds)]
    lines = [line + meaning for line, meaning in zip(lines, meanings, strict=True)]
    return [*lines, f"of the last, {part.other} to another answer and {part.null} to none"]


def _split(trait: str, values: list[Split]) -> list[str]:
    short = ("right", "wrong", "extra", "missed", "F1")
    rows = [
        [s.value, s.long.n, *(c for t in (s.long, s.short) for c in (*counts(t)[:4], number(t.f1)))]
        for s in values
    ]
    width = max(len(trait), *(len(s.value) for s in values))
    head = [trait, "examples", *(f"{name:>6}" for name in short * 2)]
    return [f"{'':<{width}}  {'':>8}  {'long':<38}  short", *grid(head, rows)]


def _calibration(calibration: Calibration | None, kind: str) -> list[str]:
    if calibration is None:
        return [f"{kind} answers: {NO_PROBABILITIES}"]
    rows = [
        [
            f"{b.low:.1f} to {b.high:.1f}",
            b.count,
            *(number(share if b.count else None) for share in (b.mean, b.right)),
        ]
        for b in calibration.bins
    ]
    lines = grid([f"{kind} probability", "answers", "mean", "right"], rows)
    return [*lines, f"expected calibration error {calibration.error:.3f}", GIVEN_ONLY]


def _worst(part: KindReport, kind: str) -> Iterator[str]:
    for title, cases in (
        (f"incorrect {kind} answers with the highest score", part.wrong),
        (f"missed {kind} answers with the highest score", part.missed),
    ):
        if cases:
            yield from ("", title)
        for case in cases:
            j = judgment(case, kind)
            lost = f", lost at {j.lost}" if j.lost else ""
            yield f"  {j.score:.3f}  {case.question}  ({case.example_id}, {j.outcome}{lost})"
            yield f"         gold    {truncate(j.gold or '(no answer)', WIDTH)}"
            if j.answer:
                yield f"         answer  {truncate(j.answer, WIDTH)}"
