"""Cuts the pages of dev to 1 to 5 blocks, and fits the term of the decision for such pages to them.

    python -m experiments.short_pages --data ../shared/data --output short.jsonl.gz
    python -m experiments.short_pages --data ../shared/data --output short.jsonl.gz \\
        --model small --profile mixed+buckets+openvino

Each question of dev with an answer is asked twice: about its gold block among random others of its
page, and about random blocks of its page without the gold one, so that half of the questions have
no answer. The ids are others than those of dev, in the same half and fold.

With ``--model`` the weight ``few_blocks`` is fitted to the pages with even ids; all other weights
and the thresholds stay, so that no answer on a page of 8 blocks or more changes. The figures are of
the pages with odd ids, first without the term.
"""

import argparse
import random
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments import command
from experiments.command import in_half
from experiments.distractors import gold_blocks, without_blocks
from experiments.recipes import SEED
from experiments.training_data import Record, data_files, read_records, write_records
from nq.commands import arguments
from nq.config import DecisionConfig
from nq.errors import Error
from nq.evaluation import nq_eval
from nq.evaluation.calibration import expected_calibration_error
from nq.evaluation.evaluate import example_labels
from nq.evaluation.labels import prediction_label
from nq.formats.outputs import encode_prediction
from nq.postprocess.decision import decide
from nq.postprocess.fit import block_choices, fit_few_blocks
from nq.postprocess.ranking import rank
from nq.runs.folder import FinishedRun
from nq.runs.job import Job
from nq.runs.run import run

MOST = 5
ID_SHIFTS = {True: 10**18, False: 2 * 10**18}
"""Added to the ids of pages with and without the gold block; even, and 0 in all folds."""


def _options(parser: argparse.ArgumentParser) -> None:
    text = "folder with dev/"
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help=text)
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="a jsonl.gz")
    arguments.add_model(parser)
    arguments.add_profile(parser)


def short_pages(dev: Iterable[Record]) -> Iterator[Record]:
    """Yields two short pages of each record with an answer, in simplified NQ format."""
    for record in dev:
        blocks = record["long_answer_candidates"]
        tops, gold = {i for i, b in enumerate(blocks) if b["top_level"]}, gold_blocks(record)
        others = sorted(tops - gold)
        if not gold or not others:
            continue
        draw = random.Random(f"{SEED}/{record['example_id']}")
        for has_gold, shift in ID_SHIFTS.items():
            kept, size = gold if has_gold else set(), draw.randint(1, MOST)
            kept = kept | {*draw.sample(others, min(len(others), max(0, size - len(kept))))}
            page = without_blocks(record, tops - kept)
            yield {**page, "example_id": record["example_id"] + shift}


def fit(args: argparse.Namespace) -> dict[str, Any]:
    """Returns the fitted weight, and the figures of the odd half without and with it."""
    job = Job([str(args.output)], args.model, args.profile, keep_scores=True)
    with tempfile.TemporaryDirectory() as folder:
        finished = FinishedRun(run(replace(job, root=Path(folder))).folder)
        decision = finished.job.model.decision
        even = (one for one in finished if in_half(one[0].example_id, "even"))
        sets = [block_choices(one, rank(one, scores, decision).evidence) for one, scores in even]
        start = replace(decision.weights, few_blocks=0.0)
        weights = fit_few_blocks([one for one in sets if one], start)
        without, fitted = (
            figures(finished, replace(decision, weights=one)) for one in (start, weights)
        )
    with_term = {f"{name}, fitted": value for name, value in fitted.items()}
    return {"few_blocks": weights.few_blocks, **without, **with_term}


def figures(finished: FinishedRun, decision: DecisionConfig) -> dict[str, float]:
    """Returns what a decision is worth on the odd half of the scores of a run."""
    gold, labels = {}, {}
    for example, scores in finished:
        if in_half(example.example_id, "odd"):
            prediction = decide(example, scores, decision).prediction
            gold[example.example_id] = example_labels(example)
            labels[example.example_id] = prediction_label(encode_prediction(prediction))
    if not gold:
        raise Error("no page has an odd id")
    metrics = nq_eval.score(gold, labels, one_annotator=True)
    long, short = nq_eval.decisions(gold, labels, one_annotator=True)
    given = [(one.score, one.correct) for one in long if one.predicted]
    return {
        "questions": len(gold),
        "without_answer": sum(not one.has_gold for one in long),
        "passages_without_answer": sum(one.predicted and not one.has_gold for one in long),
        "right_passages": sum(one.correct for one in long),
        "right_short_answers": sum(one.correct for one in short),
        "micro_f1": metrics["micro_f1"],
        "long_f1": metrics["long-answer-f1"],
        "short_f1": metrics["short-answer-f1"],
        "calibration_error": expected_calibration_error(*map(list, zip(*given, strict=True))),
    }


def make(args: argparse.Namespace) -> int:
    """Runs the command."""
    records = list(short_pages(read_records(data_files(args.data, "dev"))))
    write_records(args.output, records)
    blocks = [sum(c["top_level"] for c in r["long_answer_candidates"]) for r in records]
    result = {"questions": len(records), "fewest_blocks": min(blocks), "most_blocks": max(blocks)}
    return command.show(fit(args) if args.model else result, args)


main = command.main(make, _options)


if __name__ == "__main__":
    raise SystemExit(main())
