"""Measures what the scores of a model are worth, before a decision is made from them and after.

    python -m experiments.reading --data dev.jsonl.gz --model small --half even

For each question with a gold short answer, the best-scored span inside the gold block is compared
with the gold texts as in the evaluation of SQuAD (Rajpurkar et al. 2016): exact match, and F1 of
the words. For each question with a gold long answer, the blocks of the page are ranked by their
best span; counted is how often a gold block is the first. Both need no decision. A span that is not
exact is too short or too long, if one of the gold spans contains it or is in it, or elsewhere.

Then the model's decision answers all questions at its thresholds: F1, and the calibration error of
the probabilities. The model is one model, by default ``small``.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiments import Values, command
from experiments.command import add_half, in_half, markdown
from experiments.scored import answered, judged, metrics
from nq.bundle import READER
from nq.commands import arguments
from nq.config import WindowConfig
from nq.errors import Error
from nq.evaluation import nq_eval
from nq.evaluation.calibration import expected_calibration_error
from nq.evaluation.evaluate import JudgedPrediction
from nq.evaluation.text_match import score_text
from nq.model.folder import ModelFolder
from nq.model.model import Model
from nq.postprocess.blocks import block_of_token
from nq.postprocess.fit import gold_longs
from nq.postprocess.spans import pairs
from nq.records import Example, WindowScores
from nq.runs.job import Job

ERRORS = ("too_short", "too_long", "elsewhere")
F1 = {"micro_f1": "micro_f1", "long_f1": "long-answer-f1", "short_f1": "short-answer-f1"}


def _options(parser: argparse.ArgumentParser) -> None:
    command.add_answering(parser, " of annotated data")
    arguments.add_settings(parser, WindowConfig)
    add_half(parser, default="even")


@dataclass(frozen=True)
class Reading:
    """What the scores of one page are worth.

    Args:
        exact: whether the best span in the gold block equals a gold short answer; ``None`` without
            a gold short answer of words.
        f1: the largest F1 of its words and those of a gold short answer, 0 to 1.
        error: how it differs from the gold spans, one of ``ERRORS``, if it is not exact.
        first: whether a gold block has the best span of the page.
    """

    exact: bool | None
    f1: float
    error: str
    first: bool


def read(example: Example, scores: WindowScores, max_answer_length: int) -> Reading | None:
    """Returns what the scores of an example are worth; ``None`` without a gold long answer."""
    gold = gold_longs(example)
    if not gold:
        return None
    spans = pairs(scores, max_answer_length)
    of_token = block_of_token(example)
    first = of_token[spans.start_doc]
    last = of_token[spans.end_doc]
    is_gold = np.array([c.span in gold for c in example.candidates] + [False])
    inside = np.flatnonzero((first == last) & (first >= 0))  # best first
    in_gold = inside[is_gold[first[inside]]]
    span = spans.span(int(in_gold[0])) if len(in_gold) else None
    answer = example.text(span) if span else ""
    annotations = example.annotations or ()
    texts = [" ".join(map(example.text, a.shorts)) for a in annotations if a.shorts]
    if len(texts) < min(2, len(annotations)):
        texts = []
    golden = [short for a in annotations for short in a.shorts]
    error = ERRORS[2]
    if span and any(short.contains(span) for short in golden):
        error = ERRORS[0]
    elif span and any(span.contains(short) for short in golden):
        error = ERRORS[1]
    matched = score_text(texts, answer)
    is_first = len(in_gold) > 0 and bool(in_gold[0] == inside[0])
    return Reading(matched.exact_match if texts else None, matched.f1, error, is_first)


def measure(args: argparse.Namespace) -> int:
    """Runs the command."""
    files = ModelFolder.open(args.model or READER)
    model = Model.open(files, windows=arguments.window_settings(args, files.settings))
    job = Job(args.data, model, args.profile, limit=args.limit, keep_scores=True)
    with answered(job) as finished:
        every = [(one, scores) for one, scores in finished if isinstance(scores, WindowScores)]
        decision = finished.job.model.decision
    some = [one for one in every if in_half(one[0].example_id, args.half)]
    readings = [r for one in some if (r := read(*one, decision.max_answer_length))]
    if not readings:
        raise Error(f"the half {args.half!r} of the examples has no gold long answers")
    shorts = [r for r in readings if r.exact is not None]
    result = {
        "questions": len(some),
        "long_questions": len(readings),
        "gold_block_first": sum(r.first for r in readings) / len(readings),
        "short_questions": len(shorts),
        "exact_match_in_gold_block": sum(bool(r.exact) for r in shorts) / max(1, len(shorts)),
        "f1_in_gold_block": sum(r.f1 for r in shorts) / max(1, len(shorts)),
        **{name: sum(r.error == name and not r.exact for r in shorts) for name in ERRORS},
        **_answers(judged(some, decision, "all")),
    }
    return command.show(result, args, table)


def _answers(judgments: Sequence[JudgedPrediction]) -> dict[str, float]:
    """Returns the figures of the answers that a decision gives."""
    of_all = metrics(judgments)
    figures = {name: of_all[key] for name, key in F1.items()}
    decided = [
        nq_eval.decisions_of_one(j.gold, j.prediction) for j in judgments if j.gold is not None
    ]
    for name, several in zip(("long", "short"), zip(*decided, strict=True), strict=True):
        given = [decision for decision in several if decision.predicted]
        scores = [d.score for d in given]
        correct = [d.correct for d in given]
        figures[f"{name}_given"] = len(given)
        figures[f"{name}_right"] = sum(correct)
        if given:
            figures[f"{name}_calibration_error"] = expected_calibration_error(scores, correct)
    return figures


def table(result: Values) -> str:
    """Returns the result as a Markdown table."""
    errors = ", ".join(f"{name.replace('_', ' ')} {result[name]}" for name in ERRORS)
    errors_by_part = [f"{name}_calibration_error" for name in ("long", "short")]
    given = [(name, result[f"{name}_given"], result[f"{name}_right"]) for name in ("long", "short")]
    rows = (
        ("micro-F1 / long answer F1 / short answer F1", ("micro_f1", "long_f1", "short_f1")),
        ("gold block ranked first", ("gold_block_first",)),
        ("exact match / F1 in the gold block", ("exact_match_in_gold_block", "f1_in_gold_block")),
        ("calibration error of given answers, long / short", errors_by_part),
    )
    return markdown(
        (f"{result['questions']} questions, {result['long_questions']} with an answer", ""),
        *((title, " / ".join(f"{result[n]:.3f}" for n in names)) for title, names in rows),
        *((f"{name} answers given / right", f"{n} / {right}") for name, n, right in given),
        ("spans in the gold block that are not exact", errors),
    )


main = command.main(measure, _options)
