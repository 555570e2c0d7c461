"""Writes the page of a run as one file, and renders others in its way.

Text of the data reaches a page as JSON, in which no character can end a script, and the script
shows it as text only. The template escapes everything else.
"""

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from nq.evaluation.gate import Gate
from nq.evaluation.nq_eval import Decision, Verdict, best, sweep
from nq.evaluation.text_match import TOP
from nq.report.analysis import COUNTS, Analysis, analyse, number
from nq.report.judgments import KINDS, MEANING, TRAITS, Case, Stage
from nq.report.page_data import Question, entries
from nq.runs.measure import phases, prediction_s
from nq.storage import atomic_write
from nq.text import format_bytes

MAX_QUESTIONS = 50_000  # browsers open pages of some 100 MB
MORE_CHARS = 16 << 20
MAX_MORE_CHARS = 8000
"""Characters that are shown besides the blocks with answers: of all pages, and of a question's."""
CHART_CODE = ("vendor/vega.js", "vendor/vega-interpreter.js", "charts.js")
MAX_POINTS = 160  # of a curve, evenly spaced, the first and the last among them


@dataclass(frozen=True)
class RunView:
    """What the page shows of a run besides its questions.

    Args:
        metrics: the ``metrics.json`` of the run.
        stages: at which a loss can be told.
        other: the ``metrics.json`` of the run with which it is compared.
        remarks: why the speeds of the run and the other are not comparable; else empty.
        comparison: heads and lines of the table of both runs.
        changed: how many answers differ.
        standing: which of them has the better F1; empty without gold.
        gate: the relative loss of micro-F1 against the other run.
    """

    description: Mapping[str, str]
    metrics: Mapping[str, Any]
    stages: Sequence[Stage]
    thresholds: Mapping[str, float]
    other: Mapping[str, Any] | None = None
    remarks: Sequence[str] = ()
    comparison: tuple[list[str], list[list[str]]] | None = None
    changed: int | None = None
    standing: str = ""
    gate: Gate | None = None


def script_json(value: Any) -> str:
    r"""Returns JSON that can stand in a script: nothing in it ends the script or begins a comment.

    >>> print(script_json("</script><!--"))
    "\u003c/script\u003e\u003c!--"
    """
    from jinja2.utils import htmlsafe_json_dumps

    return str(htmlsafe_json_dumps(value, dumps=lambda value: orjson.dumps(value).decode()))


def write_page(
    path: Path, questions: Iterable[Question], n_questions: int, run: RunView
) -> Analysis | None:
    """Writes the page of a run, and returns its figures, if there is gold.

    ``n_questions`` is the number of its questions.
    """
    traits = {name: dict.fromkeys(values) for name, values in TRAITS.items()}
    more_chars = min(MAX_MORE_CHARS, MORE_CHARS // max(n_questions, 1))
    rows = list[str]()
    details = list[str]()
    cases = list[Case]()
    without_gold = 0
    is_retrieved = False

    for question in questions:
        case = question.case
        is_retrieved |= question.example.passages is not None
        if case:
            cases.append(case)
        else:
            without_gold += 1
        indices = []
        for name, values in traits.items():
            value = case.traits[name] if case else ""
            values.setdefault(value)
            indices.append(list(values).index(value))
        line, detail = map(script_json, entries(question, indices, more_chars))
        rows.append(line)
        details.append(detail)

    stages = [stage for stage in run.stages if is_retrieved or stage is not Stage.RETRIEVAL]
    analysis = analyse(cases, without_gold, stages) if cases else None
    data = {
        "compared": run.changed is not None,
        "scored": analysis is not None,
        "outcomes": ([*Verdict], COUNTS, COUNTS),
        "traits": {name: list(values) for name, values in traits.items()},
    }
    scripts = {
        "data": script_json(data),
        "rows": "[" + ",\n".join(rows) + "]",
        "details": "[" + ",\n".join(details) + "]",
    }
    curves = {kind: curve([case.judgments[kind] for case in cases]) for kind in KINDS}
    charts = {
        kind: {
            **(curves[kind] or {"points": []}),
            "threshold": run.thresholds.get(kind),
            "bins": analysis and analysis.kinds[kind].reliability,
        }
        for kind in KINDS
    }
    html = render(
        "report.html",
        [*CHART_CODE, "report.js"],
        scripts | {"charts": script_json(charts)},
        run=run,
        analysis=analysis,
        n_questions=len(rows),
        comparison=run.comparison,
        remarks=run.remarks,
        curves=curves,
        number=number,
        phases=phases,
        prediction_s=prediction_s,
        seconds=format_seconds,
        top=TOP[:3],
        size=format_bytes,
        kinds=KINDS,
        counts=COUNTS,
        meanings=MEANING,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(html)
    return analysis


def curve(decisions: Sequence[Decision]) -> dict[str, Any] | None:
    """Returns precision, recall and F1 of answers of one kind over the threshold of their scores.

    Only answers that were given have a threshold; ``None`` if there are none. ``best`` has the
    highest F1; ``given`` is the point of all answers that were given.
    """
    thresholds = {d.score for d in decisions if d.predicted}
    points = [point for point in sweep(decisions) if point.threshold in thresholds][::-1]
    if not points:
        return None
    step = max(1, (len(points) - 1) / (MAX_POINTS - 1))
    kept = [points[round(i * step)] for i in range(min(len(points), MAX_POINTS))]
    return {"points": kept, "best": best(points), "given": points[0]}


def render(template: str, code: Sequence[str], scripts: Mapping[str, str], **view: Any) -> bytes:
    """Returns a page with files of code and escaped JSON, whose policy lets no other script run."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    loader = PackageLoader("nq.report")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    *codes, style = (loader.get_source(environment, name)[0] for name in (*code, "report.css"))
    digests = (base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in codes)
    sources = " ".join(f"'sha256-{digest}'" for digest in digests)
    html = environment.get_template(template).render(
        **view,
        policy=f"default-src 'none'; script-src {sources}; "
        "style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'",
        codes=[Markup(one) for one in codes],
        style=Markup(style),
        scripts={name: Markup(json) for name, json in scripts.items()},
    )
    return html.encode("utf-8", "replace")


def format_seconds(seconds: float) -> str:
    """Returns a duration.

    >>> format_seconds(0.25), format_seconds(83.2), format_seconds(754), format_seconds(7500)
    ('0.2 s', '83.2 s', '12 min 34 s', '2 h 5 min')
    """
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
