"""Tunes the default decision of a model on annotated questions, and measures it on others.

The examples with even ids determine the weights, the calibration and the thresholds; those with odd
ids measure the result.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nq import storage
from nq.config import CascadeDecision, Compute, DecisionConfig, RankingWeights
from nq.errors import Error
from nq.evaluation import labels, nq_eval
from nq.evaluation.calibration import (
    area_under_roc,
    error_by_chance,
    expected_calibration_error,
)
from nq.evaluation.evaluate import gold_labels
from nq.formats import input_files
from nq.formats.outputs import encode_prediction
from nq.formats.questions import PageFolder
from nq.inference.profile import DEFAULT_PROFILE, Profile
from nq.model.folder import SETTINGS, load_settings, save_settings, weights_digest
from nq.model.spec import ModelSpec, find_model
from nq.postprocess.fit import (
    CASCADE_PRIOR_WEIGHTS,
    PRIOR_WEIGHTS,
    ChoiceSet,
    block_choices,
    fit,
    fit_calibration,
    option_choices,
)
from nq.postprocess.ranking import calibrated, rank
from nq.records import Example, Scores
from nq.runs.job import Job
from nq.runs.measure import Clock, no_report
from nq.runs.plan import Plan, check_job
from nq.runs.score_store import clear
from nq.runs.scoring import RunProgress, open_scoring
from nq.text import counted

log = logging.getLogger(__name__)

DIGITS = 4
SLACK = 0.005
"""Thresholds whose F1 is within this of the best are equally good."""
GAP = 0.002
"""Width of the gap between scores that a threshold needs, so that rounding does not matter."""
FOLDS = 5

Gold = dict[labels.ExampleId, list[labels.Label]]
Predictions = dict[labels.ExampleId, labels.Label]
ChoiceSets = tuple[ChoiceSet | None, ChoiceSet | None]
"""The choice sets of an example's blocks and of its options."""


def tune(
    files: str | Path | Iterable[str | Path],
    model: str | Path | ModelSpec,
    profile: Profile | str = DEFAULT_PROFILE,
    compute: Compute = Compute(),
    keep_scores: bool = False,
    progress: RunProgress = no_report,
    pages: PageFolder | str | Path | None = None,
) -> dict[str, Any]:
    """Fits the decision of a model to one half of annotated data, as ``nq tune`` does.

    It is fitted on the even half, written into the model folder, and measured on the odd half.

    Args:
        files: annotated files, globs or folders.
        model: a model folder; of two models ``nq.find_model(MODEL, second_model=FOLDER)``, whose
            decision is one of both, in the folder of the second.
        profile: optimizations.
        compute: batches, processes and threads.
        keep_scores: whether the scores are kept, so that tuning the same model again takes seconds.
        progress: receives completed windows.
        pages: the folder of the pages that questions name.

    Returns:
        The thresholds, and the figures of the odd half by name.

    Raises:
        OSError: a file cannot be read or written.
        ValueError: the data have no annotations, or an argument is wrong.
        Error: the model is an installed one, which is not written to, or it is being trained.
    """
    if not isinstance(model, ModelSpec):
        model = own_model(find_model(model), model)
    folder = model.models[-1].folder
    several = input_files.path_list("files", [files] if isinstance(files, str | Path) else files)
    start = DecisionConfig(max_answer_length=model.decision.max_answer_length)
    if cascade := model.cascade:
        start = CascadeDecision(
            max_answer_length=cascade.max_answer_length,
            read_blocks=cascade.read_blocks,
            ranker=cascade.ranker,
        )
    with contextlib.ExitStack() as stack:
        paths = stack.enter_context(input_files.input_files(several))
        job = Job(paths, replace(model, decision=start), profile, pages=pages, compute=compute)
        job.check_output()
        storage.check_output_file(folder / SETTINGS, job.files)
        stack.enter_context(storage.hold_marked(folder))
        check_job(job)
        scoring = stack.enter_context(open_scoring(Plan.of(job), Clock(), progress))
        tuned = tune_decision(scoring, start, ", ".join(paths))
        settings = load_settings(folder)
        if isinstance(tuned.decision, CascadeDecision):
            cascades = {**settings.cascades, weights_digest(model.folder): tuned.decision}
            save_settings(folder, replace(settings, cascades=cascades))
        else:
            save_settings(folder, replace(settings, decision=tuned.decision))
        if not keep_scores:
            clear(scoring.store.folder)
    for chunk in scoring.chunks.ready:
        if chunk.dead_letters:
            records, path = counted(chunk.dead_letters, "bad record"), chunk.dead_letter_file
            log.warning("%s in %s, the first: %s", records, path, chunk.first_dead_letter())
    return {
        "long_threshold": tuned.decision.long_threshold,
        "short_threshold": tuned.decision.short_threshold,
        **measure(*_half(tuned.gold, tuned.predictions, odd=True), tuned.decision),
        "model": str(folder),
        "truncated_pages": scoring.chunks.total("truncated_pages"),
        "unread_blocks": scoring.chunks.total("unread_blocks"),
    }


