"""``nq tune``: fits the default decision of a model to one half of annotated data."""

import argparse
from pathlib import Path

from nq.commands import arguments, terminal
from nq.runs.config import Compute


def parser() -> terminal.Parser:
    """Returns the parser of the command."""
    parser = terminal.Parser(
        prog="nq tune",
        description="Fits the default decision (weights, calibration, thresholds) to the examples "
        "with even ids, writes it into the model folder, or with --output into a copy of it, and "
        "measures it on those with odd ids. "
        "With --second-model it is the decision of both models, in the folder of the second.",
        examples=(
            "nq tune --data dev.jsonl.gz --model my_model",
            "nq tune --data dev.jsonl.gz --model small --output my_small",
            "nq tune --data dev.jsonl.gz --model small --second-model my_model",
        ),
        notes=arguments.PROFILES_HELP,
    )
    arguments.add_data(parser, note=" of annotated data")
    text = "model folder; with --output also name of a model, or org/name of the Hugging Face hub"
    parser.add_argument("--model", required=True, metavar="MODEL", help=text)
    arguments.add_second_model(parser)
    text = "new folder for a copy of the model with the decision; the model folder stays as it is"
    parser.add_argument("--output", type=Path, metavar="DIR", help=text)
    arguments.add_limit(parser)
    arguments.add_profile(parser)
    of_scoring = ("batch_size", "instances", "threads")
    arguments.add_settings(parser, Compute, of_scoring, show_default=False)
    text = "keep the scores of the windows, so that tuning the same model again takes seconds"
    parser.flag("keep-scores", text)
    arguments.add_common(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Runs the command."""
    from nq.report import tuned
    from nq.runs import tuning

    model = arguments.find_model(args)
    if args.output is None:
        tuning.own_model(model, args.model, args.second_model or args.model)
    compute, pages = arguments.settings(Compute, args), arguments.pages(args)
    others = {"pages": pages, "output": args.output, "limit": args.limit}
    figures = tuning.tune(args.data, model, args.profile, compute, args.keep_scores, **others)
    if args.json:
        terminal.print_json(figures)
    else:
        print(tuned.text(figures))
    return 0
