"""report -> text: the tables as a terminal shows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from experiments.errors.losses import MEANING, Outcome, Stage
from experiments.errors.report import KINDS, Calibration, Part, Report, Split, Tally, verdict

COUNTS = tuple(outcome.value for outcome in Outcome)
MEASURES = ("precision", "recall", "F1")
LOSES = {
    ("long", Stage.CONTEXTS): "it is not among the blocks that are read",
    ("long", Stage.WINDOWS): "no window holds any of it",
    ("long", Stage.POSITIONS): "no two of the best positions of a window lie in it",
    ("short", Stage.CONTEXTS): "it lies in none of the blocks that are read",
    ("short", Stage.WINDOWS): "no window holds it whole",
    ("short", Stage.POSITIONS): "its start and end are not among the best positions of a window",
}
DECISION = "another answer was chosen, or none"
DECISION_ALONE = "it was not among the best positions, or not chosen"
NO_SCORES = (
    "Whether a gold answer was among the best positions is known only with the scores of the "
    "windows: give the nq answer command again with --keep-scores, then this one."
)
NO_PROBABILITIES = "The scores are no probabilities, so there is nothing to hold them against."
NOT_GIVEN = "Of the answers that were given; what stayed below its threshold is not in the file."
WIDTH = 48


def text(report: Report) -> str:
    """The whole report."""
    lines = [*_head(report), "", *_overall(report)]
    for kind in KINDS:
        lines += ["", *_bounds(getattr(report, kind), kind, report.with_scores)]
    if not report.with_scores:
        lines += ["", NO_SCORES]
    for trait, found in report.splits.items():
        lines += ["", *_split(trait, found)]
    for kind in KINDS:
        lines += ["", *_calibration(getattr(report, kind).calibration, kind)]
    for kind in KINDS:
        lines += _worst(getattr(report, kind), kind)
    return "\n".join(line.rstrip() for line in lines)


def number(value: float | None) -> str:
    """A share with three digits; a dash where there is none.

    >>> number(0.5), number(None)
    ('0.500', '-')
    """
    return "-" if value is None else f"{value:.3f}"


def counts(tally: Tally) -> list[str]:
    """How many came to what, as ``COUNTS`` names it."""
    return [str(getattr(tally, name)) for name in COUNTS]


def measures(tally: Tally) -> list[str]:
    """Precision, recall and F1."""
    return [number(value) for value in (tally.precision, tally.recall, tally.f1)]


def what_is_lost(kind: str, stage: Stage, with_scores: bool) -> str:
    """What it means for a long or a short answer to be lost at a stage."""
    return LOSES.get((kind, stage), DECISION if with_scores else DECISION_ALONE)


def _head(report: Report) -> Iterator[str]:
    width = max(map(len, report.run), default=0)
    yield from (f"{name:<{width}}  {value}" for name, value in report.run.items())
    more = f"; {report.without_gold} more have no annotations" if report.without_gold else ""
    yield f"{report.n} annotated examples{more}"


def _overall(report: Report) -> list[str]:
    rows = [
        [kind, *counts(part.overall), *measures(part.overall)]
        for kind, part in ((kind, getattr(report, kind)) for kind in KINDS)
    ]
    meanings = "; ".join(f"{outcome}: {meaning}" for outcome, meaning in MEANING.items())
    return [*grid(["answers", *COUNTS, *MEASURES], rows), meanings]


def _bounds(part: Part, kind: str, with_scores: bool) -> list[str]:
    rows = []
    for bound in part.bounds:
        reached = bound.stage is Stage.DECISION
        f1 = part.overall.f1 if reached else bound.f1
        at_most = "" if reached else "at most "
        rows.append([bound.stage, bound.lost, f"{at_most}{number(bound.recall)}", number(f1)])
    head = [f"{kind} answers lost at", "lost", "recall", "F1"]
    said = [what_is_lost(kind, b.stage, with_scores) for b in part.bounds]
    lines = grid(head, rows)
    lines = [lines[0], *(f"{a}  {b}" for a, b in zip(lines[1:], said, strict=True))]
    return [*lines, f"of the last, {part.other} for another answer and {part.null} for none"]


def _split(trait: str, found: list[Split]) -> list[str]:
    short = ("right", "wrong", "extra", "missed", "F1")
    rows = [
        [s.value, s.long.n, *(c for t in (s.long, s.short) for c in (*counts(t)[:4], number(t.f1)))]
        for s in found
    ]
    width = max(len(trait), *(len(s.value) for s in found))
    head = [trait, "examples", *(f"{name:>6}" for name in short * 2)]
    return [f"{'':<{width}}  {'':>8}  {'long':<38}  short", *grid(head, rows)]


def _calibration(found: Calibration | None, kind: str) -> list[str]:
    if found is None:
        return [f"{kind} answers: {NO_PROBABILITIES}"]
    rows = [
        [f"{b.low:.1f} to {b.high:.1f}", b.count, *(_if(b.count, x) for x in (b.mean, b.right))]
        for b in found.bins
    ]
    head = [f"{kind} probability", "answers", "mean", "right"]
    return [*grid(head, rows), f"expected calibration error {found.error:.3f}", NOT_GIVEN]


def _if(count: int, value: float) -> str:
    return number(value if count else None)


def _worst(part: Part, kind: str) -> Iterator[str]:
    for title, cases in (
        (f"surest {kind} answers that are not right", part.wrong),
        (f"missed {kind} answers with the highest score", part.missed),
    ):
        if cases:
            yield from ("", title)
        for case in cases:
            v = verdict(case, kind)
            lost = f", lost at {v.lost}" if v.lost else ""
            yield f"  {v.score:.3f}  {case.question}  ({case.example_id}, {v.outcome}{lost})"
            yield f"         gold    {cut(v.gold or '(no answer)')}"
            if v.answer:
                yield f"         answer  {cut(v.answer)}"


def cut(text: str, width: int = 2 * WIDTH) -> str:
    """The beginning of a long text.

    >>> cut("abcdef", 4)
    'abc…'
    """
    return text if len(text) <= width else text[: width - 1] + "…"


def grid(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Rows in columns, the first to the left and the others to the right.

    >>> grid(["", "n"], [["who", 12], ["when", 3]])
    ['       n', 'who   12', 'when   3']
    """
    table = [list(map(str, row)) for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(
            f"{cell:<{width}}" if i == 0 else f"{cell:>{width}}"
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in table
    ]