def own_model(model: ModelSpec, *given: str | Path) -> ModelSpec:
    """Returns a model; ``Error`` if the folder to write to is not a path that was given."""
    folder = model.models[-1].folder
    if folder not in map(Path, given):
        raise Error(
            f"the decision is written into the model folder, and {folder} is an installed model: "
            f"copy it (cp -r {folder} my_model) and tune the copy"
        )
    return model


@dataclass(frozen=True)
class Tuned:
    """A fitted decision, with all gold and the predictions by it, no threshold applied."""

    decision: DecisionConfig
    gold: Gold
    predictions: Predictions


def tune_decision(
    scored: Iterable[tuple[Example, Scores]], decision: DecisionConfig, name: str = "the data"
) -> Tuned:
    """Fits the decision on the even half.

    Calibration and thresholds use predictions by weights that were fitted without the example (in
    ``FOLDS`` folds), since weights fit their own examples better than others.

    All examples with their scores are iterated twice. The maximum answer length of the decision is
    kept; ``name`` is that of the data, for errors.
    """
    gold: Gold = {}
    choice_sets: dict[int, list[ChoiceSets]] = {}
    for example, scores in scored:
        if not example.annotations:
            continue
        gold[example.example_id] = gold_labels(example)
        fold = fold_of(example.example_id)
        if fold is not None:
            evidence = rank(example, scores, decision).evidence
            sets = block_choices(example, evidence), option_choices(example, evidence)
            choice_sets.setdefault(fold, []).append(sets)
    if not gold:
        raise ValueError(f"no annotations in {name}: give annotated data to tune on")
    plain = replace(decision, long_threshold=0.0, short_threshold=0.0)
    is_cascade = isinstance(decision, CascadeDecision)
    start = CASCADE_PRIOR_WEIGHTS if is_cascade else PRIOR_WEIGHTS
    weights = _fit(choice_sets.values(), start)
    held_out = [
        _fit((choice_sets[f] for f in choice_sets if f != fold), start) for fold in range(FOLDS)
    ]
    predictions: Predictions = {}
    for example, scores in scored:
        fold = fold_of(example.example_id)
        config = replace(plain, weights=weights if fold is None else held_out[fold])
        prediction = encode_prediction(rank(example, scores, config).prediction())
        predictions[example.example_id] = labels.prediction_label(prediction)
    weights = _calibrate(weights, *_half(gold, predictions, odd=False))
    for key, label in predictions.items():
        long = calibrated(label.long_score, weights.long_scale, weights.long_shift)
        platt = weights.short_calibration(_is_yes_no(label))
        short = calibrated(label.short_score, *platt)
        predictions[key] = replace(label, long_score=long, short_score=short)
    longs, shorts = nq_eval.decisions(  # one annotator is enough
        *_half(gold, predictions, odd=False), long_non_null_threshold=1, short_non_null_threshold=1
    )
    tuned = replace(
        plain,
        weights=weights,
        long_threshold=best_threshold(longs),
        short_threshold=best_threshold(shorts),
    )
    return Tuned(tuned, gold, predictions)


def _fit(folds: Iterable[Iterable[ChoiceSets]], start: RankingWeights) -> RankingWeights:
    sets = [both for fold in folds for both in fold]
    blocks = [block for block, _ in sets if block]
    return fit(blocks, [option for _, option in sets if option], start)


