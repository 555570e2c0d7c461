"""``nq eval`` and ``python -m eval.nq_eval``: score predictions, with the official options.

Gold in NQ's own formats is read as the official evaluation reads it; other gold as ``nq answer``
reads it, with exact match and F1 where it is text, of which one answer is enough. Predictions of
EfficientQA have their answers as text and the question as key.
"""

import argparse
import json
import math
import sys
from collections.abc import Iterable, Sequence
from itertools import chain

from nq.commands.terminal import Parser
from nq.errors import Error
from nq.evaluation.nq_eval import Gold, Inputs, TextPlace, decisions, metrics_table, score
from nq.evaluation.official import FileSpan, read_gold, read_predictions
from nq.formats.input_files import matching_files
from nq.records import Answer
from nq.text import visible

KINDS = ("long", "short")


def _boolean(text: str) -> bool:
    """Returns the value of a flag as absl reads it."""
    if text.lower() not in ("true", "t", "1", "false", "f", "0"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false: give one of them")
    return text.lower() in ("true", "t", "1")


def parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="nq eval",
        allow_abbrev=False,
        description="Scores predictions against gold of Natural Questions, or in another format.",
    )
    add = parser.add_argument
    gold_help = "jsonl files, plain or compressed: files, globs or folders; may be repeated"
    add(
        "--gold_path",
        nargs="+",
        action="extend",
        required=True,
        metavar="PATH",
        help=gold_help,
    )
    add(
        "--predictions_path",
        required=True,
        metavar="PATH",
        help="prediction JSON, or compressed",
    )
    needed = "annotators that must have given a %s answer for gold to have one (default 2)"
    for kind in KINDS:
        add(
            f"--{kind}_non_null_threshold",
            type=int,
            default=2,
            metavar="N",
            help=needed % kind,
        )
    for name, text in (
        ("one_annotator", "one is enough for the examples that have only one annotator"),
        ("pretty_print", "print tables instead of a JSON object"),
        ("cache_gold_data", "accepted without effect: reading is fast enough without a cache"),
    ):  # absl's spellings: --name, --name=true, --noname
        add(
            f"--{name}",
            nargs="?",
            type=_boolean,
            const=True,
            metavar="BOOL",
            help=text,
        )
        add(f"--no{name}", dest=name, action="store_false", help=argparse.SUPPRESS)
        parser.set_defaults(**{name: False})
    threads_help = "accepted without effect: one thread reads as fast as several"
    add("--num_threads", type=int, default=10, metavar="N", help=threads_help)
    add(
        "--pages",
        metavar="FOLDER",
        help="folder of the pages that gold questions name",
    )
    add(
        "--page_column",
        metavar="NAME",
        help="field of gold questions that names the page",
    )
    return parser


def _read(args: argparse.Namespace) -> Inputs:
    from nq.evaluation import nq_open
    from nq.evaluation.evaluate import evaluation_of
    from nq.formats import inputs
    from nq.formats.own_data import list_pages

    paths = matching_files(args.gold_path)
    if nq_open.is_predictions(args.predictions_path):
        return {}, {}, nq_open.evaluate(paths, args.predictions_path)
    if all(map(inputs.is_official, paths)):
        return read_gold(args.gold_path), read_predictions(args.predictions_path), {}
    pages = None if args.pages is None else list_pages(args.pages, args.page_column)
    evaluation = evaluation_of(paths, args.predictions_path, pages)
    return evaluation.gold, evaluation.predictions, evaluation.of_texts()


def _few_annotators(gold: Gold, needed: int, one_annotator: bool) -> str:
    """Returns a note that examples have fewer annotators than ``needed``; empty if none has."""
    counts = [
        len(answers)
        for answers in gold.values()
        if not any(isinstance(one, TextPlace) for one in answers)
    ]
    few = [n for n in counts if n < needed and not (one_annotator and n == 1)]
    if not few:
        return ""
    options = "--one_annotator"
    if set(few) != {1}:
        options = " ".join(f"--{kind}_non_null_threshold {min(few)}" for kind in KINDS)
    return (
        f"{len(few)} of {len(gold)} examples have fewer than {needed} annotators and count as "
        f"having no answer where these do not suffice; {options} counts them, "
        "as the metrics of nq answer do"
    )


def _unofficial(answers: Iterable[Answer]) -> str:
    """Returns a note on spans that the official script refuses; empty if there is none."""
    spans = chain.from_iterable((one.long, *one.shorts) for one in answers)
    count = sum(isinstance(span, FileSpan) and not span.is_official for span in spans)
    note = f"{count} spans lack start_byte or another field; the official script refuses them"
    return note if count else ""


def main(argv: Sequence[str] | None = None, prog: str = "nq eval") -> int:
    """Prints the metrics; returns the exit code: 0, 1 for bad files, 2 for bad arguments."""
    arguments = parser()
    arguments.prog = prog
    args = arguments.parse_args(argv)
    needed = args.long_non_null_threshold, args.short_non_null_threshold
    try:
        gold, predictions, of_texts = _read(args)
        indent = 2 if sys.stdout.isatty() else None  # a metric a line
        if of_texts and not gold:
            print(json.dumps(of_texts, indent=indent))
            return 0
        metrics = score(gold, predictions, needed, args.one_annotator) | of_texts
        answers = chain(*gold.values(), predictions.values())
        few = _few_annotators(gold, max(needed), args.one_annotator)
        for note in filter(None, (few, _unofficial(answers))):
            print(f"{prog}: note: {note}", file=sys.stderr)
        if args.pretty_print:
            decided = decisions(gold, predictions, needed, args.one_annotator)
            print(metrics_table(*decided, metrics))
        else:  # a threshold that was a null score is null again
            values = {name: None if x == -math.inf else x for name, x in metrics.items()}
            print(json.dumps(values, indent=indent))
    except (Error, ValueError, OSError) as error:
        print(f"{prog}: {visible(str(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0
