"""``python -m nq.convert``: a checkpoint of any kind -> our folder, Hugging Face's, an export."""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nq.commands import arguments, terminal
from nq.config import ModelConfig
from nq.model.runtime import import_tensorflow

if TYPE_CHECKING:
    from nq.model.checkpoint import LoadReport, ModelSettings

HF_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
)


@dataclasses.dataclass(frozen=True)
class Loaded:
    """A model and where it came from."""

    source: Path
    config: ModelConfig
    model: Any
    report: LoadReport


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = argparse.ArgumentParser(
        prog="nq convert",
        description="Turns a model folder of any kind (ours, Hugging Face's, Google's BERT and "
        "BERT-Joint, the 2020 port's) into ours or Hugging Face's, or exports it.",
    )
    parser.add_argument("source", type=Path, metavar="SRC", help="model folder of any kind")
    parser.add_argument("target", type=Path, metavar="DST", help="folder to write; new or empty")
    parser.add_argument(
        "--to",
        choices=TARGETS,
        default="nq",
        help="what to write: our folder, one that transformers loads, a SavedModel, an ONNX file "
        "(default: nq)",
    )
    parser.add_argument(
        "--compact", action="store_true", help="nq only: word table in 8 bits, the rest in float16"
    )
    arguments.add_common(parser)
    return parser


def convert(args: argparse.Namespace) -> int:
    """Runs the command."""
    if args.compact and args.to != "nq":
        raise terminal.UsageError(f"--compact is for --to nq, not for --to {args.to}")
    if args.target.exists() and (args.target.is_file() or any(args.target.iterdir())):
        raise ValueError(f"{args.target} is not empty: choose a new folder")
    import_tensorflow()
    loaded = load(args.source)
    args.target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.target.parent, prefix=".convert-") as work:
        TARGETS[args.to](loaded, Path(work) / "made", args.compact)
        if args.target.exists():
            args.target.rmdir()
        (Path(work) / "made").rename(args.target)
    _tell(args, loaded)
    return 0


def load(source: Path) -> Loaded:
    """The model of a folder, for windows of any number and length."""
    from nq.model import checkpoint, joint

    config = checkpoint.load_config(source)
    model = joint.build(config, fresh=False)
    return Loaded(source, config, model, checkpoint.load(source, model, config))


def _to_nq(loaded: Loaded, folder: Path, compact: bool) -> None:
    """A model folder of ours; what the source lacks is lacking there too."""
    from nq.model import checkpoint
    from nq.preprocess.tokenizers.load import load_tokenizer

    tokenizer = load_tokenizer(loaded.source)
    checkpoint.with_room_for(loaded.config, tokenizer)  # refuses another model's vocabulary
    checkpoint.save(
        folder,
        loaded.model,
        loaded.config,
        tokenizer,
        _settings(loaded),
        f"# {loaded.source.name}\n\nConverted by `nq convert`.\n",
        compact,
        loaded.report.fresh,
    )


def _settings(loaded: Loaded) -> ModelSettings:
    """The source's windows and thresholds; windows no longer than the model allows."""
    from nq.model import checkpoint

    settings = checkpoint.load_settings(loaded.source)
    windows, positions = settings.windows, loaded.config.positions
    if windows.max_seq_length > positions:
        query = min(windows.max_query_length, max(1, positions // 4))
        windows = dataclasses.replace(windows, max_seq_length=positions, max_query_length=query)
    return checkpoint.ModelSettings(windows, settings.decision)


def _to_hf(loaded: Loaded, folder: Path, compact: bool) -> None:
    """A folder that ``transformers`` loads: encoder and span head, no head for types."""
    from nq.model import checkpoint
    from nq.preprocess.tokenizers.load import load_tokenizer

    folder.mkdir()
    left_out = [w.path for w in loaded.model.weights if w.path.startswith(("type_", "pooler"))]
    checkpoint.save_weights(
        folder, loaded.model, loaded.config, skip={*left_out, *loaded.report.fresh}
    )
    checkpoint.save_tokenizer(folder, load_tokenizer(loaded.source))
    for name in HF_TOKENIZER_FILES:
        if (loaded.source / name).is_file():
            shutil.copyfile(loaded.source / name, folder / name)


def _to_savedmodel(loaded: Loaded, folder: Path, compact: bool) -> None:
    from nq.model import export

    export.savedmodel(loaded.model, folder)


def _to_onnx(loaded: Loaded, folder: Path, compact: bool) -> None:
    from nq.model import export

    export.onnx(loaded.model, folder)


TARGETS: dict[str, Callable[[Loaded, Path, bool], None]] = {
    "nq": _to_nq,
    "hf": _to_hf,
    "savedmodel": _to_savedmodel,
    "onnx": _to_onnx,
}


def _tell(args: argparse.Namespace, loaded: Loaded) -> None:
    report = loaded.report
    result = {
        "output": str(args.target),
        "to": args.to,
        "model_type": loaded.config.model_type,
        "weights": len(loaded.model.weights),
        "fresh": list(report.fresh),
        "left_over": list(report.left_over),
    }
    if args.json:
        terminal.print_json(result)
        return
    filled = result["weights"] - len(report.fresh)
    print(f"{args.source} ({loaded.config.model_type}) -> {args.target} ({args.to})")
    print(f"{filled} weights of the encoder and its heads filled")
    if report.fresh:
        print(f"not in the checkpoint: {', '.join(report.fresh)}")
    if report.left_over:
        print(f"not used of the checkpoint: {', '.join(report.left_over)}")


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return terminal.run(convert, parser(), argv)


if __name__ == "__main__":
    raise SystemExit(main())