def _calibrate(weights: RankingWeights, gold: Gold, predictions: Predictions) -> RankingWeights:
    long, _ = nq_eval.decisions(gold, predictions, one_annotator=True)
    answers = {"long": long}
    for name, is_yes_no in (("short", False), ("yes_no", True)):
        own = {key: p for key, p in predictions.items() if _is_yes_no(p) == is_yes_no}
        golds = {key: gold[key] for key in own}
        _, answers[name] = nq_eval.decisions(golds, own, one_annotator=True)
    fitted: dict[str, float] = {}
    for name, decisions in answers.items():
        given = [d for d in decisions if d.predicted]
        parts = fit_calibration([d.score for d in given], [d.correct for d in given])
        fitted |= zip((f"{name}_scale", f"{name}_shift"), parts, strict=True)
    return replace(weights, **fitted)


def _is_yes_no(label: labels.Label) -> bool:
    return label.yes_no != "none"


def best_threshold(decisions: Sequence[nq_eval.Decision]) -> float:
    """Returns the most plausible of the thresholds whose F1 is within ``SLACK`` of the best.

    That is the middle of the gap between scores nearest to half of the best F1, the best threshold
    for probabilities (Lipton, Elkan and Naryanaswamy 2014), since a few examples leave a plateau.
    Gaps are ``GAP`` wide where there are such, since close to a score the slightest rounding would
    change that answer.
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
    return round(nearest, DIGITS)


def measure(gold: Gold, predictions: Predictions, decision: DecisionConfig) -> dict[str, Any]:
    """Returns the figures of a decision, from predictions without a threshold applied.

    Scores are measured by how far they are from the share of right answers, beside what that would
    be by chance if they were calibrated, and by how well they rank right answers.
    """
    kept = {}
    for key, label in predictions.items():
        long = label.long if label.long_score >= decision.long_threshold else labels.Span()
        kept[key] = replace(label, long=long)
        if label.short_score < decision.short_threshold:
            kept[key] = replace(kept[key], short=(), yes_no="none")
    metrics = nq_eval.score(gold, kept, one_annotator=True)
    best = nq_eval.score(gold, predictions, one_annotator=True)
    figures: dict[str, Any] = {
        "odd_examples": len(predictions),
        "odd_micro_f1": metrics["micro_f1"],
        "odd_micro_f1_best": best["micro_f1_best"],
    }
    for name in ("long", "short"):
        figures[f"odd_{name}_f1"] = metrics[f"{name}-answer-f1"]
        figures[f"odd_{name}_f1_best"] = best[f"{name}-best-threshold-f1"]
    decisions = nq_eval.decisions(gold, predictions, one_annotator=True)
    for name, of_name in zip(("odd_long", "odd_short"), decisions, strict=True):
        scores = [d.score for d in of_name if d.predicted]
        correct = [d.correct for d in of_name if d.predicted]
        figures[f"{name}_calibration_error"] = expected_calibration_error(scores, correct)
        figures[f"{name}_calibration_error_by_chance"] = error_by_chance(scores)
        figures[f"{name}_auc"] = area_under_roc(scores, correct)
    yes_no = {
        key: {label.yes_no for label in annotators} - {"none"}
        for key, annotators in gold.items()
        if sum(map(_is_yes_no, annotators)) >= min(2, len(annotators))
    }
    given = {key: predictions[key].yes_no for key in yes_no}
    no = [key for key, words in yes_no.items() if "no" in words]
    shares = {
        "yes_no_accuracy": [given[key] in words for key, words in yes_no.items()],
        "always_yes_accuracy": ["yes" in words for words in yes_no.values()],
        "no_recall": [given[key] == "no" for key in no],
    }
    figures["odd_yes_no_questions"], figures["odd_no_questions"] = len(yes_no), len(no)
    figures |= {f"odd_{n}": sum(hits) / len(hits) if hits else 0.0 for n, hits in shares.items()}
    return figures


def fold_of(key: labels.ExampleId) -> int | None:
    """Returns the fold of an example of the even half; ``None`` for others.

    The number of an id that is text is a digest.
    """
    if isinstance(key, str):
        text = key.encode("utf-8", "surrogatepass")
        key = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
    half, is_odd = divmod(key, 2)
    return None if is_odd else half % FOLDS


def _half(gold: Gold, predictions: Predictions, odd: bool) -> tuple[Gold, Predictions]:
    keys = [key for key in gold if (fold_of(key) is None) == odd and key in predictions]
    return {key: gold[key] for key in keys}, {key: predictions[key] for key in keys}
