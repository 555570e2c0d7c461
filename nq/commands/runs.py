"""``nq runs``: compares the recorded runs of an experiment."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from nq.commands import arguments, terminal
from nq.text import visible

SORTS = (
    *("total_s", "windows_per_s", "micro_f1", "changed", "peak_mb"),
    *("profile", "name", "started"),
)


def parser() -> terminal.Parser:
    """Returns the parser of the command."""
    parser = terminal.Parser(
        prog="nq runs",
        description="Prints the runs that MLflow has recorded as a table: time, speed, quality, "
        "changed answers and memory. The best comes first.",
        examples=(
            "nq runs",
            "nq runs --experiment profiles --sort micro_f1",
            "nq runs --html runs.html",
        ),
    )
    parser.add_argument(
        "--sort",
        choices=SORTS,
        default="total_s",
        help="the figure to sort by (default: total_s, the time of the run)",
    )
    parser.add_argument(
        "--html",
        type=Path,
        metavar="FILE",
        help="write one HTML page with the table and a picture of time against F1",
    )
    arguments.add_tracking(parser, records=False)
    arguments.add_common(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Runs the command."""
    from nq.report import comparison
    from nq.storage import PAGE_MARK, atomic_write, check_output_file

    if args.html is not None:
        check_output_file(args.html, mark=PAGE_MARK)
    history = comparison.read_history(args.tracking_uri, args.experiment, args.sort)
    if args.html is not None:
        args.html.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(args.html) as file:
            file.write(comparison.page(history).encode())
    if args.json:
        terminal.print_json(asdict(history))
        return 0
    print(comparison.table(history))
    if args.html is not None:
        print(visible(f"written to {args.html}"))
    return 0
