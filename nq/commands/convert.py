"""``nq convert``: converts a checkpoint of any kind, or exports a model."""

import argparse
from functools import partial
from pathlib import Path

from nq.commands import arguments, terminal
from nq.model.convert import FORMATS, check_storage, convert, to_dual_encoder
from nq.text import visible

DUAL_ENCODER = ("question_prefix", "block_prefix")


def parser() -> terminal.Parser:
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
            "nq convert all-MiniLM-L6-v2 ranker --dual-encoder",
        ),
    )
    text = "model folder of any kind, or name of a model, as for nq answer --model"
    parser.add_argument("source", metavar="SRC", help=text)
    parser.add_argument(
        "target",
        type=Path,
        metavar="DST",
        help="folder to write; new or empty",
    )
    text = "write a folder for nq, transformers, TensorFlow Serving, ONNX or MLflow (default: nq)"
    parser.add_argument("--to", choices=FORMATS, default="nq", help=text)
    arguments.add_store(parser)
    text = "turn a sentence encoder into a --ranker, which ranks blocks for a --model"
    parser.flag("dual-encoder", text)
    for name in ("question", "block"):
        text = f"text that a dual encoder was trained with before each {name}, such as 'query: '"
        parser.add_argument(f"--{name}-prefix", metavar="TEXT", help=text)
    arguments.add_common(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    try:
        check_storage(args.to, args.store)
    except ValueError as error:
        raise terminal.UsageError(str(error)) from error
    if args.dual_encoder and args.to == "hf":
        raise terminal.UsageError("--dual-encoder and --to hf exclude each other")
    options = {n: x for n in DUAL_ENCODER if (x := getattr(args, n)) is not None}
    if options and not args.dual_encoder:
        option = next(iter(options)).replace("_", "-")
        raise terminal.UsageError(f"--{option} is for --dual-encoder: give both, or neither")
    change = partial(to_dual_encoder, **options) if args.dual_encoder else None
    model = convert(args.source, args.target, args.to, args.store, change)
    missing = model.report.missing
    unexpected = model.report.unexpected
    model_type = model.config.model_type
    weights = len(model.model.weights)
    if args.json:
        values = {"output": str(args.target), "to": args.to, "model_type": model_type}
        values |= {"weights": weights, "missing": missing, "unexpected": unexpected}
        terminal.print_json(values)
        return 0
    print(f"{args.source} ({model_type}) -> {args.target} ({args.to})")
    print(f"{weights - len(missing)} weights of the encoder and its heads filled")
    if missing:
        print(f"not in the checkpoint: {', '.join(missing)}")
    if unexpected:
        print(visible(f"not used of the checkpoint: {', '.join(unexpected)}"))
    return 0
