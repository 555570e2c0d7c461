"""Shows a report as one HTML file without scripts or links to other files."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from experiments.errors.losses import MEANING, Case, Outcome, Stage
from experiments.errors.report import (
    KINDS,
    Calibration,
    KindReport,
    Report,
    Split,
    Tally,
    judgment,
)
from experiments.errors.text import (
    COUNTS,
    GIVEN_ONLY,
    NO_PROBABILITIES,
    NO_SCORES,
    counts,
    loss,
    measures,
    number,
    size,
)

STYLE = """
:root { color-scheme: light dark;
  --paper: #fbfbf9; --card: #ffffff; --ink: #22252a; --quiet: #6a7078; --line: #e4e5e1;
  --track: #eeefec; --right: #2f7f86; --wrong: #cf5b4a; --extra: #e0a63b; --missed: #7d74a8;
  --null: #c9ccd0; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #17191c; --card: #1f2226; --ink: #e4e6e8; --quiet: #9aa1a9; --line: #33373c;
  --track: #2b2f34; --right: #4fa5ab; --wrong: #dd7666; --extra: #d9ab52; --missed: #978ec4;
  --null: #50555b; } }
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 92rem; padding: 2.5rem 1.5rem 4rem; background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.7rem; font-weight: 600; margin: 0 }
h2 { font-size: 1.2rem; font-weight: 600; margin: 2.8rem 0 .2rem }
h3 { font-size: .95rem; font-weight: 600; margin: 0 0 .7rem }
p { margin: .2rem 0 .9rem; color: var(--quiet); max-width: 60rem }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: .8rem 0;
  font-size: .9rem } dt { color: var(--quiet) } dd { margin: 0; overflow-wrap: anywhere }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(44rem, 100%), 1fr));
  gap: 1rem }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: 1.1rem 1.2rem; margin-bottom: 1rem; overflow-x: auto }
.pair .card { margin-bottom: 0 }
.pair + .pair, .pair + .card, .card + .pair { margin-top: 1rem }
.figures { display: flex; gap: 2rem; margin-bottom: .8rem }
.figures b { display: block; font-size: 1.6rem; font-weight: 600; line-height: 1.2 }
.figures span { color: var(--quiet); font-size: .85rem }
table { border-collapse: collapse; width: 100%; font-size: .84rem;
  font-variant-numeric: tabular-nums }
th { font-weight: 500; color: var(--quiet); text-align: right; white-space: nowrap }
td { text-align: right; border-top: 1px solid var(--line) }
th, td { padding: .28rem .38rem; vertical-align: top }
th:first-child, td:first-child { text-align: left; padding-left: 0 }
td:last-child, th:last-child { padding-right: 0 }
.bar { min-width: 6rem }
td { white-space: nowrap } td.text { white-space: normal }
th.text, td.text { text-align: left; overflow-wrap: anywhere; min-width: 9rem }
.quiet { color: var(--quiet) }
.track { display: flex; height: .62rem; margin-top: .4rem; border-radius: 3px; overflow: hidden;
  background: var(--track); position: relative }
.big { height: 1rem }
.track i { display: block; height: 100% }
.right { background: var(--right) } .wrong { background: var(--wrong) }
.extra { background: var(--extra) } .missed { background: var(--missed) }
.null { background: var(--null) }
.tick { position: absolute; top: 0; width: 2px; background: var(--ink) }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; margin: .7rem 0 0; padding: 0;
  list-style: none; font-size: .85rem }
.legend i { display: inline-block; width: .7rem; height: .7rem; border-radius: 2px;
  margin-right: .4rem }
