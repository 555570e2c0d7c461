"""Scores predictions against Natural Questions gold, as the official ``nq_eval`` does.

    python -m eval.nq_eval --gold_path='dev/*.jsonl.gz' --predictions_path=predictions.json

Every example gives two decisions, one on its long and one on its short answer:

- gold has an answer if enough annotators (2; see ``score``) gave one; a short answer is
  given by a span or by yes/no;
- it is predicted if the prediction is not null;
- it is correct if gold has an answer and any annotator's equals it: the long span; or yes/no;
  or the whole set of short spans. Spans are equal if their bytes or their tokens are.

precision = correct / predicted, recall = correct / gold, F1 = 2PR / (P + R), each 0 where it
would divide by zero. Metrics, by key:

=================================  ================================================================
``long-best-threshold`` …          the score threshold of the highest F1 (the highest such
                                   threshold), and ``-f1``, ``-precision``, ``-recall`` there
``long-recall-at-precision>=0.5``  highest recall of all thresholds with precision >= 0.5 (.75,
                                   .9); ``long-precision-at-precision>=0.5``: the precision there
``long-answer-n`` …                decisions, ``-f1``, ``-precision``, ``-recall`` of the
                                   predictions as given, their scores ignored
``short-…``                        all of these for the short answers
``all-answer-n`` …                 as ``long-answer-…``, over long and short decisions together
``micro_f1``                       F1 over long and short decisions together, as given, where one
                                   annotator is enough whatever the flags say
``micro_f1_best``                  the same after dropping the predictions that score below the
                                   threshold of the best long (short) F1, one annotator enough
``kaggle_micro_f1``                the same decisions as ``micro_f1``, counted as Kaggle counts:
                                   TP = correct, FP = predicted but not correct, FN = not predicted
                                   though gold has an answer (a wrong answer is no FN)
=================================  ================================================================

Sources: google-research-datasets/natural-questions (nq_eval.py, eval_utils.py) for the rules and
the ``long-`` and ``short-`` keys; its adaption by yorko for ``all-answer-``, which the 2020
predecessor ran with one annotator enough; Kaggle's "TensorFlow 2.0 Question Answering" rules.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nq.evaluation.labels import ExampleId, Label, read_gold, read_predictions

Metrics = dict[str, float]

PRECISION_TARGETS = (0.5, 0.75, 0.9)
MICRO_METRICS = ("micro_f1", "micro_f1_best", "kaggle_micro_f1")
IDS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Decision:
    """What one prediction amounts to: one long, or one short, answer of one example."""

    has_gold: bool
    predicted: bool
    correct: bool
    score: float


@dataclass(frozen=True, slots=True)
class Point:
    """The quality of the predictions that score at least ``threshold``."""

    threshold: float
    f1: float
    precision: float
    recall: float


def decisions(
    gold: Mapping[ExampleId, Sequence[Label]],
    predictions: Mapping[ExampleId, Label],
    *,
    long_non_null_threshold: int = 2,
    short_non_null_threshold: int = 2,
    one_annotator: bool = False,
) -> tuple[list[Decision], list[Decision]]:
    """The long and the short decision of every example; the arguments are those of ``score``."""
    long, short = [], []
    for key, labels in gold.items():
        mine, lone = predictions[key], one_annotator and len(labels) == 1
        needed, votes = 1 if lone else long_non_null_threshold, [x.has_long for x in labels]
        equal = map(mine.long_equals, labels)
        long.append(_decision(votes, needed, mine.has_long, equal, mine.long_score))
        needed, votes = 1 if lone else short_non_null_threshold, [x.has_short for x in labels]
        equal = map(mine.short_equals, labels)
        short.append(_decision(votes, needed, mine.has_short, equal, mine.short_score))
    return long, short


def _decision(
    votes: Sequence[bool], needed: int, predicted: bool, equal: Iterable[bool], score: float
) -> Decision:
    has_gold = len(votes) > 0 and sum(votes) >= needed
    return Decision(has_gold, predicted, has_gold and predicted and any(equal), score)


def sweep(found: Iterable[Decision]) -> list[Point]:
    """One point per distinct score, the highest first; equal scores pass a threshold together."""
    ranked = sorted(found, key=lambda decision: decision.score, reverse=True)
    n_gold = sum(decision.has_gold for decision in ranked)
    n_predicted = n_correct = 0
    points = []
    for threshold, tied in itertools.groupby(ranked, key=lambda decision: decision.score):
        for decision in tied:
            n_predicted += decision.predicted
            n_correct += decision.correct
        points.append(_point(n_correct, n_predicted, n_gold, threshold))
    return points


def best(points: Iterable[Point]) -> Point:
    """The first point with the highest F1; all zeros where no point has any."""
    zero = Point(0.0, 0.0, 0.0, 0.0)
    return max(itertools.chain([zero], points), key=lambda point: point.f1)


def at_precision(points: Iterable[Point], target: float) -> Point | None:
    """The first point of highest recall with at least this precision; ``None`` without any."""
    precise = (point for point in points if point.precision >= target and point.recall > 0)
    return max(precise, key=lambda point: point.recall, default=None)


def score(
    gold: Mapping[ExampleId, Sequence[Label]],
    predictions: Mapping[ExampleId, Label],
    *,
    long_non_null_threshold: int = 2,
    short_non_null_threshold: int = 2,
    one_annotator: bool = False,
) -> Metrics:
    """All metrics of the module's table, by key; no example at all makes them 0.

    Args:
        gold: the labels of an example's annotators, by its id.
        predictions: one label per example of ``gold``.
        long_non_null_threshold: so many annotators with a long answer make gold have one.
        short_non_null_threshold: the same for short answers.
        one_annotator: 1 is enough for examples that have only one annotator.
            (The three micro metrics take 1 as enough in any case.)

    Raises:
        ValueError: the ids of gold and predictions differ.
    """
    _check_ids(gold, predictions)
    long, short = decisions(
        gold,
        predictions,
        long_non_null_threshold=long_non_null_threshold,
        short_non_null_threshold=short_non_null_threshold,
        one_annotator=one_annotator,
    )
    lenient = decisions(gold, predictions, long_non_null_threshold=1, short_non_null_threshold=1)
    return (
        _threshold_metrics("long-", long)
        | _threshold_metrics("short-", short)
        | _plain_metrics("long-answer-", long)
        | _plain_metrics("short-answer-", short)
        | _plain_metrics("all-answer-", long + short)
        | _micro_metrics(*lenient)
    )


def _check_ids(gold: Mapping[ExampleId, Any], predictions: Mapping[ExampleId, Any]) -> None:
    missing, extra = gold.keys() - predictions.keys(), predictions.keys() - gold.keys()
    if missing or extra:
        raise ValueError(
            f"the ids of gold ({len(gold)}) and predictions ({len(predictions)}) differ: "
            f"{_count(missing)} missing from the predictions, {_count(extra)} extra; "
            "predict every gold example once (null answers are -1) and nothing else"
        )


def _count(ids: set[ExampleId]) -> str:
    """How many, and the first few of them.

    >>> _count(set()), _count({3, 1}), _count(set(range(9)))
    ('0', '2 (1, 3)', '9 (0, 1, 2, 3, 4, …)')
    """
    shown = [str(i) for i in sorted(ids, key=str)[:IDS_SHOWN]] + ["…"] * (len(ids) > IDS_SHOWN)
    return f"{len(ids)} ({', '.join(shown)})" if ids else "0"


def _divide(x: float, y: float) -> float:
    return x / y if y else 0


def _point(n_correct: int, n_predicted: int, n_gold: int, threshold: float) -> Point:
    precision = _divide(n_correct, n_predicted)
    recall = _divide(n_correct, n_gold)
    f1 = _divide(2 * precision * recall, precision + recall)
    return Point(threshold, f1, precision, recall)


def _as_given(found: Sequence[Decision]) -> Point:
    """The quality of all predictions, their scores ignored."""
    n_correct, n_predicted = sum(d.correct for d in found), sum(d.predicted for d in found)
    return _point(n_correct, n_predicted, sum(d.has_gold for d in found), float("-inf"))


def _plain_metrics(prefix: str, found: Sequence[Decision]) -> Metrics:
    at = _as_given(found)
    named = {"n": len(found), "f1": at.f1, "precision": at.precision, "recall": at.recall}
    return {prefix + name: value for name, value in named.items()}


def _threshold_metrics(prefix: str, found: Sequence[Decision]) -> Metrics:
    points = sweep(found)
    top = best(points)
    metrics = {
        f"{prefix}best-threshold-f1": top.f1,
        f"{prefix}best-threshold-precision": top.precision,
        f"{prefix}best-threshold-recall": top.recall,
        f"{prefix}best-threshold": top.threshold,
    }
    for target in PRECISION_TARGETS:
        at = at_precision(points, target)
        metrics[f"{prefix}recall-at-precision>={target}"] = at.recall if at else 0
        metrics[f"{prefix}precision-at-precision>={target}"] = at.precision if at else 0
    return metrics


def _micro_metrics(long: Sequence[Decision], short: Sequence[Decision]) -> Metrics:
    every = [*long, *short]
    n_correct = sum(d.correct for d in every)
    n_missed = sum(d.has_gold and not d.predicted for d in every)
    kaggle = _point(n_correct, sum(d.predicted for d in every), n_correct + n_missed, 0.0)
    above_best = _above_best(long) + _above_best(short)
    f1s = (_as_given(every).f1, _as_given(above_best).f1, kaggle.f1)
    return dict(zip(MICRO_METRICS, f1s, strict=True))


def _above_best(found: Sequence[Decision]) -> list[Decision]:
    """The decisions with every prediction below the best threshold taken back."""
    threshold = best(sweep(found)).threshold
    return [
        d if d.score >= threshold else replace(d, predicted=False, correct=False) for d in found
    ]


def table(long: Sequence[Decision], short: Sequence[Decision], metrics: Metrics) -> str:
    """The metrics as the official script's ``--pretty_print`` lays them out, and the micro F1s."""
    rows = {"Long answer ": long, "Short answer": short, "All answers ": [*long, *short]}
    lines = [
        *_curve_lines("LONG", long),
        *_curve_lines("SHORT", short),
        "*" * 20,
        f"METRICS IGNORING SCORES (n={len(long)}):",
        "              F1     /  P      /  R",
        *(f"{name} {_percent(_as_given(found))}" for name, found in rows.items()),
        "*" * 20,
        *(f"{name}: {metrics[name]:.2%}" for name in MICRO_METRICS),
    ]
    return "\n".join(lines)


