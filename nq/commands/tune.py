"""``python -m nq.tune``: the default decision of a model, learnt from one half of annotated data.

The even example ids teach the weights, the scaling and the thresholds; the odd ones tell what
they are worth.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nq.commands import arguments, terminal
from nq.config import DecisionConfig, RankingWeights
from nq.evaluation import labels, nq_eval
from nq.evaluation.calibration import error_by_chance, expected_calibration_error

if TYPE_CHECKING:
    from nq.postprocess.fit import Lesson
    from nq.runs.scored import Scored

ROUNDED = 4
SLACK = 0.005
GAP = 0.002
FOLDS = 5


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = argparse.ArgumentParser(
        prog="nq tune",
        description="Learns the default decision (weights, calibration, thresholds) on the\n"
        "examples with even ids, writes it into the model folder, and scores the odd ones\n"
        "with it.",
        epilog=arguments.PROFILES_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", nargs="+", required=True, metavar="FILE", help="annotated data")
    parser.add_argument("--model", type=Path, required=True, metavar="DIR", help="model folder")
    arguments.add_profile(parser)
    parser.add_argument("--batch-size", type=terminal.positive, default=16, metavar="N")
    parser.add_argument(
        "--keep-scores",
        action="store_true",
        help="keep the scores of the windows: the next tuning of the same model takes seconds",
    )
    terminal.add_common(parser)
    return parser


def tune(args: argparse.Namespace) -> int:
    """Runs the command."""
    from nq.formats import inputs
    from nq.model.checkpoint import load_settings, save_settings
    from nq.runs.examples import answered_examples
    from nq.runs.job import Job, Report
    from nq.runs.scored import score_windows
    from nq.runs.scoring import gold_label

    own = load_settings(args.model)
    files = tuple(inputs.find_files(args.data))
    job = Job(
        files,
        args.model,
        args.profile,
        own.windows,
        DecisionConfig(max_answer_length=own.decision.max_answer_length),
        args.batch_size,
    )
    gold = {
        example.example_id: [gold_label(a, example.token_bytes) for a in example.annotations]
        for _, example in answered_examples(job)
        if example.annotations
    }
    if not gold:
        raise ValueError(f"no annotations in {', '.join(files)}: give annotated data to learn from")
    report = Report(str(args.profile), Path())
    with (
        terminal.bar("predict", "windows") as bar,
        score_windows(job, report, bar) as scored,
    ):
        decision, predictions = learn(scored, gold)
        save_settings(args.model, replace(own, decision=decision))
        if not args.keep_scores:
            scored.clear()
    result = {
        "long_threshold": decision.long_threshold,
        "short_threshold": decision.short_threshold,
        **worth(*_half(gold, predictions, 1), decision),
        "model": str(args.model),
    }
    terminal.print_result(result, args.json)
    return 0


Gold = dict[labels.ExampleId, list[labels.Label]]
Predictions = dict[labels.ExampleId, labels.Label]
Lessons = tuple["Lesson | None", "Lesson | None"]
"""Of the block and of the option."""


def learn(scored: Scored, gold: Gold) -> tuple[DecisionConfig, Predictions]:
    """The decision that the even half teaches, and every prediction by it, none held back.

    Scaling and thresholds rest on predictions by weights that were fitted without the example
    (``FOLDS`` times): the weights fit their own examples better than any others.
    """
    from nq.formats.predictions import encode_prediction
    from nq.postprocess.ranking import choose

    old = replace(scored.job.decision, long_threshold=0.0, short_threshold=0.0)
    lessons = _lessons(scored)
    weights = _fitted(lessons.values())
    held_out = [_fitted(lessons[f] for f in lessons if f != fold) for fold in range(FOLDS)]
    predictions: Predictions = {}
    for example, scores in scored:
        fold = _fold(example.example_id)
        by = replace(old, weights=weights if fold is None else held_out[fold])
        prediction = encode_prediction(choose(example, scores, by))
        predictions[example.example_id] = labels.prediction_label(prediction)
    weights = _calibrated(weights, *_half(gold, predictions, 0))
    predictions = {key: _rescaled(label, weights) for key, label in predictions.items()}
    long, short = thresholds(*_half(gold, predictions, 0))
    tuned = replace(old, weights=weights, long_threshold=long, short_threshold=short)
    return tuned, predictions


def _lessons(scored: Scored) -> dict[int, list[Lessons]]:
    """What the pages of the even half teach, by fold."""
    from nq.postprocess.fit import block_lesson, option_lesson
    from nq.postprocess.ranking import evidence

    found: dict[int, list[Lessons]] = {}
    for example, scores in scored:
        fold = _fold(example.example_id)
        if example.annotations and fold is not None:
            said = evidence(example, scores, scored.job.decision.max_answer_length)
            both = block_lesson(example, said), option_lesson(example, said)
            found.setdefault(fold, []).append(both)
    return found


def _fitted(folds: Iterable[Iterable[Lessons]]) -> RankingWeights:
    from nq.postprocess.fit import fit

    both = [lessons for fold in folds for lessons in fold]
    return fit([block for block, _ in both if block], [option for _, option in both if option])


def _calibrated(weights: RankingWeights, gold: Gold, predictions: Predictions) -> RankingWeights:
    from nq.postprocess.fit import scaling

    fits = [
        scaling([d.score for d in found if d.predicted], [d.correct for d in found if d.predicted])
        for found in nq_eval.decisions(gold, predictions, one_annotator=True)
    ]
    (long_scale, long_shift), (short_scale, short_shift) = fits
    return replace(
        weights,
        long_scale=long_scale,
        long_shift=long_shift,
        short_scale=short_scale,
        short_shift=short_shift,
    )


def _rescaled(label: labels.Label, weights: RankingWeights) -> labels.Label:
    from nq.postprocess.ranking import scaled

    return replace(
        label,
        long_score=scaled(label.long_score, weights.long_scale, weights.long_shift),
        short_score=scaled(label.short_score, weights.short_scale, weights.short_shift),
    )


def thresholds(gold: Gold, predictions: Predictions) -> tuple[float, float]:
    """The long and the short threshold with the best F1, one annotator enough."""
    long, short = nq_eval.decisions(
        gold, predictions, long_non_null_threshold=1, short_non_null_threshold=1
    )
    return _threshold(long), _threshold(short)


def _threshold(decisions: Sequence[nq_eval.Decision]) -> float:
    """Of the gaps between scores whose F1 is within ``SLACK`` of the best the likeliest one.

    That is the middle of the one nearest to half of the best F1, which is the best threshold of
    probabilities (Lipton, Elkan and Naryanaswamy 2014): what a few examples say alone may lie
    anywhere on a plateau. ``GAP`` wide if there is such a one, since close to a score the slightest
    drift of the arithmetic would give or drop that answer.
    """
    points = nq_eval.sweep(decisions)
    best = nq_eval.best(points).f1
    gaps = [
        (above.threshold - below.threshold, (above.threshold + below.threshold) / 2)
        for above, below in itertools.pairwise(points)
        if above.f1 >= best - SLACK
    ]
    if not gaps:
        return points[0].threshold
    enough = min(GAP, max(gaps)[0])
    wide = [middle for width, middle in gaps if width >= enough]
    nearest: float = min(wide, key=lambda middle: abs(middle - best / 2))
    return round(nearest, ROUNDED)


def worth(gold: Gold, predictions: Predictions, decision: DecisionConfig) -> dict[str, Any]:
    """What a decision is worth on predictions that nothing was held back from."""
    kept = {
        key: _cut(label, decision.long_threshold, decision.short_threshold)
        for key, label in predictions.items()
    }
    metrics = nq_eval.score(gold, kept, one_annotator=True)
    best = nq_eval.score(gold, predictions, one_annotator=True)
    long, short = nq_eval.decisions(gold, predictions, one_annotator=True)
    return {
        "odd_examples": len(predictions),
        "odd_micro_f1": metrics["micro_f1"],
        "odd_micro_f1_best": best["micro_f1_best"],
        "odd_long_f1": metrics["long-answer-f1"],
        "odd_long_f1_best": best["long-best-threshold-f1"],
        "odd_short_f1": metrics["short-answer-f1"],
        "odd_short_f1_best": best["short-best-threshold-f1"],
        **_calibration("odd_long", long),
        **_calibration("odd_short", short),
        **_yes_no(gold, predictions),
    }


def _calibration(name: str, found: Sequence[nq_eval.Decision]) -> dict[str, float]:
    """The calibration error, and what chance alone makes it on so few examples."""
    predicted = [d for d in found if d.predicted]
    scores = [d.score for d in predicted]
    return {
        f"{name}_calibration_error": expected_calibration_error(
            scores, [d.correct for d in predicted]
        ),
        f"{name}_calibration_error_by_chance": error_by_chance(scores),
    }


def _yes_no(gold: Gold, predictions: Predictions) -> dict[str, Any]:
    """How many questions have yes or no for an answer, and the share that is answered so."""
    wanted = {
        key: {x.yes_no for x in given} - {"none"}
        for key, given in gold.items()
        if sum(x.yes_no != "none" for x in given) >= min(2, len(given))
    }
    right = sum(predictions[key].yes_no in words for key, words in wanted.items())
    accuracy = right / len(wanted) if wanted else 0.0
    return {"odd_yes_no_questions": len(wanted), "odd_yes_no_accuracy": accuracy}


def _remainder(key: labels.ExampleId) -> int | None:
    return key % 2 if isinstance(key, int) else None


def _fold(key: labels.ExampleId) -> int | None:
    """Which part of the even half an example lies in; ``None`` for the others."""
    return int(key) // 2 % FOLDS if _remainder(key) == 0 else None


def _half(gold: Gold, predictions: Predictions, remainder: int) -> tuple[Gold, Predictions]:
    keys = [key for key in gold if _remainder(key) == remainder and key in predictions]
    return {key: gold[key] for key in keys}, {key: predictions[key] for key in keys}


def _cut(label: labels.Label, long: float, short: float) -> labels.Label:
    """The prediction without what scores below its threshold."""
    if label.long_score < long:
        label = replace(label, long=labels.Span())
    if label.short_score < short:
        label = replace(label, short=(), yes_no="none")
    return label


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return terminal.run(tune, parser(), argv)


if __name__ == "__main__":
    raise SystemExit(main())