"""
TITLE = "Where answers are lost"


def page(report: Report) -> str:
    """Returns the whole page."""
    run = "".join(f"<dt>{_text(k)}</dt><dd>{_text(v)}</dd>" for k, v in report.run.items())
    body = [
        f"<h1>{TITLE}</h1><dl>{run}</dl><p>{size(report)}.</p>",
        _pair(_overall(kind, getattr(report, kind)) for kind in KINDS),
        "<h2>By stage</h2><p>The gold answers that each stage loses, and the recall and F1 that "
        "perfect later stages would reach.</p>",
        _pair(_bounds(kind, getattr(report, kind), report.with_scores) for kind in KINDS),
        "" if report.with_scores else f"<p>{NO_SCORES}</p>",
        "<h2>By kind of question</h2>",
        *(
            _pair(_split(f"{kind} answers, by {trait}", values, kind) for kind in KINDS)
            for trait, values in report.splits.items()
        ),
        f"<h2>By confidence</h2><p>{GIVEN_ONLY}</p>",
        _pair(_calibration(kind, getattr(report, kind).calibration) for kind in KINDS),
        "<h2>The worst</h2>",
        *(_worst(kind, getattr(report, kind)) for kind in KINDS),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<title>{TITLE}</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _text(value: object) -> str:
    """Returns text of the data, escaped and without characters that HTML does not allow."""
    shown = "".join(c if c.isprintable() or c == " " else "\ufffd" for c in str(value))
    return html.escape(shown)


def _pair(cards: Iterable[str]) -> str:
    return f'<div class="pair">{"".join(cards)}</div>'


def _card(title: str, body: str) -> str:
    return f'<section class="card"><h3>{_text(title)}</h3>{body}</section>'


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], texts: Sequence[int] = ()) -> str:
    """Returns a table of cells that are HTML already; the columns ``texts`` are left-aligned."""

    def line(tag: str, cells: Sequence[str]) -> str:
        css = [' class="text"' if i in texts else "" for i in range(len(cells))]
        inside = (f"<{tag}{c}>{cell}</{tag}>" for c, cell in zip(css, cells, strict=True))
        return f"<tr>{''.join(inside)}</tr>"

    return f"<table>{line('th', head)}{''.join(line('td', row) for row in rows)}</table>"


def _stack(tally: Tally, css: str = "") -> str:
    """Returns a bar with the share of each outcome."""
    parts = "".join(
        f'<i class="{name}" style="width:{100 * getattr(tally, name) / tally.n:.2f}%" '
        f'title="{name}: {getattr(tally, name)}"></i>'
        for name in COUNTS
        if getattr(tally, name)
    )
    return f'<div class="track {css}">{parts}</div>'


def _share(value: float, tick: float | None = None) -> str:
    """Returns a bar of one share, with a tick at another one."""
    mark = "" if tick is None else f'<i class="tick" style="left:{100 * tick:.2f}%"></i>'
    filled = f'<i class="right" style="width:{100 * value:.2f}%"></i>'
    return f'<div class="track">{filled}{mark}</div>'


def _overall(kind: str, part: KindReport) -> str:
    names = ("precision", "recall", "F1")
    figures = "".join(
        f"<div><b>{value}</b><span>{name}</span></div>"
        for name, value in zip(names, measures(part.overall), strict=True)
    )
    legend = "".join(
        f'<li><i class="{name}"></i>{getattr(part.overall, name)} {name} '
        f'<span class="quiet">{MEANING[Outcome(name)]}</span></li>'
        for name in COUNTS
    )
    return _card(
        f"{kind.capitalize()} answers",
        f'<div class="figures">{figures}</div>{_stack(part.overall, "big")}'
        f'<ul class="legend">{legend}</ul>',
    )


def _bounds(kind: str, part: KindReport, with_scores: bool) -> str:
    rows = []
    for bound in part.bounds:
        is_last = bound.stage is Stage.DECISION
        meaning = loss(kind, bound.stage, with_scores)
        if is_last:
            meaning += f": {part.other} to another, {part.null} to none"
        at_most = "" if is_last else "≤ "
        rows.append(
            [
                f'{bound.stage}<br/><span class="quiet">{_text(meaning)}</span>',
                str(bound.lost),
                f'<div class="bar">{_share(bound.recall)}</div>',
                at_most + number(bound.recall),
                at_most + number(part.overall.f1 if is_last else bound.f1),
            ]
        )
    head = ["stage", "lost", "", "recall", "F1"]
    return _card(f"{kind.capitalize()} answers", _table(head, rows, texts=(0,)))


def _split(title: str, values: list[Split], kind: str) -> str:
    rows = []
    for split in values:
        tally: Tally = getattr(split, kind)
        bar = f'<div class="bar">{_stack(tally)}</div>'
        rows.append([_text(split.value), str(tally.n), bar, *counts(tally), *measures(tally)])
    return _card(title.capitalize(), _table(["", "n", "", *COUNTS, "P", "R", "F1"], rows))


def _calibration(kind: str, calibration: Calibration | None) -> str:
    title = f"{kind.capitalize()} answers"
    if calibration is None:
        return _card(title, f"<p>{NO_PROBABILITIES}</p>")
    rows = [
        [
            f"{b.low:.1f} to {b.high:.1f}",
            str(b.count),
            f'<div class="bar">{_share(b.right, b.mean) if b.count else ""}</div>',
            number(b.right if b.count else None),
            number(b.mean if b.count else None),
        ]
        for b in calibration.bins
    ]
    head = ["probability", "answers", "", "right", "mean probability"]
    caption = (
        f"<p>Expected calibration error {calibration.error:.3f}. The tick is the mean "
        "probability, the bar the share that is right.</p>"
    )
    return _card(title, caption + _table(head, rows))


def _worst(kind: str, part: KindReport) -> str:
    head = ["question", "gold", "answer", "outcome", "score"]
    return "".join(
        _card(title, _table(head, [_row(case, kind) for case in cases], texts=range(4)))
        for title, cases in (
            (f"Incorrect {kind} answers with the highest score", part.wrong),
            (f"Missed {kind} answers with the highest score", part.missed),
        )
        if cases
    )


def _row(case: Case, kind: str) -> list[str]:
    j = judgment(case, kind)
    none = '<span class="quiet">none</span>'
    lost = f'<br/><span class="quiet">lost at {j.lost}</span>' if j.lost else ""
    return [
        f'{_text(case.question)}<br/><span class="quiet">{_text(case.example_id)}</span>',
        _text(j.gold) or none,
        _text(j.answer) or none,
        f"{j.outcome}{lost}",
        f"{j.score:.3f}",
    ]
