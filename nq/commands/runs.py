"""``nq runs``: compares the recorded runs of an experiment."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from nq.commands import arguments, terminal
from nq.text import counted, visible


def parser() -> terminal.Parser:
    """Returns the parser of the command."""
    parser = terminal.Parser(
        prog="nq runs",
        description="Prints the runs that MLflow has recorded as a table: speed, times, memory, "
        "quality and changed answers. The fastest comes first.",
        examples=("nq runs", "nq runs --experiment profiles --html runs.html"),
    )
    parser.add_argument(
        "--html",
        type=Path,
        metavar="FILE",
        help="write one HTML page with the table and charts of speed, F1 and changed answers",
    )
    arguments.add_tracking(parser, records=False)
    arguments.add_common(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Runs the command."""
    from nq.report import comparison
    from nq.report.page import comparison_page
    from nq.storage import PAGE_MARK, atomic_write, check_output_file, hold_marked

    if args.html is not None:
        check_output_file(args.html, mark=PAGE_MARK)
    history = comparison.read_history(args.tracking_uri, args.experiment)
    runs, others = history.runs, f"{history.others} without times or profile are left out"
    title = f"{counted(len(runs), 'run')} with times in the experiment {history.experiment}"
    lines = [title, *([others] if history.others else []), f"in MLflow: {history.how_to_open}"]
    if args.html is not None:
        args.html.parent.mkdir(parents=True, exist_ok=True)
        with hold_marked(args.html.parent), atomic_write(args.html) as file:
            file.write(comparison_page(runs, title, lines))
        lines.append(f"written to {args.html}")
    if args.json:
        terminal.print_json(asdict(history))
    else:
        print(*([comparison.table(runs)] if runs else []), *map(visible, lines), sep="\n")
    return 0
