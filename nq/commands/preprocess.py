"""``nq preprocess``: questions and pages in, TFRecords of windows out."""

import argparse
from dataclasses import asdict
from pathlib import Path

from nq.bundle import READER
from nq.commands import arguments, terminal
from nq.config import WindowConfig
from nq.errors import Error
from nq.model.registry import model_folder
from nq.text import counted, visible
from nq.training.job import TrainConfig


def parser() -> terminal.Parser:
    parser = terminal.Parser(
        prog="nq preprocess",
        allow_abbrev=False,
        pass_on=True,
        description="Turns questions and their pages into windows as TFRecords, with a manifest "
        "beside them. The same request again reuses the folder. Options that are not listed are "
        "passed to Apache Beam, such as --runner=DirectRunner.",
        examples=(
            "nq preprocess --data dev.jsonl.gz --output windows",
            "nq preprocess --data train.jsonl --output windows --training --negatives 0.1",
            "nq preprocess --data 'dev/*.jsonl.gz' --output windows --runner=DirectRunner",
        ),
    )
    arguments.add_data(parser)
    parser.add_argument(
        "--output",
        required=True,
        type=Path,
        metavar="DIR",
        help="where to write",
    )
    tokenizer = parser.add_mutually_exclusive_group()
    text = f"folder or name of the one model that will read the windows (default: {READER})"
    tokenizer.add_argument("--model", metavar="MODEL", help=text)
    text = "vocab.txt or tokenizer.json, or the folder of a tokenizer"
    tokenizer.add_argument("--tokenizer", metavar="PATH", help=text)
    arguments.add_limit(parser)
    arguments.add_workers(parser)
    parser.flag("strict", "exit with 1 if a record could not be used")
    arguments.add_set(parser, WindowConfig)
    training = parser.add_argument_group("training")
    text = "write windows with targets, from the annotations"
    training.add_argument("--training", action="store_true", help=text)
    arguments.add_settings(training, TrainConfig, only=("negatives", "seed"))
    arguments.add_common(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    from nq.model.folder import ModelFolder, ModelSettings
    from nq.preprocess.tokenizers.load import load_tokenizer

    if args.tokenizer:
        folder = model_folder(Path(args.tokenizer))
        stored = ModelSettings()
    else:
        model = ModelFolder.find(args.model or READER)
        folder = model.path
        stored = model.settings
    windows = arguments.window_settings(args, stored)
    config = arguments.settings(TrainConfig, args)
    if args.unknown:
        arguments.check_beam_options(args.unknown)
    from nq.beam.windows import by_workers
    from nq.preprocess.features import Sampling
    from nq.preprocess.prepared import Request, prepare
    from nq.questions import Questions, mention_unnamed_pages
    from nq.runs.result import dead_letter_lines, unread_lines

    with Questions.open(args.data, arguments.pages(args), args.limit) as questions:
        mention_unnamed_pages(questions)
        sampling = Sampling(config.negatives, config.seed) if args.training else None
        request = Request(
            questions,
            load_tokenizer(folder, windows.compat),
            windows,
            sampling,
        )
        prepared = prepare(
            request,
            args.output,
            by_workers(args.workers, args.unknown),
        )
    counts = prepared.counts
    if args.json:
        values = asdict(counts)
        values |= {"shards": list(map(str, prepared.shards)), "reused": prepared.reused}
        values |= {"time": {"preprocess_s": prepared.seconds}, "output": str(prepared.folder)}
        terminal.print_json(values)
    else:
        verb = "reused, made before" if prepared.reused else "made"
        lines = [
            f"{counted(counts.examples, 'example')}, {counted(counts.windows, 'window')}",
            f"{verb} in {prepared.seconds:.1f} s: {counted(len(prepared.shards), 'shard')} in "
            f"{prepared.folder}",
            *unread_lines(counts.truncated_pages, counts.unread_blocks),
            *dead_letter_lines(prepared.dead_letter_file),
        ]
        print("\n".join(map(visible, lines)))
    if args.strict and counts.dead_letters:
        first = prepared.first_dead_letter()
        raise Error(f"{counts.dead_letters} bad records, the first in {first}")
    return 0
