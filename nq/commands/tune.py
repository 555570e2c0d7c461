"""``nq tune``: fits the default decision of a model to one half of annotated data."""

import argparse

from nq.commands import arguments, terminal
from nq.runs.config import Compute


def parser() -> terminal.Parser:
    """Returns the parser of the command."""
    parser = terminal.Parser(
        prog="nq tune",
        description="Fits the default decision (weights, calibration, thresholds) to the examples "
        "with even ids, writes it into the model folder, and measures it on those with odd ids. "
        "With --second-model it is the decision of both models, in the folder of the second.",
        examples=(
            "nq tune --data dev.jsonl.gz --model my_model",
            "nq tune --data dev.jsonl.gz --model small --second-model my_model",
        ),
        notes=arguments.PROFILES_HELP,
    )
    arguments.add_data(parser, note=" of annotated data")
    parser.add_argument("--model", required=True, metavar="DIR", help="model folder")
    arguments.add_second_model(parser)
    arguments.add_profile(parser)
    of_scoring = ("batch_size", "instances", "threads")
    arguments.add_settings(parser, Compute, of_scoring, show_default=False)
    text = "keep the scores of the windows, so that tuning the same model again takes seconds"
    parser.flag("keep-scores", text)
    arguments.add_common(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Runs the command."""
    from nq.runs import tuning

    model = arguments.find_model(args)
    tuning.own_model(model, args.model, args.second_model or args.model)
    compute, pages = arguments.settings(Compute, args), arguments.pages(args)
    figures = tuning.tune(args.data, model, args.profile, compute, args.keep_scores, pages=pages)
    terminal.print_result(figures, args.json)
    return 0
