"""Measures the decision of a model on each of several files of annotated data.

    python -m experiments.quality --data dev.jsonl.gz long.jsonl.gz short.jsonl.gz

The figures are those that ``nq tune`` prints of the decision that it fits. The decisions of the
bundled model were fitted to examples with even ids, so those with odd ids count, unless ``--half
all`` is given.
"""

import argparse
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from experiments import command
from experiments.command import add_half, in_half, markdown
from nq.commands.tune import ROWS
from nq.errors import Error
from nq.evaluation.calibration import area_under_roc
from nq.evaluation.evaluate import example_labels
from nq.evaluation.labels import prediction_label
from nq.evaluation.nq_eval import Gold
from nq.evaluation.tuning import Predictions, measure
from nq.formats.outputs import encode_prediction
from nq.postprocess.fit import yes_no_separation
from nq.postprocess.ranking import rank
from nq.runs.folder import FinishedRun
from nq.runs.job import Job
from nq.runs.run import run

ALL_ROWS = {**ROWS, "area under the ROC curve, yes / no": ("yes_no_auc",)}


def _options(parser: argparse.ArgumentParser) -> None:
    command.add_answering(parser, " of annotated data")
    add_half(parser, default="odd")


def show(args: argparse.Namespace) -> int:
    """Runs the command."""
    job = Job(args.data, args.model, args.profile, limit=args.limit, keep_scores=True)
    with tempfile.TemporaryDirectory() as folder:
        finished = FinishedRun(run(replace(job, root=Path(folder))).folder)
        rows = list(_rows(finished, args.half))
    if not rows:
        raise Error(f"the half {args.half!r} of the examples has no annotations")
    return command.show({"rows": rows}, args, table)


def _rows(finished: FinishedRun, half: str) -> Iterator[dict[str, Any]]:
    """Yields the figures of each file with examples of the half."""
    decision, files = finished.job.model.decision, dict[str, _File]()
    without_thresholds = replace(decision, long_threshold=0.0, short_threshold=0.0)
    for source, example in finished.sources():
        labels = example_labels(example)
        if not labels or not in_half(example.example_id, half) or finished.scores is None:
            continue
        ranking = rank(example, finished.scores.scores(source.key), without_thresholds)
        file = files.setdefault(source.path, _File())
        file.gold[example.example_id] = labels
        prediction = encode_prediction(ranking.prediction())
        file.predictions[example.example_id] = prediction_label(prediction)
        if separation := yes_no_separation(example, ranking.evidence):
            file.separations.append(separation)
    for path, file in files.items():
        figures = measure(file.gold, file.predictions, decision)
        odds, is_yes = zip(*file.separations, strict=True) if file.separations else ((), ())
        yes_no_auc = area_under_roc(odds, is_yes)
        yield {"data": Path(path).name.partition(".")[0], **figures, "yes_no_auc": yes_no_auc}


@dataclass
class _File:
    """The gold and the predictions of the examples of a file, and how far yes is from no."""

    gold: Gold = field(default_factory=dict)
    predictions: Predictions = field(default_factory=dict)
    separations: list[tuple[float, bool]] = field(default_factory=list)


def table(result: Mapping[str, Any]) -> str:
    """Returns the figures as a Markdown table with a column for each file."""
    rows = result["rows"]
    lines = (
        (title, *(" / ".join(f"{row[name]:.3f}" for name in names) for row in rows))
        for title, names in ALL_ROWS.items()
    )
    head = ("examples", *(f"{row['data']}: {row['examples']}" for row in rows))
    return markdown(head, *lines)


main = command.main(show, _options)


if __name__ == "__main__":
    raise SystemExit(main())
