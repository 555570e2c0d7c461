"""``python -m nq.ask``: one question, one page, a readable answer."""

from __future__ import annotations

import argparse
import io
import logging
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from nq.bundle import bundled_model
from nq.commands import arguments, terminal
from nq.config import WindowConfig
from nq.formats import pages
from nq.model.runtime import import_tensorflow
from nq.records import Page
from nq.report.page_text import MARKS
from nq.report.reply import describe, show

if TYPE_CHECKING:
    from nq.reader import Answerer

log = logging.getLogger("nq.ask")  # as __main__ it would not be ours

STDIN = "-"
BOLD = ("\033[1m", "\033[0m")
PROMPT, HINT = "question: ", "type a question; Ctrl-D ends"


class Parser(argparse.ArgumentParser):
    """Takes options between the question and the page, too."""

    def parse_args(self, *arguments: Any, **options: Any) -> Any:
        return self.parse_intermixed_args(*arguments, **options)


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = Parser(
        prog="nq ask",
        usage="nq ask QUESTION [PAGE] [options]\n       nq ask --interactive PAGE [options]",
        description="Answers a question from one page. PAGE is a text or HTML file, a jsonl\n"
        "file of NQ records, or - (the default) for text or HTML from standard input.",
        epilog=arguments.PROFILES_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("asked", nargs="*", metavar="QUESTION, PAGE", help=argparse.SUPPRESS)
    parser.add_argument(
        "--interactive",
        action="store_true",
        help="load model and page once and answer the questions of standard input, one a line",
    )
    parser.add_argument(
        "--record",
        metavar="N|ID",
        help="of a jsonl file: the page of the record with this number (from 1) or example_id",
    )
    parser.add_argument(
        "--top",
        type=terminal.count,
        default=3,
        metavar="N",
        help="runners-up to show (default: 3)",
    )
    arguments.add_profile(parser)
    arguments.add_model(parser)
    windows = parser.add_argument_group("windows; default: what the model folder says")
    terminal.add_settings(windows, WindowConfig, show_default=False)
    terminal.add_common(parser)
    return parser


def ask(args: argparse.Namespace) -> int:
    """Runs the command."""
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):  # a locale may lack what a page is written in
            stream.reconfigure(errors="replace")
    question, path = _asked(args)
    if sys.stdin is None and (question is None or path == STDIN):
        raise terminal.UsageError("standard input is closed; give a question and a file")
    page = _read(path, args.record)
    import_tensorflow()
    from nq.model.checkpoint import load_settings
    from nq.reader import answerer

    model = args.model or bundled_model()
    own = load_settings(model)
    windows = terminal.settings(own.windows, args)
    with answerer(model, args.profile, windows, own.decision) as loaded:
        _warn_of_unread(loaded, page)
        for asked in _questions() if question is None else [question]:
            _reply(loaded, page, asked, args)
    return 0


def _asked(args: argparse.Namespace) -> tuple[str | None, str]:
    """The question, ``None`` if they come from standard input, and the page's file."""
    if args.interactive:
        if len(args.asked) != 1 or args.asked[0] == STDIN:
            raise terminal.UsageError(
                "--interactive reads questions from standard input, so give it a page in a file "
                "and nothing else"
            )
        return None, args.asked[0]
    if not 1 <= len(args.asked) <= 2:
        raise terminal.UsageError(
            f"expected a question in quotes and a page, found {len(args.asked)} arguments"
        )
    question = _clean(args.asked[0])
    if not question:
        raise terminal.UsageError("the question is empty")
    return question, args.asked[1] if len(args.asked) == 2 else STDIN


def _clean(question: str) -> str:
    """One line of valid Unicode."""
    return " ".join(question.encode("utf-8", "replace").decode("utf-8").split())


def _read(path: str, record: str | None) -> Page:
    if path != STDIN:
        return pages.read_page(path, record)
    if record is not None:
        raise terminal.UsageError("--record is for a jsonl file, not for standard input")
    if sys.stdin.isatty():
        log.info("reading the page from standard input; Ctrl-D ends it")
    return pages.decode_page(sys.stdin.buffer.read(), "standard input")


def _warn_of_unread(loaded: Answerer, page: Page) -> None:
    unread = loaded.unread(page.example)
    if unread:
        log.warning(
            "the last %d blocks of the page are not read; a higher --max-contexts than %d reads "
            "more",
            unread,
            loaded.windows.max_contexts,
        )


def _questions() -> Iterator[str]:
    """The questions of standard input, one a line, until it ends."""
    on_terminal = sys.stdin.isatty()
    while True:
        if on_terminal:
            print(PROMPT, end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            if on_terminal:
                print(file=sys.stderr)
            return
        if question := _clean(line):
            yield question
        else:
            print(f"nq: {HINT}", file=sys.stderr)


def _reply(loaded: Answerer, page: Page, question: str, args: argparse.Namespace) -> None:
    reply = loaded.answer(pages.with_question(page, question), args.top + 1)
    if args.json:
        terminal.print_json(describe(page, question, reply, args.top))
    else:
        if args.interactive and not sys.stdin.isatty():
            print(f"> {question}\n")
        print(show(page, reply, args.top, BOLD if sys.stdout.isatty() else MARKS), end="\n\n")
    sys.stdout.flush()


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return terminal.run(ask, parser(), argv)


if __name__ == "__main__":
    raise SystemExit(main())
