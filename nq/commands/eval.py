"""``nq eval``: scores predictions against gold in any input format.

Gold in NQ's own formats is read as the official evaluation reads it; other gold as ``nq answer``
reads it, with exact match and F1 where it is text.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from nq.evaluation import nq_eval
from nq.formats.input_files import matching_files


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command."""
    parser = nq_eval.parser()
    parser.prog = "nq eval"
    parser.add_argument("--pages", metavar="FOLDER", help="folder of the pages of gold questions")
    parser.add_argument("--page_column", metavar="NAME", help="field that names the page")
    return parser


def read(args: argparse.Namespace) -> nq_eval.Inputs:
    """Reads gold and predictions."""
    from nq.errors import Error
    from nq.evaluation.evaluate import read_scorable
    from nq.formats import inputs
    from nq.formats.questions import list_pages

    paths = matching_files(args.gold_path)
    if all(map(inputs.is_official, paths)):
        return nq_eval.read(args)
    try:
        pages = None if args.pages is None else list_pages(args.pages, args.page_column)
    except Error as error:
        raise ValueError(str(error)) from error
    return read_scorable(paths, args.predictions_path, pages)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    return nq_eval.main(argv, parser, read)
