"""``python -m nq.tune``: thresholds of the default decision, from one half of annotated data.

The even example ids choose the thresholds, the odd ones tell what they are worth.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from eval import labels, nq_eval
from nq import commandline
from nq.model.profile import Profile

NONE_NEEDED = -1e9
ROUNDED = 4
SLACK = 0.005


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = argparse.ArgumentParser(
        prog="nq tune",
        description="Finds the long and the short threshold with the best F1 on the examples "
        "with even ids, writes them into the model folder, and scores the odd ones with them.",
    )
    parser.add_argument("--data", nargs="+", required=True, metavar="FILE", help="annotated data")
    parser.add_argument("--model", type=Path, required=True, metavar="DIR", help="model folder")
    parser.add_argument(
        "--profile", default="grappler", help="optimizations to run under (default: grappler)"
    )
    parser.add_argument("--batch-size", type=commandline.positive, default=16, metavar="N")
    commandline.add_common(parser)
    return parser


def tune(args: argparse.Namespace) -> int:
    """Runs the command."""
    profile = Profile.parse(args.profile)
    commandline.import_tensorflow()
    from nq.formats import inputs
    from nq.model.checkpoint import load_settings, save_settings
    from nq.pipeline import PREDICTIONS, Job, run

    own = load_settings(args.model)
    everything = replace(
        own.decision, rule="default", long_threshold=NONE_NEEDED, short_threshold=NONE_NEEDED
    )
    files = tuple(inputs.find_files(args.data))
    job = Job(files, args.model, profile, own.windows, everything, args.batch_size)
    with commandline.bar("predict", "windows") as bar:
        report = run(job, on_windows=bar)
    gold = labels.read_gold(files)
    predictions = labels.read_predictions(report.output / PREDICTIONS)
    long, short = thresholds(*_half(gold, predictions, 0))
    tuned = replace(own.decision, long_threshold=long, short_threshold=short)
    save_settings(args.model, replace(own, decision=tuned))
    odd_gold, odd = _half(gold, predictions, 1)
    kept = {key: _cut(label, long, short) for key, label in odd.items()}
    metrics = nq_eval.score(odd_gold, kept, one_annotator=True)
    best = nq_eval.score(odd_gold, odd, one_annotator=True)
    result = {
        "long_threshold": long,
        "short_threshold": short,
        "odd_examples": len(odd),
        "odd_micro_f1": metrics["micro_f1"],
        "odd_micro_f1_best": best["micro_f1_best"],
        "odd_long_f1": metrics["long-answer-f1"],
        "odd_long_f1_best": best["long-best-threshold-f1"],
        "odd_short_f1": metrics["short-answer-f1"],
        "odd_short_f1_best": best["short-best-threshold-f1"],
        "model": str(args.model),
    }
    commandline.print_result(result, args.json)
    return 0


Gold = dict[labels.ExampleId, list[labels.Label]]
Predictions = dict[labels.ExampleId, labels.Label]


def thresholds(gold: Gold, predictions: Predictions) -> tuple[float, float]:
    """The long and the short threshold with the best F1, one annotator enough."""
    long, short = nq_eval.decisions(
        gold, predictions, long_non_null_threshold=1, short_non_null_threshold=1
    )
    return _threshold(long), _threshold(short)


def _threshold(decisions: Sequence[nq_eval.Decision]) -> float:
    """The middle of the widest gap between scores whose F1 is within ``SLACK`` of the best.

    Close to a score, the slightest drift of the arithmetic would give or drop that answer.
    """
    points = nq_eval.sweep(decisions)
    enough = nq_eval.best(points).f1 - SLACK
    gaps = [
        (above.threshold - below.threshold, (above.threshold + below.threshold) / 2)
        for above, below in itertools.pairwise(points)
        if above.f1 >= enough
    ]
    return round(max(gaps)[1], ROUNDED) if gaps else points[0].threshold


def _half(gold: Gold, predictions: Predictions, remainder: int) -> tuple[Gold, Predictions]:
    keys = [k for k in gold if isinstance(k, int) and k % 2 == remainder]
    return {k: gold[k] for k in keys}, {k: predictions[k] for k in keys if k in predictions}


def _cut(label: labels.Label, long: float, short: float) -> labels.Label:
    """The prediction without what scores below its threshold."""
    if label.long_score < long:
        label = replace(label, long=labels.Span())
    if label.short_score < short:
        label = replace(label, short=(), yes_no="none")
    return label


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return commandline.run(tune, parser(), argv)


if __name__ == "__main__":
    raise SystemExit(main())
