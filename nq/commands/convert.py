"""``python -m nq.convert``: converts a checkpoint of any kind, or exports a model."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from nq.commands import arguments, terminal
from nq.commands.parser import Parser
from nq.config import StorageConfig
from nq.model.convert import FORMATS, check_storage, convert
from nq.model.registry import model_folder
from nq.text import visible


def parser() -> Parser:
    """Returns the parser of the command's arguments."""
    parser = Parser(
        prog="nq convert",
        description="Converts a model folder of any kind (this project's, Hugging Face's, Google's "
        "BERT and BERT-Joint, the 2020 port's) to this project's, Hugging Face's or MLflow's, or "
        "exports it.",
        examples=(
            "nq convert bert_joint my_model",
            "nq convert small small_onnx --to onnx",
            "nq convert my_model my_mlflow_model --to mlflow",
            "nq convert my_model my_model_8_bits --store int8 --shard-mb 50",
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
    arguments.add_storage(parser)
    arguments.add_common(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Converts the source and prints what was written."""
    storage = arguments.settings(StorageConfig, args)
    try:
        check_storage(args.to, storage)
    except ValueError as error:
        raise terminal.UsageError(str(error)) from error
    result = convert(model_folder(args.source), args.target, args.to, storage)
    if args.json:
        terminal.print_json(dataclasses.asdict(result) | {"output": str(result.output)})
        return 0
    print(f"{args.source} ({result.model_type}) -> {result.output} ({result.to})")
    print(f"{result.weights - len(result.missing)} weights of the encoder and its heads filled")
    if result.missing:
        print(f"not in the checkpoint: {', '.join(result.missing)}")
    if result.unexpected:
        print(visible(f"not used of the checkpoint: {', '.join(result.unexpected)}"))
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    return terminal.run(run, parser(), argv)
