"""``nq compare``: measures profiles, or models, against each other on the same questions."""

import argparse
import webbrowser
from pathlib import Path
from typing import Any

from nq.commands import answer, arguments, terminal
from nq.errors import Error
from nq.lab.rows import CHOSEN, DECISIONS, SHIPPED
from nq.text import counted, visible

SETS = ("default", "thesis", "all")
OF_COMPARE = (
    "profiles",
    "decisions",
    "save_tuned",
    "batch_sizes",
    "max_seq_lengths",
    "rounds",
)
REFUSED = {
    "profile": "give --profiles",
    "root": "give --output, the folder of the comparison",
    "log_model": "leave it out",
    "register": "leave it out",
}
"""Options of ``nq answer`` that a comparison has no use for."""


def parser() -> terminal.Parser:
    parser = terminal.Parser(
        prog="nq compare",
        description="Measures profiles, or models, in rounds that alternate between them, each in "
        "a process of its own, and names the one to take. Further options are those of nq answer. "
        "Run the same command again to resume.",
        examples=(
            "nq compare --data dev.jsonl.gz --limit 60 --open",
            "nq compare --data dev.jsonl --profiles mixed mixed+buckets+openvino --rounds 5",
            "nq compare --model org/name --data squad.json",
            "nq compare --models small org/name ./my_model --data squad.json --open",
            "nq compare --profiles grappler --batch-sizes 1 8 --max-seq-lengths 128 384",
        ),
        notes=arguments.PROFILES_HELP,
        resumable=True,
        pass_on=True,
        allow_abbrev=False,  # --batch-size is one of nq answer
    )
    arguments.add_data(parser, required=False, note="; default: the bundled sample")
    parser.add_argument(
        "--profiles",
        nargs="+",
        type=lambda text: text if text in SETS else arguments.profile(text),
        default=None,
        metavar="P",
        help="profiles beside baseline and what --profile auto takes; thesis: the eight of mixed, "
        "xla and grappler; all: more; default: that of this machine, and without mixed; with "
        "--models only what --profile auto takes for each",
    )
    text = "folders or names of models that are compared"
    parser.add_argument("--models", nargs="+", default=(), metavar="M", help=text)
    text = (
        "those that judge --models: shipped, that each has; fitted, to one half of the questions "
        "and judged on the other; chosen, the fitted one only where it is better beyond chance "
        f"(default: {CHOSEN})"
    )
    parser.add_argument("--decisions", choices=DECISIONS, default=CHOSEN, help=text)
    text = "new folder for the model to take, with the decision that judges it"
    parser.add_argument("--save-tuned", type=Path, metavar="DIR", help=text)
    for name, what in (("batch-sizes", "windows in a batch"), ("max-seq-lengths", "window length")):
        several: Any = {"nargs": "+", "type": arguments.positive, "default": (), "metavar": "N"}
        parser.add_argument(f"--{name}", help=f"measure the profiles with each {what}", **several)
    arguments.add_model(parser)
    text = "rounds that count for the speed (default: 3)"
    parser.add_argument("--rounds", type=arguments.positive, default=3, metavar="N", help=text)
    text = "folder of the comparison; default: one in runs, named by data, model and options"
    parser.add_argument("--output", type=Path, metavar="DIR", help=text)
    text = "let --profile auto forget the comparisons in runs (or --output), and end"
    parser.flag("forget", text)
    parser.flag("open", "open the page compare.html in a browser")
    arguments.add_tracking(parser)
    arguments.add_common(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    of_answer = answer.parser()
    of_answer.set_defaults(root=None)
    passed_on = of_answer.parse_args(args.unknown)
    if passed_on.unknown:
        raise terminal.UsageError(parser().unknown(passed_on.unknown))
    for name, instead in REFUSED.items():
        if getattr(passed_on, name) not in (None, False):
            option = name.replace("_", "-")
            raise terminal.UsageError(f"--{option} is an option of nq answer alone: {instead}")
    if args.forget:
        return _forget(args)
    if args.models and args.model:
        raise terminal.UsageError("--model is one of --models: name it there")
    if (args.decisions != CHOSEN or args.save_tuned) and not args.models:
        raise terminal.UsageError("--decisions and --save-tuned are for --models")
    if args.models and passed_on.runner and args.decisions != SHIPPED:
        raise terminal.UsageError(
            "a --runner keeps no scores, to which decisions are fitted: add --decisions shipped"
        )
    from nq.lab.measure import compare
    from nq.lab.models import name_models

    of_all = {**vars(passed_on), **vars(args), "root": "runs", "unknown": []}
    jobs = [
        answer.job_of(argparse.Namespace(**{**of_all, "model": model}))
        for model in args.models or [args.model]
    ]
    models = zip(args.models, (job.model for job in jobs), strict=False)
    rows = compare(
        jobs[0],
        models=name_models(models),
        track=arguments.tracking_config(args),
        **{name: getattr(args, name) for name in OF_COMPARE},
    )
    page = rows.page.absolute()
    if args.json:
        terminal.print_json({**rows.to_dict(), "page": str(page)})
    else:
        print(f"{rows}\n{visible(f'the page: {page}')}")
    if args.open:
        webbrowser.open(page.as_uri())
    if failed := [row.label for row in rows if row.error]:
        what = "row" if args.models else "profile"
        raise Error(f"{counted(len(failed), what)} failed: {', '.join(failed)}")
    return 0


def _forget(args: argparse.Namespace) -> int:
    from nq.lab.choose import forget

    root = args.output or Path("runs")
    forgotten = forget(root)
    lines = [f"forgot {name}, the profile to take of {path}" for path, name in forgotten.items()]
    if args.json:
        terminal.print_json({"forgotten": forgotten})
    else:
        print(visible("\n".join(lines) or f"no comparison in {root} names a profile to take", True))
    return 0
