"""``python -m nq.answer``: questions in; answers, scores and a recorded run out."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from nq import tracking
from nq.bundle import bundled_model, bundled_sample
from nq.commands import arguments, terminal
from nq.config import DECISION_RULES, DecisionConfig, WindowConfig
from nq.errors import Error
from nq.formats import outputs
from nq.inference.profile import Profile

if TYPE_CHECKING:
    from nq.runs.job import Job, Report
    from nq.runs.parity import Parity

SAMPLE_ROWS = 40


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = argparse.ArgumentParser(
        prog="nq answer",
        description="Answers every question of the data, scores the answers where there is gold,\n"
        "and records the run in MLflow. Run the same command again to go on where it was\n"
        "interrupted.",
        epilog=arguments.PROFILES_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--data", nargs="+", metavar="FILE", help="files, globs or folders; default: the sample"
    )
    arguments.add_profile(parser, auto=True)
    arguments.add_model(parser)
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="folder of the run; default: one under --root, named by what is asked",
    )
    parser.add_argument(
        "--root",
        type=Path,
        default=Path("runs"),
        metavar="DIR",
        help="where runs and the windows that they share lie (default: runs)",
    )
    parser.add_argument(
        "--batch-size",
        type=terminal.positive,
        default=16,
        metavar="N",
        help="windows in a batch (default: 16)",
    )
    parser.add_argument(
        "--limit", type=terminal.positive, metavar="N", help="answer the first N records only"
    )
    parser.add_argument(
        "--workers", type=terminal.positive, metavar="N", help="processes for preprocessing"
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
    parity = parser.add_argument_group("parity")
    parity.add_argument(
        "--against",
        type=arguments.profile,
        metavar="P",
        help="hold the run against one under another profile, made now if there is none",
    )
    parity.add_argument(
        "--tolerance",
        type=_share,
        metavar="X",
        help="exit with 1 if more than this share of the answers changed, or an F1 by more; "
        "against baseline where --against names no other",
    )
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a record is bad")
    parser.add_argument(
        "--show", type=int, default=SAMPLE_ROWS, metavar="N", help="rows of the table (default: 40)"
    )
    decision = parser.add_argument_group("decision; default: what the model folder says")
    decision.add_argument("--decision", choices=DECISION_RULES, help="which rule decides")
    terminal.add_settings(decision, DecisionConfig, exclude=("rule",), show_default=False)
    windows = parser.add_argument_group("windows; default: what the model folder says")
    terminal.add_settings(windows, WindowConfig, show_default=False)
    terminal.add_tracking(parser)
    terminal.add_common(parser)
    return parser


def _share(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 <= float(text) <= 1:
            return float(text)
    raise argparse.ArgumentTypeError(f"must be a share, from 0 to 1, got {text}")


def _formats(text: str) -> tuple[str, ...]:
    try:
        return outputs.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def answer(args: argparse.Namespace) -> int:
    """Runs the command."""
    from nq.report.summary import parity_line, record, summary
    from nq.runs.job import DEAD_LETTERS
    from nq.runs.run import run

    job = _job(args)
    if args.profile == arguments.AUTO:
        from nq.runs import profile_choice

        job = replace(job, profile=profile_choice.choose(job))
    with tracking.start(
        uri=args.tracking_uri,
        experiment=args.experiment,
        name=f"{job.profile} · {Path(job.files[0]).name}",
        profile=str(job.profile),
        enabled=not args.no_track,
    ) as tracked:
        with terminal.bar("predict", "windows") as bar:
            rows = 0 if args.json else args.show
            report = run(job, rows, bar, lambda: tracked.run_id, tracked.open)
            found = _parity(job, args, report)
        record(tracked, job, report, found)
    if args.json:
        told = {"parity": found.to_dict()} if found else {}
        terminal.print_json(report.to_dict() | told)
    else:
        print(summary(report, found, tracked.how_to_open()))
    if found and args.tolerance is not None and not found.within(args.tolerance):
        raise Error(f"beyond the tolerance of {args.tolerance}: {parity_line(found)}")
    if args.strict and report.dead_letters:
        raise Error(f"{report.dead_letters} bad records, see {report.output / DEAD_LETTERS}")
    return 0


def _parity(job: Job, args: argparse.Namespace, report: Report) -> Parity | None:
    """The run held against the one that was asked for, if any was."""
    if args.against is None and args.tolerance is None:
        return None
    from nq.runs import parity
    from nq.runs.run import run_once

    profile = args.against or Profile()
    other = replace(
        job, profile=profile, output=None, root=job.output or job.root, keep_scores=True, formats=()
    )
    with terminal.bar(f"predict under {profile}", "windows") as bar:
        return parity.compare(report.output, run_once(other, bar))


def _job(args: argparse.Namespace) -> Job:
    from nq.formats import inputs
    from nq.model.checkpoint import load_settings
    from nq.runs.job import Job

    model = args.model or bundled_model()
    own = load_settings(model)
    decision = terminal.settings(own.decision, args)
    return Job(
        files=tuple(inputs.find_files(args.data or [str(bundled_sample())])),
        model=model,
        profile=Profile() if args.profile == arguments.AUTO else args.profile,
        windows=terminal.settings(own.windows, args),
        decision=replace(decision, rule=args.decision or decision.rule),
        batch_size=args.batch_size,
        output=args.output,
        root=args.root,
        limit=args.limit,
        workers=args.workers,
        keep_scores=args.keep_scores or bool(args.against) or args.tolerance is not None,
        formats=args.formats,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return terminal.run(answer, parser(), argv)


if __name__ == "__main__":
    raise SystemExit(main())
