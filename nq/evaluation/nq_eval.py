"""Scores predictions against gold of Natural Questions, as the official ``nq_eval`` does.

    python -m eval.nq_eval --gold_path='dev/*.jsonl.gz' --predictions_path=predictions.json

Every example gives two decisions, one for its long and one for its short answer:

- gold has an answer if enough annotators (2; see ``score``) gave one; a short answer is
  a set of spans or yes/no. Gold that is text has no annotators: one place of it is enough;
- the answer is predicted if the prediction is not null;
- it is correct if gold has an answer and that of any annotator is equal: the long span; or yes/no;
  or the whole set of short spans. Spans are equal if their bytes or their tokens are.

precision = correct / predicted, recall = correct / gold, F1 = 2PR / (P + R), each 0 instead of a
division by zero. Metrics, by key:

=================================  ================================================================
``long-best-threshold`` …          the score threshold of the highest F1 (the highest such
                                   threshold), and ``-f1``, ``-precision``, ``-recall`` there
``long-recall-at-precision>=0.5``  highest recall of all thresholds with precision >= 0.5 (.75,
                                   .9); ``long-precision-at-precision>=0.5``: the precision there
``long-answer-n`` …                decisions, ``-f1``, ``-precision``, ``-recall`` of the
                                   predictions as given, their scores ignored
``short-…``                        all of these for the short answers
``all-answer-n`` …                 as ``long-answer-…``, over long and short decisions together
``micro_f1``                       F1 over long and short decisions together, as given, with one
                                   annotator enough whatever the options are
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

import enum
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from nq.evaluation.official import FileSpan
from nq.records import Annotation, Answer, ExampleId, Prediction, Span, YesNo
from nq.text import listed

Metrics = dict[str, float]
Gold = dict[ExampleId, list[Annotation]]
Predictions = dict[ExampleId, Prediction]
Inputs = tuple[Gold, Predictions, Metrics]
"""Gold, predictions, and metrics of their texts."""

PRECISION_TARGETS = (0.5, 0.75, 0.9)
MICRO_METRICS = ("micro_f1", "micro_f1_best", "kaggle_micro_f1")
MAX_SHOWN_IDS = 5
LINE = "*" * 20

ANY_PASSAGE = Span(-1, -1)
"""A gold passage that is not known, so that every passage is right."""


class Verdict(enum.StrEnum):
    """Whether an answer is right; ``EXTRA`` and ``MISSED`` are where gold or it has none.

    ``PASSAGE`` is of an answer as a whole alone (``evaluate.JudgedPrediction``).
    """

    RIGHT = "right"
    PASSAGE = "passage"
    WRONG = "wrong"
    EXTRA = "extra"
    MISSED = "missed"
    NULL = "null"


@dataclass(frozen=True, slots=True)
class TextPlace(Annotation):
    """A place of gold that is text, which no annotators have to agree on."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision on the long, or on the short, answer to one example."""

    has_gold: bool
    predicted: bool
    correct: bool
    score: float

    @property
    def outcome(self) -> Verdict:
        if self.correct:
            return Verdict.RIGHT
        if self.has_gold:
            return Verdict.WRONG if self.predicted else Verdict.MISSED
        return Verdict.EXTRA if self.predicted else Verdict.NULL


@dataclass(frozen=True, slots=True)
class Point:
    """Precision, recall and F1 of the predictions that score at least ``threshold``."""

    threshold: float
    f1: float
    precision: float
    recall: float


ZERO = Point(0.0, 0.0, 0.0, 0.0)


def decisions(
    gold: Mapping[ExampleId, Sequence[Annotation]],
    predictions: Mapping[ExampleId, Prediction],
    needed: tuple[int, int] = (2, 2),
    one_annotator: bool = False,
) -> tuple[list[Decision], list[Decision]]:
    """Returns the long and the short decisions; takes the arguments of ``score``."""
    pairs = [
        decisions_of_one(annotations, predictions[key], needed, one_annotator)
        for key, annotations in gold.items()
    ]
    return [long for long, _ in pairs], [short for _, short in pairs]


