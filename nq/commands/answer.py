"""``nq answer``: answers a file of questions, scores the answers and records the run."""

import argparse
from dataclasses import replace

from nq import extras
from nq.bundle import bundled_sample
from nq.commands import arguments, terminal
from nq.config import DecisionConfig, WindowConfig
from nq.errors import Error
from nq.formats import outputs
from nq.runs.config import AUTO, Beam, Compute

OF_JOB = ("output", "root", "limit", "keep_scores", "formats", "against", "max_loss")


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
    parity.add_argument("--against", metavar="RUN", help=against)
    text = (
        "exit with 1 if the micro-F1 is lower than that of the other run by more than this share "
        "of it: 0.02 is 2 %%; the whole 90 %% interval of the loss must be above X"
    )
    parity.add_argument("--max-loss", type=float, metavar="X", help=text)
    parser.flag("strict", "exit with 1 if a record is bad")
    rows = "rows of the table (default: 40)"
    parser.add_argument("--show", type=int, default=40, metavar="N", help=rows)
    arguments.add_set(parser, WindowConfig, DecisionConfig)
    arguments.add_tracking(parser, logs_model=True)
    arguments.add_common(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    beam, compute = _beam(args), arguments.settings(Compute, args)
    from nq.evaluation.gate import FAILED
    from nq.runs.job import Job
    from nq.runs.run import run

    model, pages = arguments.open_model(args), arguments.pages(args)
    try:
        job = Job(
            args.data or [bundled_sample()],
            replace(model, decision=arguments.settings(model.decision, args)),
            args.profile or AUTO,
            pages=pages,
            compute=compute,
            beam=beam,
            **{name: getattr(args, name) for name in OF_JOB},
        )
    except ValueError as error:
        raise terminal.UsageError(str(error)) from error
    track, rows = arguments.tracking_config(args), 0 if args.json else args.show
    result = run(job, track=track, table_rows=rows)
    parity = result.parity
    if args.json:
        values = result.to_dict() | {n: getattr(result, n) for n in ("run_bytes", "windows_bytes")}
        values |= {"parity": parity.to_dict()} if parity else {}
        values |= {"model_uri": result.model_uri} if track and track.logs_model else {}
        terminal.print_json(values)
    else:
        print(result)
    gate = parity and parity.gate
    if gate and gate.verdict == FAILED:
        raise Error(f"too much is lost: {gate}")
    if args.strict and result.totals.dead_letters:
        raise Error(f"{result.totals.dead_letters} bad records, see {result.skipped}")
    return 0


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
