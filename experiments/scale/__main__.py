"""What a corpus costs on 1 to 512 workers.

    python -m experiments.scale --data ../shared/data/pages/nq-pages.jsonl.gz

Measures each stage of ``nq answer --runner`` for one example, on one core of this machine, and
predicts hours and dollars for NQ's development set, its training set and a Wikipedia.
"""

import argparse
from collections.abc import Sequence

from experiments import Values, command, units
from experiments.cluster_scaling import warm
from experiments.command import markdown
from experiments.scale import measure
from experiments.scale.predict import (
    CHECK,
    CORPORA,
    MERGE,
    SKIP,
    START,
    WORKER_STAGES,
    Corpus,
    predicted,
)
from nq import processor
from nq.commands import arguments
from nq.formats.input_files import find_files
from nq.inference.profile import Profile
from nq.model.folder import open_folder

DOLLARS_PER_HOUR = 0.085
"""Of a core: 4.08 dollars for the 48 cores of a c5.metal of AWS, as in ``experiments/planning``."""
WORKERS = (1, 8, 64, 512)
WHERE = {
    CHECK: "submitting machine",
    START: "each worker, once",
    **dict.fromkeys(WORKER_STAGES, "worker"),
    SKIP: "worker, for each other worker of the file",
    MERGE: "submitting machine",
}
ORDER = (CHECK, START, *WORKER_STAGES[:1], SKIP, *WORKER_STAGES[1:], MERGE)


def table(result: Values) -> str:
    """Returns the costs and the predictions as two Markdown tables."""
    costs = result["costs"]
    head = ("corpus", "examples", "workers", "hours", "dollars", "most of the time", "share")
    rows = [_row(result, corpus, workers) for corpus in CORPORA for workers in WORKERS]
    stages = [(name, WHERE[name], _figure(1000 * costs[name])) for name in ORDER]
    each = markdown(("stage", "where", "ms for an example"), *stages)
    return f"{each}\n{markdown(head, *rows)}"


def _row(result: Values, corpus: Corpus, workers: int) -> Sequence[str]:
    """Returns the cells of a corpus; the submitting machine's core is paid for, too."""
    stages = predicted(result["costs"], corpus, workers)
    most = max(stages, key=lambda name: stages[name])
    hours = sum(stages.values()) / 3600
    dollars = hours * (workers + 1) * result["dollars_per_hour"]
    return (
        corpus.name,
        f"{corpus.examples:,}",
        str(workers),
        _figure(hours),
        _figure(dollars),
        most,
        f"{stages[most] / (3600 * hours):.0%}",
    )


def _figure(value: float) -> str:
    """Returns a number with three digits, or more before the point.

    >>> _figure(0.01234), _figure(12345.6)
    ('0.0123', '12,346')
    """
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def check(result: Values, cluster: Values) -> str:
    """Returns what is predicted beside what a cluster took, as a Markdown table.

    ``result`` has the costs of the questions of ``cluster``, of ``experiments.cluster_scaling``.
    """
    rows = []
    for workers in (1, 2):
        measured_s, examples = warm(cluster, workers)
        stages = predicted(result["costs"], Corpus("", examples, 1), workers)
        expected_s = sum(stages.values()) - stages[START]
        rows.append(
            (
                str(workers),
                str(examples),
                f"{expected_s:.1f}",
                f"{measured_s:.1f}",
                f"{expected_s / measured_s - 1:+.0%}",
            )
        )
    head = ("TaskManagers", "questions, workers warm", "predicted s", "measured s", "error")
    return markdown(head, *rows)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data",
        nargs="+",
        required=True,
        metavar="FILE",
        help="questions",
    )
    arguments.add_model(parser)
    command.add_option(parser, "profile", Profile("buckets+openvino"), "optimizations")
    command.add_option(parser, "batch-size", 16, "windows of a batch")
    command.add_option(parser, "limit", None, "examples at most")
    command.add_option(parser, "dollars-per-hour", DOLLARS_PER_HOUR, "of one core")


def scale(args: argparse.Namespace) -> int:
    """Runs the command."""
    folder = open_folder(args.model)
    files = tuple(find_files(args.data))
    task = measure.Task(
        files,
        folder.path,
        str(args.profile),
        args.batch_size,
        args.limit,
    )
    with units.started(measure.load, task, processor.cores()[:1]) as unit:
        found = unit.receive()
    result = {"profile": task.profile, "dollars_per_hour": args.dollars_per_hour, **found}
    return command.show(result, args, table)


main = command.main(scale, _options)
