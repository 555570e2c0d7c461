"""What is told of a run: to a person as text, to MLflow as figures."""

from __future__ import annotations

from pathlib import Path

from nq import tracking
from nq.formats import inputs, outputs
from nq.report.page_text import cut
from nq.runs.job import DEAD_LETTERS, JOB, METRICS, PREDICTIONS, Job, Report
from nq.runs.parity import Parity

QUALITY = {"micro_f1": "micro_f1", "long_f1": "long-answer-f1", "short_f1": "short-answer-f1"}


def record(tracked: tracking.Run, job: Job, report: Report, parity: Parity | None = None) -> None:
    """Everything that a comparison of runs wants to see.

    The comparison page lists the first six metrics by name, quality/ and speed/; the rest sorts
    behind these. Between profiles only the params profile and precision differ.
    """
    decision = job.decision.to_dict()
    weights = decision.pop("weights")
    tracked.params(
        {
            "profile": report.profile,
            "precision": report.precision,
            "batch_size": job.batch_size,
            "limit": job.limit,
            "model": job.model.name,
            **{f"decision.{k}": v for k, v in decision.items()},
            **{f"windows.{k}": v for k, v in job.windows.to_dict().items()},
        }
    )
    tracked.tags(
        {
            "device": report.device,
            "decision.weights": weights,
            "data": ", ".join(job.files),
            "model_folder": str(job.model),
            "output": str(report.output),
            "in_force.jit_compile": job.profile.changes.jit_compile,
            "in_force.grappler": not job.profile.changes.grappler["disable_meta_optimizer"],
        }
    )
    first = job.files[0]
    tracked.dataset(name=Path(first).name, path=first, digest=inputs.sha256(first))
    quality = {f"quality/{n}": report.metrics[key] for n, key in QUALITY.items() if report.metrics}
    tracked.metrics(
        {
            **quality,
            "speed/examples_per_s": report.examples / report.time["total_s"],
            "speed/predict_s": report.time["predict_s"],
            "speed/windows_per_s": report.windows_per_s,
            **{f"tally/{name}": value for name, value in report.metrics.items()},
            **{f"time/{phase}": value for phase, value in report.time.items()},
            "tally/examples": report.examples,
            "tally/windows": report.windows,
            "tally/answered": report.answered,
            "tally/dead_letters": report.dead_letters,
            "tally/read_windows": report.read_windows,
            "tally/float32_windows": report.float32_windows,
            "tally/rechecked": report.rechecked,
        }
    )
    if parity:
        tracked.tags({"parity.against": parity.against})
        tracked.metrics(
            {f"parity/{name}": value for name, value in _parity_figures(parity).items()}
        )
    written = (PREDICTIONS, METRICS, JOB, DEAD_LETTERS)
    others = (outputs.FORMATS[name].FILE for name in job.formats)
    tracked.artifacts([report.output / name for name in (*written, *others)])


def summary(report: Report, parity: Parity | None = None, how_to_open: str | None = None) -> str:
    """What a person reads at the end."""
    lines = [*_table(report), ""] if report.rows else []
    lines.append(
        f"profile {report.profile} ({report.precision} on {report.device}): "
        f"{report.examples} examples, {report.windows} windows, {report.answered} answered, "
        f"{report.dead_letters} dead letters"
    )
    if report.metrics:
        m = report.metrics
        lines.append(
            f"long F1 {m['long-answer-f1']:.3f} (best {m['long-best-threshold-f1']:.3f})   "
            f"short F1 {m['short-answer-f1']:.3f} (best {m['short-best-threshold-f1']:.3f})   "
            f"micro-F1 {m['micro_f1']:.3f} (best {m['micro_f1_best']:.3f})"
        )
    else:
        lines.append("no annotations in the data: answered, not scored")
    if report.metrics and report.without_gold:
        lines.append(f"not scored, for want of annotations: {report.without_gold}")
    phases = "   ".join(
        f"{name.removesuffix('_s')} {spent:.1f}" for name, spent in report.time.items()
    )
    lines.append(f"seconds: {phases}   ({report.windows_per_s:.1f} windows/s)")
    if report.read_windows < report.windows - report.resumed_windows:
        lines.append(f"{report.read_windows} of the windows were read, the others left out")
    if report.float32_windows:
        lines.append(f"{report.float32_windows} windows were computed again in float32")
    if report.rechecked:
        lines.append(f"{report.rechecked} close calls were decided again in float32")
    if parity:
        lines.append(parity_line(parity))
    if report.resumed_windows:
        lines.append(f"went on behind {report.resumed_windows} windows of an interrupted run")
    lines.append(f"written to {report.output}")
    if how_to_open:
        lines.append(f"see the run: {how_to_open}")
    return "\n".join(lines)


def parity_line(parity: Parity) -> str:
    """How the run differs from the one it was held against, in a line."""
    drift = "" if parity.max_drift is None else f"; logits differ by {parity.max_drift:.2g} at most"
    scores = "".join(f", {name} by {value:+.4f}" for name, value in parity.f1.items())
    return (
        f"against {parity.against}: {parity.changed} of {parity.answers} answers changed "
        f"({parity.changed_share:.1%}){scores}{drift}"
    )


def _parity_figures(parity: Parity) -> dict[str, float | None]:
    return {
        "changed_share": parity.changed_share,
        "max_drift": parity.max_drift,
        "mean_drift": parity.mean_drift,
        **{f"{name}_difference": value for name, value in parity.f1.items()},
    }


def _table(report: Report) -> list[str]:
    """Question, answer, right or wrong; long texts are cut."""
    marks = {True: "right", False: "WRONG", None: ""}
    rows = [
        f"{cut(row.question, 58):<58}  {marks[row.right]:<5}  "
        f"{cut(row.answer or '(no answer)', 60)}"
        for row in report.rows
    ]
    more = report.examples - len(rows)
    return rows + ([f"… and {more} more in predictions.json"] if more > 0 else [])
