"""``nq tune``: fits the default decision of a model to one half of annotated data."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from nq.commands import arguments, terminal
from nq.commands.parser import Parser
from nq.errors import Error
from nq.model.registry import model_folder


def parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(
        prog="nq tune",
        description="Fits the default decision (weights, calibration, thresholds) to the examples "
        "with even ids, writes it into the model folder, and measures it on those with odd ids. "
        "With --reader it is the decision of both models, in the reader's folder.",
        examples=(
            "nq tune --data dev.jsonl.gz --model my_model",
            "nq tune --data dev.jsonl.gz --model small --reader my_model",
        ),
        notes=arguments.PROFILES_HELP,
    )
    arguments.add_data(parser, note=" of annotated data")
    parser.add_argument("--model", required=True, metavar="DIR", help="model folder")
    arguments.add_reader(parser)
    arguments.add_profile(parser)
    arguments.add_batch_size(parser)
    arguments.add_instances(parser)
    parser.add_argument(
        "--keep-scores",
        action="store_true",
        help="keep the scores of the windows, so that tuning the same model again takes seconds",
    )
    arguments.add_common(parser)
    return parser


def tune(args: argparse.Namespace) -> int:
    """Runs the command."""
    from nq.model.cascade import both_models
    from nq.runs import tuning

    first, second = both_models(args.model, args.reader)
    model, reader = model_folder(first), None if second is None else model_folder(second)
    tuned = reader or model
    if tuned not in map(Path, (args.model, args.reader or args.model)):
        option = "model" if tuned == model_folder(args.model) else "reader"
        raise Error(
            f"nq tune writes into the folder of --{option}, and {tuned} is an installed model: "
            f"copy it (cp -r {tuned} my_model) and tune the copy (--{option} my_model)"
        )
    with terminal.progress_bar("predict", "windows") as bar:
        figures = tuning.tune(
            args.data,
            model,
            args.profile,
            args.batch_size,
            args.keep_scores,
            bar,
            reader,
            args.read_blocks,
            arguments.pages(args),
            args.instances,
            args.threads,
        )
    terminal.print_result(figures, args.json)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    return terminal.run(tune, parser(), argv)
