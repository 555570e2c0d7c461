"""Measures the decision of a model on each of several files of annotated data.

    python -m experiments.quality --data dev.jsonl.gz short.jsonl.gz nq-pages.jsonl.gz

The figures are those that ``nq tune`` prints of the decision that it fits. The decisions of the
bundled models were fitted to examples with even ids, so those with odd ids count, unless ``--half
all`` is given. Each file is answered under the profile that ``nq answer`` would choose here, with
``prune`` for whole pages, unless ``--profile`` is given. The last row is the F1 of the first
paragraph of each page as its long answer.
"""

import argparse
from dataclasses import replace
from pathlib import Path

from experiments import Values, command
from experiments.command import add_half, in_half, markdown
from experiments.scored import answered
from nq.commands import arguments
from nq.commands.tune import ROWS
from nq.errors import Error
from nq.evaluation import nq_eval
from nq.evaluation.calibration import area_under_roc
from nq.evaluation.evaluate import example_gold
from nq.evaluation.nq_eval import Gold, Predictions
from nq.evaluation.tuning import measure
from nq.formats.input_files import find_files
from nq.lab.choose import with_profile
from nq.model.model import Model
from nq.postprocess.blocks import Blocks
from nq.postprocess.fit import yes_no_separation
from nq.postprocess.ranking import rank
from nq.questions import Questions
from nq.records import Example, Prediction, Span
from nq.runs.config import AUTO
from nq.runs.folder import FinishedRun
from nq.runs.job import Job

ALL_ROWS = {
    **ROWS,
    "area under the ROC curve, yes / no": ("yes_no_auc",),
    "long answer F1 of always the first paragraph": ("first_paragraph_long_f1",),
}


def _options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = arguments.PROFILES_HELP
    arguments.add_data(parser, note=" of annotated data")
    arguments.add_model(parser)
    arguments.add_profile(parser, auto=True)
    arguments.add_limit(parser)
    add_half(parser, default="odd")


def show(args: argparse.Namespace) -> int:
    """Runs the command."""
    model = Model.open(args.model)
    rows = []
    for file in find_files(args.data):
        job = Job([file], model, limit=args.limit, keep_scores=True)
        if args.profile in (None, AUTO):
            job, _ = with_profile(job, Questions(job.files, limit=args.limit))
        else:
            job = replace(job, profile=args.profile)
        with answered(job) as finished:
            figures = _figures(finished, args.half)
        rows.append({"data": Path(file).name.partition(".")[0], **figures})
    return command.show({"rows": rows}, args, table)


def _figures(finished: FinishedRun, half: str) -> Values:
    """Returns the figures of the examples of a half."""
    decision = finished.job.model.decision
    without_thresholds = replace(decision, long_threshold=0.0, short_threshold=0.0)
    gold: Gold = {}
    predictions: Predictions = {}
    first_paragraphs: Predictions = {}
    odds = list[float]()
    is_yes = list[bool]()
    for example, scores in finished:
        labels = example_gold(example)
        if not labels or not in_half(example.example_id, half):
            continue
        key = example.example_id
        ranking = rank(example, scores, without_thresholds)
        gold[key] = labels
        predictions[key] = ranking.prediction()
        first_paragraphs[key] = Prediction(key, first_paragraph(example), 1.0)
        if separation := yes_no_separation(example, ranking.evidence):
            odds.append(separation[0])
            is_yes.append(separation[1])
    if not gold:
        raise Error(f"the half {half!r} of the examples of a file has no annotations")
    of_first = nq_eval.score(gold, first_paragraphs, one_annotator=True)
    return {
        **measure(gold, predictions, decision),
        "yes_no_auc": area_under_roc(odds, is_yes),
        "first_paragraph_long_f1": of_first["long-answer-f1"],
    }


def first_paragraph(example: Example) -> Span | None:
    """Returns the first paragraph with words of a page."""
    spans = (example.candidates[i].span for i in Blocks.of(example).candidates.tolist())
    paragraphs = (span for span in spans if example.block_type(span) == "Paragraph")
    return min(paragraphs, key=lambda span: span.start, default=None)


def table(result: Values) -> str:
    """Returns the figures as a Markdown table with a column for each file."""
    rows = result["rows"]
    lines = (
        (title, *(" / ".join(f"{row[name]:.3f}" for name in names) for row in rows))
        for title, names in ALL_ROWS.items()
    )
    head = ("examples", *(f"{row['data']}: {row['examples']}" for row in rows))
    return markdown(head, *lines)


main = command.main(show, _options)
