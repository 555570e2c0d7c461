"""``nq ask``: answers questions about one page."""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import sys
from collections.abc import Iterator

from nq.commands import arguments, terminal
from nq.formats import documents, inputs
from nq.formats.fields import LIMITS
from nq.records import Page
from nq.text import one_line, visible

log = logging.getLogger(__name__)

STDIN = "-"
BOLD = ("\033[1m", "\033[0m")
PROMPT, HINT = "question: ", "type a question; Ctrl-D ends"


def parser() -> terminal.Parser:
    """Returns the parser of the command."""
    parser = terminal.Parser(
        prog="nq ask",
        intermixed=True,
        usage="nq ask QUESTION [PAGE] [options]\n       nq ask --interactive PAGE [options]",
        description="Answers a question from one page. PAGE is a text or HTML file, a jsonl file "
        "of NQ records, or - (the default) for text or HTML from standard input.",
        examples=(
            "nq ask 'when was it automated' lighthouse.txt",
            "curl -s https://example.org/page.html | nq ask 'who wrote it' --json",
            "nq ask --interactive lighthouse.html --top 5",
        ),
        notes=arguments.PROFILES_HELP,
    )
    parser.add_argument(
        "words", nargs="*", metavar="QUESTION, PAGE", help="the question in quotes, and a file or -"
    )
    parser.flag(
        "interactive",
        "load model and page once and answer the questions of standard input, one per line",
    )
    parser.add_argument(
        "--record",
        metavar="N|ID",
        help="of a jsonl file: the page of the record with this number (from 1) or example_id",
    )
    top = "runners-up to show (default: 3)"
    parser.add_argument("--top", type=arguments.count, default=3, metavar="N", help=top)
    arguments.add_profile(parser, reader=True)
    arguments.add_model(parser)
    arguments.add_second_model(parser)
    arguments.add_windows(parser)
    arguments.add_common(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Runs the command."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    count = len(args.words)
    if args.interactive and (count != 1 or args.words[0] == STDIN):
        raise terminal.UsageError(
            "--interactive reads questions from standard input, so give it a page in a file "
            "and nothing else"
        )
    if not 1 <= count <= 2:
        raise terminal.UsageError(
            f"expected a question in quotes and a page, found {count} arguments"
        )
    question = None if args.interactive else one_line(args.words[0])
    if question == "":
        raise terminal.UsageError("the question is empty")
    path = args.words[-1] if args.interactive or count == 2 else STDIN
    if sys.stdin is None and (question is None or path == STDIN):
        raise terminal.UsageError("standard input is closed; give a question and a file")
    page = _read_page(path, args.record)
    from nq.model.spec import mention_decision
    from nq.reader import BATCH_SIZE, Reader, checked_scorer
    from nq.report.answer import MARKS, render

    model = arguments.find_model(args)
    spec = checked_scorer(model, args.profile, BATCH_SIZE)
    with Reader(spec) as reader:
        mention_decision(model)
        unread = reader.unread_blocks(page)
        if unread:
            log.warning(
                "the last %d blocks of the page are not read; a higher --max-contexts than %d "
                "reads more",
                unread,
                model.windows.max_blocks + 1,
            )
        for text in _questions() if question is None else [question]:
            answer = reader.ask(text, page, args.top)
            if args.json:
                terminal.print_json(answer.to_dict())
            else:
                if args.interactive and not sys.stdin.isatty():
                    print(f"> {visible(text)}\n")
                print(render(answer, BOLD if sys.stdout.isatty() else MARKS), end="\n\n")
            sys.stdout.flush()
    return 0


def _read_page(path: str, record: str | None) -> Page:
    if path != STDIN:
        return inputs.read_page(path, record)
    if record is not None:
        raise terminal.UsageError("--record is for a jsonl file, not for standard input")
    if sys.stdin.isatty():
        log.info("reading the page from standard input; Ctrl-D ends it")
    return documents.decode_page(sys.stdin.buffer.read(LIMITS.bytes + 1), "standard input")


def _questions() -> Iterator[str]:
    """Yields the questions of standard input, one per line, until it ends.

    At a terminal they are typed after a prompt, with editing and history; Ctrl-D ends them.
    """
    typed = sys.stdin.isatty()
    if typed:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 - input() uses it
    while True:
        if typed and sys.stdout.isatty():
            try:
                line = input(PROMPT) + "\n"
            except EOFError:
                line = ""
        else:  # the prompt goes to stderr, because stdout is for the answers
            print(PROMPT if typed else "", end="", file=sys.stderr, flush=True)
            line = sys.stdin.readline()
        if not line:
            break
        if question := one_line(line):
            yield question
        else:
            print(f"nq: {HINT}", file=sys.stderr)
    if typed:
        print(file=sys.stderr)