def decisions_of_one(
    gold: Sequence[Annotation],
    prediction: Prediction,
    needed: tuple[int, int] = (2, 2),
    one_annotator: bool = True,
) -> tuple[Decision, Decision]:
    """Returns the long and the short decision on one example."""
    if any(isinstance(one, TextPlace) for one in gold) or (one_annotator and len(gold) == 1):
        needed = 1, 1
    long = prediction.long
    longs = [_same_place(long, one.long) for one in gold if one.long]
    shorts = [_same_short(prediction, one) for one in gold if one.has_short]
    return (
        _decision(longs, needed[0], long is not None, prediction.long_score),
        _decision(shorts, needed[1], prediction.has_short, prediction.short_score),
    )


def _decision(
    equal: Sequence[bool],
    needed: int,
    predicted: bool,
    score: float,
) -> Decision:
    """Returns a decision; ``equal`` tells of each gold answer whether it is that predicted."""
    has_gold = len(equal) >= max(needed, 1)
    return Decision(has_gold, predicted, has_gold and predicted and any(equal), score)


def _same_place(span: Span | None, gold: Span) -> bool:
    """Returns whether both have the same bytes or the same tokens."""
    if span is None:
        return False
    if gold == ANY_PASSAGE or (span.start >= 0 and span.tokens == gold.tokens):
        return True
    if not (isinstance(span, FileSpan) and isinstance(gold, FileSpan)):
        return False
    return span.start_byte >= 0 and span.bytes == gold.bytes


def _same_short(prediction: Answer, gold: Answer) -> bool:
    """Returns whether yes/no is equal or, without it, every span has a match in the other."""
    if prediction.yes_no is not YesNo.NONE:
        return prediction.yes_no is gold.yes_no
    ours = prediction.shorts
    theirs = gold.shorts
    return all(any(_same_place(a, b) for b in theirs) for a in ours) and all(
        any(_same_place(a, b) for a in ours) for b in theirs
    )


def sweep(items: Iterable[Decision]) -> list[Point]:
    """Returns one point for each distinct score, the highest first."""
    ranked = sorted(items, key=lambda decision: decision.score, reverse=True)
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
    """Returns the first point with the highest F1; all zeros if no F1 is above 0."""
    return max([ZERO, *points], key=lambda point: point.f1)


def at_precision(points: Iterable[Point], target: float) -> Point | None:
    """Returns the first point of highest recall with at least this precision, or ``None``."""
    precise = (point for point in points if point.precision >= target and point.recall > 0)
    return max(precise, key=lambda point: point.recall, default=None)


def score(
    gold: Mapping[ExampleId, Sequence[Annotation]],
    predictions: Mapping[ExampleId, Prediction],
    needed: tuple[int, int] = (2, 2),
    one_annotator: bool = False,
) -> Metrics:
    """Returns all metrics of the module's table, by key; without examples they are 0.

    Gold has a long and a short answer if as many annotators as are ``needed`` gave one; with
    ``one_annotator``, one is enough for examples with only one. A ``ValueError`` tells that the ids
    of gold and of the predictions differ.
    """
    check_ids(gold.keys(), predictions.keys())
    long, short = decisions(gold, predictions, needed, one_annotator)
    return {
        **_threshold_metrics("long-", long),
        **_threshold_metrics("short-", short),
        **_plain_metrics("long-answer-", long),
        **_plain_metrics("short-answer-", short),
        **_plain_metrics("all-answer-", long + short),
        **_micro_metrics(*decisions(gold, predictions, (1, 1))),
    }


def check_ids(gold: Set[ExampleId], predictions: Set[ExampleId]) -> None:
    """Raises ``ValueError`` if the ids of gold and of the predictions differ."""

    def some(ids: Set[ExampleId]) -> str:
        return f"{len(ids)} ({listed(sorted(map(str, ids)), MAX_SHOWN_IDS)})" if ids else "0"

    if gold != predictions:
        raise ValueError(
            f"the ids of gold ({len(gold)}) and predictions ({len(predictions)}) differ: "
            f"{some(gold - predictions)} missing from the predictions, "
            f"{some(predictions - gold)} extra; "
            "predict every gold example once (null answers are -1) and nothing else"
        )


