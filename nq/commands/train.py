"""``python -m nq.train``: a model from a BERT encoder and annotated questions."""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nq import tracking
from nq.commands import arguments, terminal
from nq.config import TrainConfig, WindowConfig
from nq.model.runtime import import_tensorflow

STEPS_TOLD_TOGETHER, LAST_STEPS = 50, 100
CURVE = "train/loss"
PRECISION = {"float32": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = argparse.ArgumentParser(
        prog="nq train",
        description="Trains a model folder from a BERT encoder and annotated questions. "
        "Run the same command again to go on where it was interrupted.",
    )
    parser.add_argument(
        "--data", nargs="+", required=True, metavar="FILE", help="files, globs or folders"
    )
    parser.add_argument(
        "--init",
        required=True,
        type=Path,
        metavar="DIR",
        help="model folder of any kind to start from: of ours, of Hugging Face's, of Google's",
    )
    parser.add_argument("--output", required=True, type=Path, metavar="DIR", help="model folder")
    parser.add_argument(
        "--limit", type=arguments.positive, metavar="N", help="read the first N records only"
    )
    parser.add_argument(
        "--workers", type=arguments.positive, metavar="N", help="processes for preprocessing"
    )
    parser.add_argument("--card", type=Path, metavar="FILE", help="model card to put into it")
    parser.add_argument(
        "--compact", action="store_true", help="word table in 8 bits, the rest in float16"
    )
    arguments.add_settings(parser, WindowConfig)
    arguments.add_settings(parser, TrainConfig)
    arguments.add_tracking(parser)
    arguments.add_common(parser)
    return parser


def train(args: argparse.Namespace) -> int:
    """Runs the command."""
    windows = arguments.settings(WindowConfig(), args)
    config = arguments.settings(TrainConfig(), args)
    import_tensorflow()
    import numpy as np
    from tqdm import tqdm

    from nq.formats import inputs
    from nq.model import checkpoint, joint
    from nq.model.data import read_columns
    from nq.preprocess.prepare import Request, prepare
    from nq.preprocess.tokenizers.load import load_tokenizer
    from nq.training.loop import identity
    from nq.training.loop import train as fit
    from nq.training.windows import TrainingWindows

    tokenizer = load_tokenizer(args.init, windows.compat)
    shape = checkpoint.with_room_for(checkpoint.load_config(args.init), tokenizer)
    joint.check_length(shape, windows.max_seq_length)
    tensors = checkpoint.read_tensors(args.init)
    request = Request(
        tuple(inputs.find_files(args.data)),
        str(args.init),
        windows,
        args.limit,
        (config.negatives, config.seed),
    )
    work = args.output / "training"
    prepared = prepare(request, work / "windows", args.workers)
    if not prepared.windows:
        raise ValueError("no window to train on: do the records carry annotations?")
    data = TrainingWindows.from_columns(read_columns(prepared.shards, windows.max_seq_length))
    model = joint.build(
        shape, dtype=PRECISION[config.precision], dropout=config.dropout, seed=config.seed
    )
    report = checkpoint.fill(model, tensors, tensors.table(shape))
    del tensors
    _say(
        f"{prepared.examples} examples, {prepared.windows} windows; start with fresh weights for "
        f"{', '.join(report.fresh) or 'nothing'}"
    )
    params = {
        "init": args.init.name,
        "data": ", ".join(Path(file).name for file in request.files),
        "limit": args.limit,
        **{f"train.{k}": v for k, v in config.to_dict().items()},
        **{f"windows.{k}": v for k, v in windows.to_dict().items()},
    }
    started = time.perf_counter()
    with (
        tracking.start(
            uri=args.tracking_uri,
            experiment=args.experiment,
            name=f"train {args.output.name}",
            source="nq.train",
            enabled=not args.no_track,
            unfinished=work / f"{_digest(params | identity(model, data, config))}.mlflow_run",
        ) as tracked,
        tqdm(unit=" steps", disable=None) as bar,
    ):
        tracked.params(params)
        progress = Progress(bar, tracked)
        losses = fit(model, data, config, work, progress)
        progress.complete(losses)
        loss = float(np.mean(losses[-LAST_STEPS:]))
        tracked.metrics({"train/final_loss": loss, "train/windows": prepared.windows})
    checkpoint.save(
        args.output,
        model,
        shape,
        tokenizer,
        checkpoint.ModelSettings(windows),
        args.card.read_text(encoding="utf-8") if args.card else _card(args, config),
        args.compact,
    )
    result = {
        "output": str(args.output),
        "examples": prepared.examples,
        "windows": prepared.windows,
        "steps": len(losses),
        "dead_letters": prepared.dead_letters,
        "loss": loss,
        "train_s": time.perf_counter() - started,
    }
    if args.json:
        terminal.print_json(result)
    else:
        print(
            f"trained {len(losses)} steps of {config.batch_size} of {prepared.windows} windows "
            f"to loss {loss:.3f}; model in {args.output}"
        )
    return 0


class Progress:
    """What a training tells as it goes: a bar, or lines where there is no terminal, and a curve."""

    def __init__(self, bar: Any, tracked: tracking.Run) -> None:
        self.bar, self.tracked = bar, tracked
        self._before = tracked.last_step(CURVE)
        self._first: int | None = None
        self._untold: list[float] = []

    def __call__(self, step: int, total: int, loss: float) -> None:
        self._untold.append(loss)
        self.bar.total = total
        self.bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
        self.bar.update(step - self.bar.n)
        if step % STEPS_TOLD_TOGETHER and step < total:
            return
        n = len(self._untold)
        new = min(n, step - self._before)  # an interrupted run has told some of them
        if new > 0:
            self.tracked.curve(CURVE, self._untold[n - new :], step + 1 - new)
            self._first = self._first or step + 1 - new
        if self.bar.disable:
            _say(f"step {step} of {total}, loss {sum(self._untold) / n:.3f}")
        self._untold = []

    def complete(self, losses: Sequence[float]) -> None:
        """Adds to the curve what was trained before an interruption and not told then."""
        end = len(losses) if self._first is None else self._first - 1
        self.tracked.curve(CURVE, losses[self._before : end], self._before + 1)


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _digest(values: dict[str, Any]) -> str:
    """A short name, the same for the same values."""
    return hashlib.sha256(repr(sorted(values.items())).encode()).hexdigest()[:12]


def _card(args: argparse.Namespace, config: TrainConfig) -> str:
    rows = "\n".join(f"- {name}: {value}" for name, value in config.to_dict().items())
    return (
        f"# {args.output.name}\n\nTrained by `nq train` from `{args.init.name}` on "
        f"{', '.join(Path(d).name for d in args.data)}.\n\n{rows}\n"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return terminal.run(train, parser(), argv)


if __name__ == "__main__":
    raise SystemExit(main())
