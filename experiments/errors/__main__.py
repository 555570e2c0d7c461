"""Shows where a finished run loses its answers.

    nq answer --data dev.jsonl.gz --keep-scores
    python -m experiments.errors runs/grappler-0e8ba8e85b

Prints tables, writes them to ``errors.html`` in the run's folder, and adds that page to the MLflow
run.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nq import folders, tracking
from nq.commands import arguments, terminal
from nq.errors import Error
from nq.text import visible

if TYPE_CHECKING:
    from experiments.errors.finished import FinishedRun

PAGE = "errors.html"


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.errors",
        description="Shows where a finished run of nq answer loses its answers: by kind of "
        "question, by stage, by confidence. Run nq answer with --keep-scores to see all stages.",
    )
    parser.add_argument("run", type=Path, metavar="RUN_DIR", help="folder that nq answer wrote")
    parser.add_argument("--data", nargs="+", metavar="FILE", help="the run's data, if it was moved")
    parser.add_argument(
        "--model", metavar="MODEL", help="the run's model, by folder or name, if it was moved"
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
    arguments.add_common(parser)
    return parser


def errors(args: argparse.Namespace) -> int:
    """Runs the command."""
    from experiments.errors.finished import cases, read_run
    from experiments.errors.page import page
    from experiments.errors.report import report
    from experiments.errors.text import text
    from nq.formats import inputs
    from nq.model.registry import model_folder

    files = inputs.find_files(args.data) if args.data else None
    output = args.output or args.run / PAGE
    others = [p for p in folders.own_paths(args.run, folders.RUN) if p.name != PAGE]
    folders.check_output_file(output, [*(files or ()), *others])
    run = read_run(args.run, files, model_folder(args.model) if args.model else None)
    with terminal.progress_bar("analyse", "examples") as bar:
        annotated = list(cases(run, bar))
    if not annotated:
        raise Error(
            "no record of the run's data has annotations, so that no answer is right or wrong: "
            "answer annotated questions (train or dev)"
        )
    result = report(
        annotated,
        _description(run),
        len(run.predictions) - len(annotated),
        run.scores is not None,
        max(0, args.show),
    )
    output.write_text(page(result), encoding="utf-8")
    how_to_open = None
    if run.run_id and not args.no_track:
        how_to_open = tracking.attach([output], run.run_id, args.tracking_uri)
    if args.json:
        terminal.print_json(result.to_dict() | {"page": str(output), "run_id": run.run_id})
    else:
        print(visible(text(result), lines=True), f"\nwritten to {output}", sep="\n")
        if how_to_open:
            print(f"see the run: {how_to_open}")
    return 0


def _description(run: FinishedRun) -> dict[str, str]:
    """Returns the description of the run that the report shows."""
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
    """Runs the command; returns its exit code."""
    return terminal.run(errors, parser(), argv)


if __name__ == "__main__":
    raise SystemExit(main())
