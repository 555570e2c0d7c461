"""Where a finished run loses its answers.

    nq answer --data dev.jsonl.gz --keep-scores
    python -m experiments.errors runs/grappler-0e8ba8e85b

Prints tables, writes them as ``errors.html`` into the run's folder, and adds that page to the
run in MLflow.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nq import tracking
from nq.commands import terminal
from nq.errors import Error

if TYPE_CHECKING:
    from experiments.errors.finished import Finished

PAGE = "errors.html"


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.errors",
        description="Shows where a finished run of nq answer loses its answers: by kind of "
        "question, by stage, by confidence. Run nq answer with --keep-scores to see all stages.",
    )
    parser.add_argument("run", type=Path, metavar="RUN_DIR", help="folder that nq answer wrote")
    parser.add_argument(
        "--data", nargs="+", metavar="FILE", help="where the run's data lies now, if it was moved"
    )
    parser.add_argument(
        "--model", type=Path, metavar="DIR", help="where its model folder lies now, likewise"
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help=f"the page; default: {PAGE} in RUN_DIR"
    )
    parser.add_argument(
        "--show", type=int, default=10, metavar="N", help="worst examples in a list (default: 10)"
    )
    group = parser.add_argument_group("tracking")
    group.add_argument(
        "--tracking-uri", metavar="U", help="MLflow store or server; default: sqlite:///mlflow.db"
    )
    group.add_argument("--no-track", action="store_true", help="do not add the page to the run")
    terminal.add_common(parser)
    return parser


def errors(args: argparse.Namespace) -> int:
    """Runs the command."""
    from experiments.errors.finished import cases, read_finished
    from experiments.errors.page import page
    from experiments.errors.report import report
    from experiments.errors.text import text
    from nq.formats import inputs

    files = inputs.find_files(args.data) if args.data else None
    run = read_finished(args.run, files, args.model)
    with terminal.bar("analyse", "examples") as bar:
        found = list(cases(run, bar))
    if not found:
        raise Error(
            "no record of the run's data has annotations, so nothing is right or wrong; "
            "answer annotated questions (train or dev)"
        )
    without = len(run.predictions) - len(found)
    told = report(found, _describe(run), without, run.scores is not None, max(0, args.show))
    output = args.output or args.run / PAGE
    output.write_text(page(told), encoding="utf-8")
    where = None
    if run.run_id and not args.no_track:
        where = tracking.attach([output], run.run_id, args.tracking_uri)
    if args.json:
        terminal.print_json(told.to_dict() | {"page": str(output), "run_id": run.run_id})
    else:
        print(text(told), f"\nwritten to {output}", sep="\n")
        if where:
            print(f"see the run: {where}")
    return 0


def _describe(run: Finished) -> dict[str, str]:
    """What the report says of the run."""
    settings = run.job.decision.to_dict().items()
    decision = (f"{name} {value}" for name, value in settings if not isinstance(value, dict))
    return {
        "run": str(run.folder),
        "data": ", ".join(Path(path).name for path in run.job.files),
        "model": run.job.model.name,
        "profile": str(run.job.profile),
        "decision": ", ".join(decision),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return terminal.run(errors, parser(), argv)


if __name__ == "__main__":
    raise SystemExit(main())