def _point(
    n_correct: int,
    n_predicted: int,
    n_gold: int,
    threshold: float = 0.0,
) -> Point:
    precision = n_correct / n_predicted if n_predicted else 0
    recall = n_correct / n_gold if n_gold else 0
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0
    return Point(threshold, f1, precision, recall)


def _overall(items: Sequence[Decision]) -> Point:
    """Returns precision, recall and F1 of all predictions, with their scores ignored."""
    n_correct = sum(d.correct for d in items)
    n_predicted = sum(d.predicted for d in items)
    return _point(n_correct, n_predicted, sum(d.has_gold for d in items))


def _ratios(prefix: str, point: Point) -> Metrics:
    return {f"{prefix}{name}": getattr(point, name) for name in ("f1", "precision", "recall")}


def _plain_metrics(prefix: str, items: Sequence[Decision]) -> Metrics:
    return {f"{prefix}n": len(items)} | _ratios(prefix, _overall(items))


def _threshold_metrics(prefix: str, items: Sequence[Decision]) -> Metrics:
    points = sweep(items)
    top = best(points)
    metrics = _ratios(f"{prefix}best-threshold-", top)
    metrics[f"{prefix}best-threshold"] = top.threshold
    for target in PRECISION_TARGETS:
        point = at_precision(points, target) or ZERO
        metrics[f"{prefix}recall-at-precision>={target}"] = point.recall
        metrics[f"{prefix}precision-at-precision>={target}"] = point.precision
    return metrics


def _micro_metrics(
    long: Sequence[Decision],
    short: Sequence[Decision],
) -> Metrics:
    items = [*long, *short]
    n_correct = sum(d.correct for d in items)
    n_missed = sum(d.has_gold and not d.predicted for d in items)
    kaggle = _point(n_correct, sum(d.predicted for d in items), n_correct + n_missed)
    above_best = []
    for kind in (long, short):
        threshold = best(sweep(kind)).threshold
        for d in kind:
            is_kept = d.score >= threshold
            above_best.append(d if is_kept else replace(d, predicted=False, correct=False))
    f1s = _overall(items).f1, _overall(above_best).f1, kaggle.f1
    return dict(zip(MICRO_METRICS, f1s, strict=True))


def metrics_table(
    long: Sequence[Decision],
    short: Sequence[Decision],
    metrics: Metrics,
) -> str:
    """Returns the table of the official script's ``--pretty_print``, with the micro F1s."""
    rows = {"Long answer ": long, "Short answer": short, "All answers ": [*long, *short]}
    lines = [
        *_curve_lines("LONG", long),
        *_curve_lines("SHORT", short),
        LINE,
        f"METRICS IGNORING SCORES (n={len(long)}):",
        "              F1     /  P      /  R",
        *(f"{name} {_percent(_overall(items))}" for name, items in rows.items()),
        LINE,
        *(f"{name}: {metrics[name]:.2%}" for name in MICRO_METRICS),
    ]
    return "\n".join(lines)


def _percent(point: Point) -> str:
    return f"{point.f1:>7.2%} / {point.precision:>7.2%} / {point.recall:>7.2%}"


def _curve_lines(name: str, items: Sequence[Decision]) -> Iterator[str]:
    points = sweep(items)
    top = best(points)
    yield LINE
    yield f"{name} ANSWER R@P TABLE:"
    yield f"Optimal threshold: {float(top.threshold):.5}"
    yield " F1     /  P      /  R"
    yield _percent(top)
    for target in PRECISION_TARGETS:
        found = at_precision(points, target)
        point = found or ZERO
        threshold = f"{float(point.threshold):.4}" if found else "None"
        actual = f"actual p={point.precision:.2%}, score threshold={threshold}"
        yield f"R@P={target}: {point.recall:.2%} ({actual})"
