"""``nq answer``: answers a file of questions, scores the answers and records the run."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from nq import extras
from nq.bundle import bundled_sample
from nq.commands import arguments, terminal
from nq.config import DecisionConfig, WindowConfig
from nq.errors import Error
from nq.formats import outputs
from nq.inference.profile import BASELINE
from nq.runs.config import AUTO, Beam, Compute
from nq.text import visible

if TYPE_CHECKING:
    from nq.runs.job import Job

OF_JOB = ("output", "root", "limit", "keep_scores", "formats")


def parser() -> terminal.Parser:
    parser = terminal.Parser(
        prog="nq answer",
        description="Answers every question of the data, scores the answers where there is gold, "
        "and records the run in MLflow. Run the same command again to resume an interrupted run.",
        examples=(
            "nq answer",
            "nq answer --data dev.jsonl.gz --profile mixed+buckets+openvino+rescore",
            "nq answer --data 'dev/*.jsonl.gz' --model ranker --limit 100 --formats nbest",
            "nq answer --data dev.jsonl.gz --against runs/first --max-loss 0.02",
            "nq answer --data dev.jsonl.gz --instances auto",
            "nq answer --data 'dev/*.gz' --runner FlinkRunner --flink_master host:8081",
        ),
        notes=arguments.PROFILES_HELP,
        resumable=True,
        pass_on=True,
    )
    arguments.add_data(parser, required=False, note="; default: the bundled sample")
    arguments.add_profile(parser, auto=True)
    arguments.add_model(parser)
    arguments.add_ranker(parser)
    output = "folder of the run; default: one under --root, named by content"
    parser.add_argument("--output", metavar="DIR", help=output)
    root = "folder of runs and the windows that they share (default: runs)"
    parser.add_argument("--root", default="runs", metavar="DIR", help=root)
    arguments.add_settings(parser, Compute)
    arguments.add_limit(parser)
    parser.flag("keep-scores", "keep the scores of all windows in the run's folder, for nq report")
    names = ", ".join(f"{name} ({kind.file})" for name, kind in outputs.FORMATS.items())
    formats = f"output formats besides predictions.json, separated by commas: {names}"
    parse = arguments.parsed_by(outputs.parse)
    parser.add_argument("--formats", type=parse, default=(), metavar="NAMES", help=formats)
    title = "runner of Apache Beam; further options that are not listed are Beam's"
    arguments.add_settings(parser.add_argument_group(title), Beam, show_default=False)
    parity = parser.add_argument_group("parity")
    against = "compare with the finished run in this folder, of any model, on the same data"
    parity.add_argument("--against", type=Path, metavar="RUN", help=against)
    text = (
        "exit with 1 if the micro-F1 is lower than that of the other run by more than this share "
        "of it: 0.02 is 2 %%; the whole 90 %% interval of the loss must be above X"
    )
    share = arguments.parsed_by(_share)
    parity.add_argument("--max-loss", type=share, metavar="X", help=text)
    parser.flag("strict", "exit with 1 if a record is bad")
    rows = "rows of the table (default: 40)"
    parser.add_argument("--show", type=int, default=40, metavar="N", help=rows)
    arguments.add_set(parser, WindowConfig, DecisionConfig)
    arguments.add_tracking(parser, logs_model=True)
    arguments.add_common(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    if args.max_loss is not None and args.against is None:
        raise terminal.UsageError("--max-loss needs --against, the other run")
    job = job_of(args)
    track = arguments.tracking_config(args)
    from nq import tracking
    from nq.evaluation.gate import FAILED
    from nq.lab.choose import with_profile
    from nq.lab.compare import compare_two, open_other
    from nq.lab.record import record_difference, record_report
    from nq.questions import Questions
    from nq.runs.folder import FinishedRun
    from nq.runs.run import answer, executor_of

    system = executor_of(job).files(job)
    with system.found(job.files) as files, tracking.Run(track) as tracked:
        job = replace(job, files=files)
        questions = Questions(job.files, job.pages, job.limit, system)
        other = difference = None
        if args.against is not None:
            other = open_other(args.against, job, questions, args.max_loss)
        why = ""
        if args.profile in (None, AUTO):
            job, why = with_profile(job, questions)
        result = answer(job, tracked, table_rows=0 if args.json else args.show)
        result = replace(result, advice=why or result.advice)
        if tracked.available:
            record_report(tracked, job, result)
        if other is not None:
            run = FinishedRun(result.folder, check=False, questions=questions)
            difference = compare_two(run, other, args.max_loss)
            record_difference(tracked, difference)
    if args.json:
        values = result.to_dict() | {n: getattr(result, n) for n in ("run_bytes", "windows_bytes")}
        values |= {"against": difference.to_dict()} if difference else {}
        values |= {"model_uri": result.model_uri} if track and track.logs_model else {}
        terminal.print_json(values)
    else:
        print(result)
        if difference:
            print(visible(difference.summary, lines=True))
    gate = difference and difference.gate
    if gate and gate.verdict == FAILED:
        raise Error(f"too much is lost: {gate}")
    if args.strict and result.totals.dead_letters:
        raise Error(f"{result.totals.dead_letters} bad records, see {result.skipped}")
    return 0


def job_of(args: argparse.Namespace) -> Job:
    """Returns the job that arguments name; under ``auto`` its profile is still to be chosen."""
    beam = _beam(args)
    compute = arguments.settings(Compute, args)
    from nq.runs.job import Job

    model = arguments.open_model(args)
    pages = arguments.pages(args)
    try:
        return Job(
            args.data or [bundled_sample()],
            replace(model, decision=arguments.settings(model.decision, args)),
            BASELINE if args.profile in (None, AUTO) else args.profile,
            pages=pages,
            compute=compute,
            beam=beam,
            **{name: getattr(args, name) for name in OF_JOB},
        )
    except ValueError as error:
        raise terminal.UsageError(str(error)) from error


def _share(text: str) -> float:
    if not 0 <= float(text) < 1:
        raise ValueError(f"must be a number from 0 on and below 1, got {text}")
    return float(text)


def _beam(args: argparse.Namespace) -> Beam | None:
    if args.runner is None:
        if args.unknown:
            raise terminal.UsageError(parser().unknown(args.unknown))
        if args.temp is not None:
            raise terminal.UsageError("--temp needs --runner")
        return None
    extras.require("beam")
    arguments.check_beam_options([f"--runner={args.runner}", *args.unknown])
    return Beam(args.runner, args.unknown, args.temp)
