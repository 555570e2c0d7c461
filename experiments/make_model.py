"""Makes ``small``, ``ranker`` and the pair of both by their recipes (``experiments.recipes``).

    python -m experiments.make_model --data ../shared/data --models ranker ranker+small

Every training stage is a run of ``nq train`` that resumes when the same command is started again.
The result is tuned by ``nq tune`` on dev, and on its questions about long pages
(``experiments.long_pages``). It is in ``runs/model/NAME/model``, all of whose files but the model
card belong into the package; of the pair only the decision. A pair is made of the models that were
made here, else of the bundled ones.
"""

import argparse
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from experiments import command
from experiments.long_pages import long_pages
from experiments.recipes import RECIPES, Pair, Recipe
from experiments.training_data import data_files, read_records, write_records
from nq.bundle import bundled_model
from nq.commands.main import console
from nq.model.convert import convert, to_dual_encoder
from nq.model.folder import ModelFolder
from nq.model.runtime import import_tensorflow
from nq.storage import Kind, hold

PROFILE = "mixed+buckets+openvino"
LONG = "long_pages.jsonl.gz"
MODELS = Kind(
    name="make_model",
    what="models of experiments.make_model",
    files=r"[\w-]+\.jsonl\.gz",
)


def _options(parser: argparse.ArgumentParser) -> None:
    command.add_option(parser, "data", Path, "folder with train/ and dev/")
    command.add_list(parser, "models", RECIPES, RECIPES)
    command.add_option(parser, "output", Path("runs/model"), "folder of the models")


def make(args: argparse.Namespace) -> int:
    """Runs the command."""
    files, dev = (data_files(args.data, part) for part in ("train", "dev"))
    for name in (name for name in RECIPES if name in args.models):
        recipe = RECIPES[name]
        folder = args.output / name
        with hold(folder, MODELS, files):
            tuning = [*map(str, dev), str(folder / LONG)]
            if not (folder / LONG).is_file():
                short, training = (list(read_records(paths)) for paths in (dev, files))
                write_records(folder / LONG, long_pages(short, training))
            if isinstance(recipe, Pair):
                code = _pair_up(recipe, folder, tuning)
            else:
                code = _make(recipe, folder, files) or _tune(tuning, folder / "model")
        if code:
            return code
    return 0


def _make(recipe: Recipe, folder: Path, files: Sequence[Path]) -> int:
    """Trains the stages of a recipe and stores the result; the caller holds the folder."""
    model = recipe.start(folder / "start")
    if recipe.prefixes is not None:
        question, block = recipe.prefixes
        change = partial(to_dual_encoder, question_prefix=question, block_prefix=block)
        shutil.rmtree(folder / "model", ignore_errors=True)
        convert(model, folder / "model", storage=recipe.store, change=change)
        return 0
    for stage in recipe.stages:
        data = folder / f"{stage.name}.jsonl.gz"
        if not data.is_file():
            write_records(data, stage.records(list(read_records(files))))
        init, model = model, folder / stage.name
        if stage.start:
            init = folder / f"{stage.name}-start"
            mean([folder / name for name in stage.start], init, "float32")
        paths = ["--data", str(data), "--init", str(init), "--output", str(model)]
        if code := console(["train", *paths, *recipe.options.split(), *stage.options.split()]):
            return code
    models = [folder / name for name in recipe.result] or [model]
    mean(models, folder / "model", recipe.store)
    return 0


def _pair_up(pair: Pair, folder: Path, dev: Sequence[str]) -> int:
    """Makes a pair folder with the decision of both models; the caller holds the folder."""
    ranker, reader = (_made_or_bundled(folder.parent, name) for name in (pair.ranker, pair.reader))
    shutil.rmtree(folder / "model", ignore_errors=True)
    options = ["--ranker", str(ranker), "--read-blocks", str(pair.read_blocks)]
    return _tune(dev, reader, *options, "--output", str(folder / "model"))


def _made_or_bundled(root: Path, name: str) -> Path:
    made = root / name / "model"
    return made if made.is_dir() else bundled_model(name)


def _tune(dev: Sequence[str], model: Path, *options: str) -> int:
    return console(["tune", "--data", *dev, "--model", str(model), *options, "--profile", PROFILE])


def mean(models: Sequence[Path], output: Path, storage: str) -> None:
    """Makes a model folder with the mean of the weights of some folders of one shape.

    The first one gives vocabulary and settings.
    """
    import_tensorflow()
    import numpy as np

    from nq.model import checkpoint, joint
    from nq.preprocess.tokenizers.load import load_tokenizer

    first, *others = models
    tokenizer = load_tokenizer(first)
    shape = checkpoint.with_room_for(ModelFolder(first).config, tokenizer)
    model = joint.load_model(ModelFolder(first), config=shape).model
    sums = [np.asarray(weight.numpy(), np.float64) for weight in model.weights]
    for other in others:
        checkpoint.fill(model, ModelFolder(other).tensors(), shape)
        sums = [total + weight.numpy() for total, weight in zip(sums, model.weights, strict=True)]
    for weight, total in zip(model.weights, sums, strict=True):
        weight.assign(total / len(models))
    settings = ModelFolder(first).settings
    names = " and ".join(path.name for path in models)
    what = f"The mean of {names}" if others else names
    checkpoint.save(output, model, shape, tokenizer, settings, f"# {what}\n", storage)


main = command.main(make, _options)
