"""``nq convert``: converts a checkpoint of any kind, or exports a model."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from nq.commands import arguments, terminal
from nq.config import PruningConfig, StorageConfig
from nq.model.convert import FORMATS, check_storage, convert, to_dual_encoder
from nq.model.registry import model_folder
from nq.text import visible

DUAL_ENCODER = ("question_prefix", "block_prefix")


def parser() -> terminal.Parser:
    """Returns the parser of the command's arguments."""
    parser = terminal.Parser(
        prog="nq convert",
        description="Converts a model folder of any kind (this project's, Hugging Face's, Google's "
        "BERT and BERT-Joint, the 2020 port's) to this project's, Hugging Face's or MLflow's, or "
        "exports it.",
        examples=(
            "nq convert bert_joint my_model",
            "nq convert small small_onnx --to onnx",
            "nq convert my_model my_mlflow_model --to mlflow",
            "nq convert my_model my_model_8_bits --store int8",
            "nq convert my_model pruned --prune heads=9,ffn=1152 --data train.jsonl.gz",
            "nq convert all-MiniLM-L6-v2 ranker --dual-encoder",
        ),
    )
    parser.add_argument(
        "source", metavar="SRC", help="model folder of any kind, or name of an installed model"
    )
    parser.add_argument("target", type=Path, metavar="DST", help="folder to write; new or empty")
    parser.add_argument(
        "--to",
        choices=FORMATS,
        default="nq",
        help="what to write: this project's folder, one that transformers loads, a SavedModel, "
        "an ONNX file, or a model that mlflow models serve answers with (default: nq)",
    )
    arguments.add_settings(parser, StorageConfig)
    parser.add_argument(
        "--prune",
        type=arguments.parsed_by(PruningConfig.parse),
        metavar="COUNTS",
        help="keep so many attention heads and feed-forward units of each layer, and so many "
        "layers, the most important ones on --data: heads=9,ffn=1152,layers=5, or some of the "
        "three; ffn is a multiple of 64",
    )
    parser.flag(
        "dual-encoder",
        "turn a sentence encoder into a model that ranks blocks: nq answer --model DST "
        "--second-model MODEL",
    )
    for name in ("question", "block"):
        parser.add_argument(
            f"--{name}-prefix",
            metavar="TEXT",
            help=f"text that a dual encoder was trained with before each {name}, such as 'query: '",
        )
    arguments.add_data(parser, required=False, note=", annotated, for --prune")
    arguments.add_common(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Converts the source and prints what was written."""
    storage = arguments.settings(StorageConfig, args)
    try:
        check_storage(args.to, storage)
    except ValueError as error:
        raise terminal.UsageError(str(error)) from error
    if args.prune is None and (args.data or args.pages or args.page_column):
        raise terminal.UsageError("--data is for --prune alone: give --prune, or leave --data out")
    if args.dual_encoder and (args.prune is not None or args.to == "hf"):
        other = "--to hf" if args.prune is None else "--prune"
        raise terminal.UsageError(f"--dual-encoder and {other} exclude each other")
    if args.prune is not None and not args.data:
        raise terminal.UsageError("--prune needs --data: annotated records that tell what matters")
    options = {n: x for n in DUAL_ENCODER if (x := getattr(args, n)) is not None}
    if options and not args.dual_encoder:
        given = next(iter(options)).replace("_", "-")
        raise terminal.UsageError(f"--{given} is for --dual-encoder: give both, or neither")
    source = model_folder(args.source)
    if args.prune is None:
        change = partial(to_dual_encoder, **options) if args.dual_encoder else None
        model = convert(source, args.target, args.to, storage, change)
    else:
        from nq.training.pruning import prune

        pages = arguments.pages(args)
        model = prune(source, args.target, args.prune, args.data, args.to, storage, pages)
    missing, unexpected = model.report.missing, model.report.unexpected
    model_type, weights = model.config.model_type, len(model.model.weights)
    if args.json:
        values = {"output": str(args.target), "to": args.to, "model_type": model_type}
        values |= {"weights": weights, "missing": missing, "unexpected": unexpected}
        terminal.print_json(values | {"pruning": model.pruning and model.pruning.to_dict()})
        return 0
    print(f"{args.source} ({model_type}) -> {args.target} ({args.to})")
    print(f"{weights - len(missing)} weights of the encoder and its heads filled")
    if missing:
        print(f"not in the checkpoint: {', '.join(missing)}")
    if unexpected:
        print(visible(f"not used of the checkpoint: {', '.join(unexpected)}"))
    if model.pruning:
        print(visible(f"kept: {model.pruning.summary()}"))
        if (args.target / "nq.json").is_file():
            print(visible(f"the decision is that of {args.source}: fit it again with nq tune"))
    return 0
