"""The figures of an error analysis in words and numbers, for a page and a terminal."""

from collections.abc import Mapping, Sequence

from nq.evaluation.nq_eval import Outcome
from nq.report.analysis import Analysis
from nq.report.judgments import MEANING, Stage
from nq.text import grid

COUNTS = tuple(outcome.value for outcome in Outcome)
BESIDE = ("total_s", "preprocess_s", "rescore_s", "second_model_s")
"""Seconds of a run that are no phases: of all, of work beside them, of parts of the prediction."""
LOSSES = {
    ("long", Stage.CONTEXTS): "it is not among the blocks that are read",
    ("long", Stage.WINDOWS): "no window contains any of it",
    ("long", Stage.POSITIONS): "no two of the best positions of a window are in it",
    ("short", Stage.CONTEXTS): "it is in none of the blocks that are read",
    ("short", Stage.WINDOWS): "no window contains all of it",
    ("short", Stage.POSITIONS): "its start and end are not among the best positions of a window",
}
NEEDS_SCORES = "Answer with --keep-scores to tell losses of the best positions from the decision's."


def text(analysis: Analysis) -> str:
    """Returns the outcomes as a table; the page has all figures of the analysis."""
    more = f"; {analysis.without_gold} more have no annotations" if analysis.without_gold else ""
    rows = []
    for kind, part in analysis.kinds.items():
        measures = map(number, (part.precision, part.recall, part.f1))
        rows.append([kind, *(getattr(part, name) for name in COUNTS), *measures])
    meanings = "; ".join(f"{outcome}: {meaning}" for outcome, meaning in MEANING.items())
    lines = grid(["answers", *COUNTS, "precision", "recall", "F1"], rows)
    examples = f"{analysis.examples} annotated examples{more}"
    return "\n".join([examples, "", *lines, meanings, *notes(analysis)])


def number(value: float | None) -> str:
    """Returns a share with three digits, or a dash for ``None``."""
    return "-" if value is None else f"{value:.3f}"


def loss(kind: str, stage: Stage, stages: Sequence[Stage]) -> str:
    """Explains in words how a stage lost a gold answer.

    The decision has the losses of the stages that are not in ``stages``, the known ones.
    """
    if stage != Stage.DECISION:
        return LOSSES[kind, stage]
    if Stage.POSITIONS in stages:
        return "another answer was chosen, or none"
    return "it was not among the best positions, or not chosen"


def notes(analysis: Analysis) -> list[str]:
    """Returns advice on how to also see the losses at stages that need the scores."""
    return [] if Stage.POSITIONS in analysis.stages else [NEEDS_SCORES]


def prediction_s(time: Mapping[str, float]) -> float:
    """Returns the divisor of windows/s: seconds of prediction or, with Beam, of the pipeline."""
    return time.get("pipeline_s", time.get("predict_s", 0.0))


def phases(time: Mapping[str, float]) -> tuple[dict[str, float], float]:
    """Returns the seconds of the phases of a run that have a duration, and the seconds of all.

    >>> phases({"load_s": 1.0, "predict_s": 3.0, "preprocess_s": 9.0, "total_s": 4.0})
    ({'load': 1.0, 'predict': 3.0}, 4.0)
    """
    seconds = {
        name.removesuffix("_s").replace("_", " "): value
        for name, value in time.items()
        if value > 0 and name not in BESIDE
    }
    return seconds, max(time.get("total_s", 0.0), sum(seconds.values()))


def format_seconds(seconds: float) -> str:
    """Returns a duration.

    >>> format_seconds(0.25), format_seconds(83.2), format_seconds(754), format_seconds(7500)
    ('0.2 s', '83.2 s', '12 min 34 s', '2 h 5 min')
    """
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
