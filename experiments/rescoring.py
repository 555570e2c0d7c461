"""Measures the limits of ``rescore``, what it computes again, and which answers still change.

    python -m experiments.rescoring --data dev.jsonl.gz pages.jsonl.gz --output runs/rescoring

Every profile in ``PROFILES`` and its exact one answer each data file, in processes of their own
that keep the scores of all windows; a finished run of the same model and settings is not repeated.
All figures follow from these scores:

- An answer that rounding changed had some decision margin, here divided by the weight of the
  evidence, so that it is a sum of logits. The limit of that engine and compute type
  (``nq.inference.rescore.CLOSE``) is 1.3 times the largest of them (``largest_margin``). Of the
  first file only examples with even ids count for it, of the others all.
- Examples whose margin is below the limit take the answer of the exact profile. The table tells
  how many these are, and how many answers differ from ``baseline`` before and after that.
"""

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path

from experiments import Values, command
from experiments.command import in_half, markdown
from experiments.compression.models import in_new_process, run_once
from nq.commands import arguments
from nq.errors import Error
from nq.evaluation.official import places
from nq.formats.input_files import find_files
from nq.inference.profile import BASELINE, Profile
from nq.inference.rescore import CLOSE, compute_type, exact_profile
from nq.postprocess.ranking import decision_margin, rank
from nq.records import ExampleId, Prediction
from nq.runs.folder import FinishedRun
from nq.runs.job import Job

PROFILES = (
    "mixed+grappler+buckets",
    "mixed+buckets+openvino",
    "buckets+openvino+int8",
    "buckets+onnx+int8",
)


def _options(parser: argparse.ArgumentParser) -> None:
    arguments.add_data(parser)
    arguments.add_model(parser)
    arguments.add_limit(parser)
    parser.add_argument(
        "--profiles", nargs="+", default=PROFILES, metavar="P", help="without rescore"
    )
    command.add_option(parser, "output", Path, "folder of the runs")


def measure(args: argparse.Namespace) -> int:
    """Runs the command."""
    rows = [row for name in args.profiles for row in _rows(Profile(name), args)]
    return command.show({"rows": rows}, args, table)


def _rows(profile: Profile, args: argparse.Namespace) -> Iterator[Values]:
    """Yields the figures of a profile for each file, and the limit that follows from them all."""
    limit = CLOSE.get(compute_type(profile, "CPU"), 0.0)
    largest = 0.0
    options: Values = {"root": args.output, "limit": args.limit, "keep_scores": True}
    for number, file in enumerate(find_files(args.data)):
        rounded, exact, baseline = (
            FinishedRun(in_new_process(run_once, Job([file], args.model, str(one), **options)))
            for one in (profile, exact_profile(profile), BASELINE)
        )
        if rounded.scores is None:
            raise Error(f"{rounded.path} has no scores: remove it, and run the command again")
        decision = rounded.job.model.decision
        margins = dict[ExampleId, float]()
        for source, example in rounded.sources():
            margin = decision_margin(rank(example, rounded.scores.scores(source.key), decision))
            margins[example.example_id] = margin / decision.evidence_weight  # a sum of logits
        changed = _changed(rounded.predictions, baseline)
        final = {
            key: (exact if margin < limit else rounded).predictions[key]
            for key, margin in margins.items()
        }
        counted = [margins[key] for key in changed if number or in_half(key, "even")]
        largest = max([largest, *counted])
        yield {
            "profile": f"{profile}+rescore",
            "data": Path(file).name,
            "questions": len(margins),
            "changed": len(changed),
            "limit": limit,
            "rescored": sum(margin < limit for margin in margins.values()),
            "changed_with_rescore": len(_changed(final, baseline)),
            "largest_margin": largest,  # of the changed answers of this file and those before
        }


def _changed(predictions: Mapping[ExampleId, Prediction], baseline: FinishedRun) -> list[ExampleId]:
    """Returns the examples whose answers differ from those of baseline."""
    expected = baseline.predictions
    return [key for key, one in predictions.items() if places(one) != places(expected[key])]


def table(result: Values) -> str:
    """Returns the rows as a Markdown table."""
    head = ("profile", "data", "limit", "changed without", "computed again", "changed")
    cells = (
        (
            f"`{row['profile']}`",
            f"{row['data']} ({row['questions']})",
            f"{row['limit']:g}",
            str(row["changed"]),
            f"{row['rescored'] / row['questions']:.1%}",
            str(row["changed_with_rescore"]),
        )
        for row in result["rows"]
    )
    return markdown(head, *cells)


main = command.main(measure, _options)
