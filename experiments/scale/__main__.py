"""What a corpus costs on 1 to 512 workers.

    python -m experiments.scale --data ../shared/data/pages/nq-pages.jsonl.gz

Measures each stage of ``nq answer --runner`` for one example, on one core of this machine, and
predicts hours and dollars for NQ's development set, its training set and a Wikipedia.
"""

import argparse

from experiments import command, units
from experiments.scale import measure, report
from nq import processor
from nq.commands import arguments
from nq.formats.input_files import find_files
from nq.inference.profile import Profile
from nq.model.folder import check_model, load_settings
from nq.model.registry import model_folder

DOLLARS_PER_HOUR = 0.085
"""Of a core: 4.08 dollars for the 48 cores of a c5.metal of AWS, as in ``experiments/planning``."""


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.add_argument("--data", nargs="+", required=True, metavar="FILE", help="questions")
    arguments.add_model(parser)
    command.add_option(parser, "profile", Profile.parse("buckets+openvino"), "optimizations")
    command.add_option(parser, "batch-size", 16, "windows of a batch")
    command.add_option(parser, "limit", None, "examples at most")
    command.add_option(parser, "dollars-per-hour", DOLLARS_PER_HOUR, "of one core")


def scale(args: argparse.Namespace) -> int:
    """Runs the command."""
    folder, files = model_folder(args.model), tuple(find_files(args.data))
    check_model(folder, load_settings(folder).windows)
    task = measure.Task(files, folder, str(args.profile), args.batch_size, args.limit)
    with units.started(measure.load, task, processor.cores()[:1]) as unit:
        found = unit.receive()
    result = {"profile": task.profile, "dollars_per_hour": args.dollars_per_hour, **found}
    return command.show(result, report.table, args)


main = command.main(scale, options)

if __name__ == "__main__":
    raise SystemExit(main())
