"""``python -m nq.answer``: questions in; answers, scores and a recorded run out."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from nq import commandline, tracking
from nq.bundle import bundled_model, bundled_sample
from nq.config import DECISIONS, DecisionConfig, WindowConfig
from nq.errors import RunError
from nq.formats import outputs
from nq.formats.shown import cut
from nq.model.profile import Profile, describe

if TYPE_CHECKING:
    from nq.pipeline import Job, Report

DEFAULT_PROFILE = "grappler"
PROFILES_HELP = f"profiles, joined by '+' in any order:\n{describe()}"
SAMPLE_ROWS = 40
QUALITY = {"micro_f1": "micro_f1", "long_f1": "long-answer-f1", "short_f1": "short-answer-f1"}


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = argparse.ArgumentParser(
        prog="nq answer",
        description="Answers every question of the data, scores the answers where there is "
        "gold, and records the run in MLflow. Run the same command again to go on where it "
        "was interrupted.",
        epilog=PROFILES_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--data", nargs="+", metavar="FILE", help="files, globs or folders; default: the sample"
    )
    add_model(parser)
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="folder of the run; default: one under runs/, named by what is asked",
    )
    parser.add_argument(
        "--batch-size",
        type=commandline.positive,
        default=16,
        metavar="N",
        help="windows in a batch (default: 16)",
    )
    parser.add_argument(
        "--limit", type=commandline.positive, metavar="N", help="answer the first N records only"
    )
    parser.add_argument(
        "--workers", type=commandline.positive, metavar="N", help="processes for preprocessing"
    )
    parser.add_argument(
        "--keep-scores",
        action="store_true",
        help="leave the scores of all windows in the run's folder, for experiments.errors",
    )
    parser.add_argument(
        "--formats",
        type=_formats,
        default=(),
        metavar="NAMES",
        help="what to write besides predictions.json, with commas between: "
        + ", ".join(f"{name} ({kind.FILE})" for name, kind in outputs.FORMATS.items()),
    )
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a record is bad")
    parser.add_argument(
        "--show", type=int, default=SAMPLE_ROWS, metavar="N", help="rows of the table (default: 40)"
    )
    decision = parser.add_argument_group("decision; default: what the model folder says")
    decision.add_argument("--decision", choices=DECISIONS, help="which rule decides")
    commandline.add_settings(decision, DecisionConfig, exclude=("rule",), show_default=False)
    windows = parser.add_argument_group("windows; default: what the model folder says")
    commandline.add_settings(windows, WindowConfig, show_default=False)
    commandline.add_tracking(parser)
    commandline.add_common(parser)
    return parser


def add_model(parser: argparse.ArgumentParser) -> None:
    """Adds which model runs under which profile; the epilog should be ``PROFILES_HELP``."""
    parser.add_argument(
        "--profile",
        type=_profile,
        default=Profile.parse(DEFAULT_PROFILE),
        help=f"optimizations to run under (default: {DEFAULT_PROFILE}); see below",
    )
    parser.add_argument(
        "--model", type=Path, metavar="DIR", help="model folder; default: the bundled model"
    )


def _profile(text: str) -> Profile:
    try:
        return Profile.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _formats(text: str) -> tuple[str, ...]:
    try:
        return outputs.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def answer(args: argparse.Namespace) -> int:
    """Runs the command."""
    if not args.no_track:
        tracking.preload()
    commandline.import_tensorflow()
    from nq.pipeline import DEAD_LETTERS, run

    job = _job(args)
    with tracking.start(
        uri=args.tracking_uri,
        experiment=args.experiment,
        name=f"{job.profile} · {Path(job.files[0]).name}",
        profile=str(job.profile),
        enabled=not args.no_track,
    ) as tracked:
        with commandline.bar("predict", "windows") as bar:
            report = run(job, 0 if args.json else args.show, bar, tracked.run_id)
        _track(tracked, job, report)
    if args.json:
        commandline.print_json(report.to_dict())
    else:
        print(summary(report, tracked.how_to_open()))
    if args.strict and report.dead_letters:
        raise RunError(f"{report.dead_letters} bad records, see {report.output / DEAD_LETTERS}")
    return 0


def _job(args: argparse.Namespace) -> Job:
    from nq.formats import inputs
    from nq.model.checkpoint import load_settings
    from nq.pipeline import Job

    model = args.model or bundled_model()
    own = load_settings(model)
    decision = commandline.settings(own.decision, args)
    return Job(
        files=tuple(inputs.find_files(args.data or [str(bundled_sample())])),
        model=model,
        profile=args.profile,
        windows=commandline.settings(own.windows, args),
        decision=replace(decision, rule=args.decision or decision.rule),
        batch_size=args.batch_size,
        output=args.output,
        limit=args.limit,
        workers=args.workers,
        keep_scores=args.keep_scores,
        formats=args.formats,
    )


def _track(tracked: tracking.Run, job: Job, report: Report) -> None:
    """Everything that a comparison of runs wants to see.

    The comparison page lists the first six metrics by name, quality/ and speed/; the rest sorts
    behind these. Between profiles only the params profile and precision differ.
    """
    from nq.formats import inputs
    from nq.pipeline import DEAD_LETTERS, JOB, METRICS, PREDICTIONS

    tracked.params(
        {
            "profile": report.profile,
            "precision": report.precision.removeprefix("mixed_"),
            "batch_size": job.batch_size,
            "limit": job.limit,
            "model": job.model.name,
            **{f"decision.{k}": v for k, v in job.decision.to_dict().items()},
            **{f"windows.{k}": v for k, v in job.windows.to_dict().items()},
        }
    )
    tracked.tags(
        {
            "device": report.device,
            "data": ", ".join(job.files),
            "model_folder": str(job.model),
            "output": str(report.output),
            "in_force.jit_compile": job.profile.changes.jit_compile,
            "in_force.grappler": not job.profile.changes.grappler["disable_meta_optimizer"],
        }
    )
    first = job.files[0]
    tracked.dataset(name=Path(first).name, path=first, digest=inputs.digest(first))
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
        }
    )
    written = (PREDICTIONS, METRICS, JOB, DEAD_LETTERS)
    others = (outputs.FORMATS[name].FILE for name in job.formats)
    tracked.artifacts([report.output / name for name in (*written, *others)])


def summary(report: Report, how_to_open: str | None) -> str:
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
        lines.append(f"{report.without_gold} examples have no annotations and were not scored")
    phases = "   ".join(
        f"{name.removesuffix('_s')} {spent:.1f}" for name, spent in report.time.items()
    )
    lines.append(f"seconds: {phases}   ({report.windows_per_s:.1f} windows/s)")
    if report.resumed_windows:
        lines.append(f"went on behind {report.resumed_windows} windows of an interrupted run")
    lines.append(f"written to {report.output}")
    if how_to_open:
        lines.append(f"see the run: {how_to_open}")
    return "\n".join(lines)


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


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return commandline.run(answer, parser(), argv)


if __name__ == "__main__":
    raise SystemExit(main())