def _percent(at: Point) -> str:
    return f"{at.f1:>7.2%} / {at.precision:>7.2%} / {at.recall:>7.2%}"


def _curve_lines(name: str, found: Sequence[Decision]) -> Iterator[str]:
    points = sweep(found)
    top = best(points)
    yield from ("*" * 20, f"{name} ANSWER R@P TABLE:")
    yield f"Optimal threshold: {float(top.threshold):.5}"
    yield from (" F1     /  P      /  R", _percent(top))
    for target in PRECISION_TARGETS:
        at = at_precision(points, target)
        recall, precision = (at.recall, at.precision) if at else (0, 0)
        threshold = f"{float(at.threshold):.4}" if at else "None"
        yield (
            f"R@P={target}: {recall:.2%} (actual p={precision:.2%}, score threshold={threshold})"
        )


def _boolean(text: str) -> bool:
    """A switch's value as absl reads it; anything else is a ``ValueError``."""
    return ("false", "f", "0", "true", "t", "1").index(text.lower()) >= 3


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nq_eval", allow_abbrev=False, description="Scores predictions against NQ gold."
    )
    add = parser.add_argument
    gold_help = "jsonl files, plain or gzip: files, globs or folders; may be repeated"
    add("--gold_path", nargs="+", action="extend", required=True, metavar="PATH", help=gold_help)
    add("--predictions_path", required=True, metavar="PATH", help="prediction JSON, plain or gzip")
    needed = "annotators that must have given a %s answer for gold to have one (default 2)"
    for kind in ("long", "short"):
        add(f"--{kind}_non_null_threshold", type=int, default=2, metavar="N", help=needed % kind)
    for name, text in (
        ("one_annotator", "one is enough for the examples that have only one annotator"),
        ("pretty_print", "print tables to read, instead of one JSON object"),
        ("cache_gold_data", "accepted without effect: reading is fast enough to cache nothing"),
    ):  # absl's spellings: --name, --name=true, --noname
        add(f"--{name}", nargs="?", type=_boolean, const=True, metavar="BOOL", help=text)
        add(f"--no{name}", dest=name, action="store_false", help=argparse.SUPPRESS)
        parser.set_defaults(**{name: False})
    threads_help = "accepted without effect: one thread reads as fast as several"
    add("--num_threads", type=int, default=10, metavar="N", help=threads_help)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """The command; results go to stdout. 0: done, 1: not scorable, 2: bad usage."""
    args = _parser().parse_args(argv)
    needed = {
        "long_non_null_threshold": args.long_non_null_threshold,
        "short_non_null_threshold": args.short_non_null_threshold,
        "one_annotator": args.one_annotator,
    }
    try:
        gold, predictions = read_gold(args.gold_path), read_predictions(args.predictions_path)
        metrics = score(gold, predictions, **needed)
        if args.pretty_print:
            print(table(*decisions(gold, predictions, **needed), metrics))
        else:
            print(json.dumps(metrics))
    except (ValueError, OSError) as error:
        print(f"nq_eval: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
