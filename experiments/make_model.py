"""Makes the models ``ranker``, ``base`` and ``small`` by their recipes (``experiments.recipes``).

    python -m experiments.make_model --data ../shared/data --models base small

Every training stage is a run of ``nq train`` that resumes when the same command is started again.
(``ranker`` has none.)
The result is tuned by ``nq tune`` on the files in ``dev``. It is in ``runs/model/NAME/model``;
``experiments.package_model`` puts it into a distribution.
"""

from __future__ import annotations

import argparse
import gzip
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from experiments.recipes import RECIPES, Recipe, Stage
from nq import folders
from nq.commands import arguments, terminal
from nq.commands import train as nq_train
from nq.commands import tune as nq_tune
from nq.config import StorageConfig
from nq.errors import Error
from nq.files import atomic_write
from nq.model.convert import convert
from nq.model.runtime import import_tensorflow
from nq.model.sentence_encoder import to_dual_encoder

MODELS = folders.Kind(
    name="make_model",
    what="models of experiments.make_model",
    lock=".nq-make-model.lock",
    holder="another make_model",
    files=r"[\w-]+\.jsonl\.gz",
    signs=({"start/config.json": (), "start/model.safetensors": (), "start/vocab.txt": ()},),
)


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.make_model",
        description="Makes the models ranker, base and small. Run the same command again to resume "
        "after an interruption.",
    )
    parser.add_argument(
        "--data", type=Path, required=True, metavar="DIR", help="folder with train/ and dev/"
    )
    parser.add_argument(
        "--models",
        nargs="+",
        choices=tuple(RECIPES),
        default=list(RECIPES),
        help="small is taught by base, which is made before it (default: all)",
    )
    parser.add_argument("--output", type=Path, default=Path("runs/model"), metavar="DIR")
    arguments.add_common(parser)
    return parser


def make(args: argparse.Namespace) -> int:
    """Runs the command."""
    files = sorted((args.data / "train").glob("*.jsonl.gz"))
    if not files:
        raise FileNotFoundError(f"{args.data} has no train/*.jsonl.gz: give the folder of the data")
    dev = sorted(map(str, (args.data / "dev").glob("*.jsonl.gz")))
    if not dev:
        raise FileNotFoundError(f"{args.data} has no dev/*.jsonl.gz: give the folder of the data")
    names = [name for name in RECIPES if name in args.models]
    for name in names:
        for teacher in RECIPES[name].teachers:
            if teacher not in names and not (args.output / teacher / "model").is_dir():
                raise Error(
                    f"{name} is taught by {teacher}: make it too, by --models {teacher} {name}"
                )
    for name in names:
        folder = args.output / name
        with folders.hold(folder, MODELS, files):
            if code := _train(RECIPES[name], folder, files):
                return code
        if code := nq_tune.main(["--data", *dev, "--model", str(folder / "model")]):
            return code
    return 0


def _train(recipe: Recipe, folder: Path, files: Sequence[Path]) -> int:
    """Trains the stages of a recipe and stores the last model; the caller holds the folder."""
    model = recipe.start(folder / "start")
    for stage in recipe.stages:
        data = folder / f"{stage.name}.jsonl.gz"
        if not data.is_file():
            write_data(files, stage, data)
        init, model = model, folder / stage.name
        if stage.start:
            init = folder / "-".join(stage.start)
            mean([folder / name for name in stage.start], init, StorageConfig("float32"))
        paths = ["--data", str(data), "--init", str(init), "--output", str(model)]
        if stage.teacher:
            paths += ["--teacher", str(folder.parent / stage.teacher / "model")]
        if code := nq_train.main([*paths, *recipe.options.split(), *stage.options.split()]):
            return code
    storage, output = StorageConfig(recipe.store), folder / "model"
    if not recipe.dual_encoder:
        mean([model], output, storage)
    elif not output.is_dir():
        convert(model, output, storage=storage, change=to_dual_encoder)
    return 0


def mean(models: Sequence[Path], output: Path, storage: StorageConfig) -> None:
    """Makes a model folder with the mean of the weights of some folders of one shape.

    Args:
        models: at least one; the first gives vocabulary and settings.
        output: the new folder.
        storage: how its weights are stored.
    """
    import_tensorflow()
    import numpy as np

    from nq.model import checkpoint, joint
    from nq.preprocess.tokenizers.load import load_tokenizer

    first, *others = models
    tokenizer = load_tokenizer(first)
    shape = checkpoint.with_room_for(checkpoint.load_config(first), tokenizer)
    model = joint.build(shape, initialize=False)
    checkpoint.load(first, model, shape)
    sums = [np.asarray(weight.numpy(), np.float64) for weight in model.weights]
    for other in others:
        checkpoint.load(other, model, shape)
        sums = [total + weight.numpy() for total, weight in zip(sums, model.weights, strict=True)]
    for weight, total in zip(model.weights, sums, strict=True):
        weight.assign(total / len(models))
    settings = checkpoint.load_settings(first)
    names = " and ".join(path.name for path in models)
    what = f"The mean of {names}" if others else names
    checkpoint.save(output, model, shape, tokenizer, settings, f"# {what}\n", storage)


def write_data(files: Sequence[Path], stage: Stage, output: Path) -> None:
    """Writes the records of a stage to ``output``, completely or not at all."""
    with atomic_write(output) as file, gzip.open(file, "wb", compresslevel=1) as lines:
        for record in stage.records(list(_records(files))):
            lines.write(orjson.dumps(record) + b"\n")


def _records(files: Sequence[Path]) -> Iterator[dict[str, Any]]:
    for path in files:
        with gzip.open(path, "rb") as lines:
            yield from map(orjson.loads, lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    return terminal.run(make, parser(), argv)


if __name__ == "__main__":
    raise SystemExit(main())
