"""``nq tune``: fits the default decision of a model to one half of annotated data."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nq.commands import arguments, terminal
from nq.runs.config import Compute
from nq.text import grid, visible

BEFORE = "  before"
GROUPS = {"all": "odd", "short pages": "odd_short_pages", "long pages": "odd_long_pages"}
PARTS = ("long", "short")
ROWS: dict[str, Sequence[str]] = {
    "micro-F1, at the stored / best threshold": ("micro_f1", "micro_f1_best"),
    "long answer F1, at the stored / best threshold": ("long_f1", "long_f1_best"),
    "short answer F1, at the stored / best threshold": ("short_f1", "short_f1_best"),
    "calibration error, no threshold, long / short": [f"{n}_calibration_error" for n in PARTS],
    "area under the ROC curve, long / short": ("long_auc", "short_auc"),
}


def parser() -> terminal.Parser:
    parser = terminal.Parser(
        prog="nq tune",
        description="Fits the default decision (weights, calibration, thresholds) to the examples "
        "with even ids, writes it into the model folder, or with --output into a copy of it, and "
        "measures it on those with odd ids, beside the decision before. The fit starts from the "
        "decision of the model, which counts as 80 examples. "
        "With --ranker it is the decision of both models, in a new folder of both.",
        examples=(
            "nq tune --data dev.jsonl.gz --model my_model",
            "nq tune --data dev.jsonl.gz --model small --output my_small",
            "nq tune --data dev.jsonl.gz --model my_model --ranker ranker --output my_pair",
        ),
        notes=arguments.PROFILES_HELP,
    )
    arguments.add_data(parser, note=" of annotated data")
    text = "model folder; with --output also name of a model, or org/name of the Hugging Face hub"
    parser.add_argument("--model", required=True, metavar="MODEL", help=text)
    arguments.add_ranker(parser)
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
    from nq.runs import tuning

    model = arguments.open_model(args)
    if args.output is None:
        tuning.own_model(model, args.model)
    compute = arguments.settings(Compute, args)
    pages = arguments.pages(args)
    others = {"pages": pages, "output": args.output, "limit": args.limit}
    figures = tuning.tune(args.data, model, args.profile, compute, args.keep_scores, **others)
    if args.json:
        terminal.print_json(figures)
    else:
        print(_text(figures))
    return 0


def figures_table(figures: Mapping[str, Any]) -> list[list[str]]:
    """Returns the figures of ``nq.tune`` as rows, of which the first is the head.

    The last row is how well the model tells yes from no on the even half, all others are figures
    of the odd half, of short and of long pages alone, too. Below each row are the figures before,
    where they are known.
    """
    groups = {title: name for title, name in GROUPS.items() if f"{name}_examples" in figures}
    counts = (f"{title}: {figures[f'{one}_examples']}" for title, one in groups.items())
    rows = [["examples", *counts]]
    for title, names in ROWS.items():
        rows.append([title, *(_cell(figures, one, names) for one in groups.values())])
        before = [_cell(figures, f"{one}_before", names) for one in groups.values()]
        if any(before):
            rows.append([BEFORE, *before])
    yes_no = f"{figures['yes_no_auc']:.3f}"
    others = [""] * (len(groups) - 1)
    return [*rows, ["area under the ROC curve, yes / no", yes_no, *others]]


def _cell(figures: Mapping[str, Any], group: str, names: Sequence[str]) -> str:
    """Returns the figures of a group, of those that it has."""
    keys = [f"{group}_{name}" for name in names]
    return " / ".join(f"{figures[key]:.3f}" for key in keys if key in figures)


def _text(figures: Mapping[str, Any]) -> str:
    head, *rows = figures_table(figures)
    thresholds = _thresholds(figures)
    lines = [f"fitted to the examples with even ids: weights, and thresholds of {thresholds}"]
    if "before_long_threshold" in figures:
        before = _thresholds(figures, "before_")
        kept = "the thresholds stay: others are not better beyond chance"
        lines.append(kept if thresholds == before else f"thresholds before: {before}")
    lines += ["measured on those with odd ids:", "", *grid(head, rows), ""]
    return "\n".join([*lines, visible(f"written to {figures['model']}/nq.json")])


def _thresholds(figures: Mapping[str, Any], prefix: str = "") -> str:
    long = figures[f"{prefix}long_threshold"]
    short = figures[f"{prefix}short_threshold"]
    return f"{long:.4g} for long answers and {short:.4g} for short ones"
