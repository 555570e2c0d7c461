"""``nq report``: a page with the questions, figures and errors of a finished run."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from nq.commands import arguments, terminal
from nq.progress import ProgressBar
from nq.text import visible


def parser() -> terminal.Parser:
    parser = terminal.Parser(
        prog="nq report",
        description="Writes an HTML page about a finished run of nq answer: every question with "
        "its passage, the predicted and the expected answer; figures; where answers are lost. Of "
        "several runs of the same questions it compares answers, F1 and speeds. Run nq answer with "
        "--formats nbest to see the n-best lists, with --keep-scores to see all stages of a loss.",
        examples=(
            "nq report",
            "nq report runs/first --against runs/second",
            "nq report runs/first runs/second runs/third",
        ),
    )
    text = "folder that nq answer wrote; default: the last one in runs; all are compared with the "
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN", help=f"{text}first")
    text = "folder of another run of the same questions"
    parser.add_argument("--against", type=Path, metavar="RUN2", help=text)
    text = "the page; default: report.html in RUN, of several runs compare.html in the first"
    parser.add_argument("--output", type=Path, metavar="FILE", help=text)
    parser.add_argument("--data", nargs="+", metavar="FILE", help="the run's data, if it was moved")
    parser.add_argument("--pages", metavar="FOLDER", help="the run's pages, if they were moved")
    text = "the run's model, by folder or name, if it was moved"
    parser.add_argument("--model", metavar="MODEL", help=text)
    arguments.add_common(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    from nq.formats import input_files
    from nq.lab.rows import comparison_table
    from nq.lab.run_page import write_report
    from nq.model.registry import model_folder
    from nq.runs.folder import last_run

    files = input_files.find_files(args.data) if args.data else []
    if len(args.runs) > 1:
        return _compare(args, files)
    folder = args.runs[0] if args.runs else last_run()
    model = model_folder(args.model) if args.model else None
    with ProgressBar("report", "questions") as bar:
        written = write_report(folder, args.output, args.against, files, model, args.pages, bar)
    if args.json:
        terminal.print_json(written.to_dict())
        return 0
    if written.analysis:
        print(visible(str(written.analysis), lines=True))
    if written.comparison:
        print(f"\n{comparison_table(written.comparison)}")
        if written.comparison.standing:
            print(visible(written.comparison.standing))
    print(f"\nwritten to {visible(str(written.page))}")
    return 0


def _compare(args: argparse.Namespace, files: Sequence[str]) -> int:
    if args.against or args.model:
        raise terminal.UsageError("--against and --model are for the report of one RUN")
    from nq.lab.compare import compare_runs

    rows = compare_runs(args.runs, args.output, files, args.pages)
    if args.json:
        terminal.print_json(rows.to_dict())
    else:
        print(f"{rows}\n\nwritten to {visible(str(rows.page))}")
    return 0
