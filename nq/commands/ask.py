"""``nq ask``: answers questions about a page, or about the pages of several documents."""

import argparse
import contextlib
import io
import logging
import os
import shlex
import shutil
import stat
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from nq.answers import CANNOT_TELL, Answer, Page
from nq.commands import arguments, terminal
from nq.config import WindowConfig
from nq.formats import documents, inputs
from nq.formats.csv_rows import SUFFIXES, columns
from nq.formats.fields import LIMITS
from nq.formats.input_files import SHARD_SUFFIXES, is_stream
from nq.formats.own_data import QUESTION, files_in
from nq.page_process import PageProcess
from nq.progress import ProgressBars
from nq.records import Span
from nq.text import one_line, truncate, visible

log = logging.getLogger(__name__)

STDIN = "-"
COLOUR = ("\033[1;32m", "\033[0m")  # bold and green
READ_S = 60.0  # of the processor for a document: some thousand pages of PDF
MAX_SKIPPED = 3  # documents whose reason for being skipped is logged
MARKS = ("»", "«")
MAX_WIDTH = 100
MAX_LINES = 16
INDENT = "  "
PROMPT = "question: "
HINT = "type a question; Ctrl-D ends"


def parser() -> terminal.Parser:
    parser = terminal.Parser(
        prog="nq ask",
        usage="nq ask QUESTION [FILE…] [options]\n       nq ask --interactive FILE… [options]",
        description="Answers a question from a document: a file of text, HTML, Markdown, PDF or "
        "Word (docx), a jsonl file of NQ records, or - (the default) for standard input. Of "
        "several documents, and of those in a folder, the best blocks are read. The percentages "
        "of the bundled models were fitted to Wikipedia; nq tune fits them to your own questions.",
        examples=(
            "nq ask 'when was it automated' lighthouse.txt",
            "curl -s https://example.org/page.html | nq ask 'who wrote it' --json",
            "nq ask --interactive lighthouse.html --top 5",
            "nq ask 'when was it automated' reports/ notes.md",
        ),
        notes=arguments.PROFILES_HELP,
    )
    text = "the question in quotes, and files, folders or -"
    parser.add_argument("words", nargs="*", metavar="QUESTION, FILE", help=text)
    text = "load model and page once and answer the questions of standard input, one per line"
    parser.flag("interactive", text)
    text = "of a jsonl file: the page of the record with this number (from 1) or example_id"
    parser.add_argument("--record", metavar="N|ID", help=text)
    text = "runners-up to show (default: 3)"
    parser.add_argument(
        "--top",
        type=arguments.count_from_0,
        default=3,
        metavar="N",
        help=text,
    )
    text = "encode all blocks of several documents, once, however long it takes (by default if "
    text += "that is at most a minute)"
    parser.flag("index", text)
    arguments.add_profile(parser, reader=True)
    arguments.add_model(parser)
    arguments.add_ranker(parser)
    arguments.add_set(parser, WindowConfig)
    arguments.add_common(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    with contextlib.closing(PageProcess(READ_S)) as process:
        return _ask(args, process)


def _ask(args: argparse.Namespace, process: PageProcess) -> int:
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    question, files = _question_and_files(args)
    page = _read_page(files[0], args.record, process) if len(files) == 1 else None
    if page is None and args.record is not None:
        raise terminal.UsageError("--record is for a single jsonl file")
    from nq.collection import select_page
    from nq.reader import BATCH_SIZE, Reader, checked_scorer

    model = arguments.open_model(args)
    if args.index and not model.parts[0].config.is_dual_encoder:
        raise terminal.UsageError(
            f"--index is for a dual encoder, and {model.parts[0].name} is none: leave it out, or "
            "give one as --ranker"
        )
    scorer = checked_scorer(model, args.profile, BATCH_SIZE)
    spec = replace(scorer, keeps_vectors=True)

    def read(path: Path) -> Page:
        return process.read(str(path), inputs.read_page, str(path))

    with Reader(spec, makes_index=args.index) as reader:
        for text in _questions() if question is None else [question]:
            best = page
            if best is None:
                paths = list(map(Path, files))
                with ProgressBars() as bars:
                    best = select_page(text, paths, read, reader.windows, True, bars, reader.index)
            answer = reader.ask(text, best, args.top)
            _mention_unread(answer, len(files))
            if args.json:
                terminal.print_json(answer.to_dict())
            else:
                if args.interactive and not sys.stdin.isatty():
                    print(f"> {visible(text)}\n")
                marks = COLOUR if _has_colours() else MARKS
                print(render(answer, marks, cite=len(files) > 1), end="\n\n")
            sys.stdout.flush()
    return 0


def _question_and_files(args: argparse.Namespace) -> tuple[str | None, list[str]]:
    """Returns the question, ``None`` with ``--interactive``, and the documents, each once."""
    words: list[str] = args.words
    question: str | None = one_line(words[0]) if words else ""
    paths = words[1:] or [STDIN]
    if args.interactive:
        question = None
        paths = words
    problem = ""
    exists = os.path.exists  # not Path.exists, which raises for a long question
    url = next((path for path in paths if "://" in path and not exists(path)), "")
    if args.interactive and (not words or STDIN in words):
        problem = "--interactive reads questions from standard input, so give it pages in files"
    elif not words:
        problem = "expected a question in quotes and a page, found 0 arguments"
    elif question == "":
        problem = "the question is empty"
    elif question and exists(words[0]) and not any(map(exists, paths)):
        problem = f"{question} is a file: give the question first, in quotes"
        if words[0].endswith((*SHARD_SUFFIXES, *SUFFIXES)):
            problem += f"; nq answer --data {shlex.quote(question)} answers the questions in it"
    elif url:
        problem = f"{url} is a URL, which is not fetched: save its page, and give that file"
    elif STDIN in paths and len(paths) > 1:
        problem = "standard input is one page: give it alone, or only files"
    elif sys.stdin is None and (question is None or paths == [STDIN]):
        problem = "standard input is closed; give a question and a file"
    if problem:
        raise terminal.UsageError(problem)
    files = list[str]()
    for path in paths:
        is_folder = path != STDIN and stat.S_ISDIR(Path(path).stat().st_mode)
        files += files_in(path) if is_folder else [path]
    return question, list(dict.fromkeys(files))


def _mention_unread(answer: Answer, n_files: int) -> None:
    """Logs skipped documents and unread blocks."""
    if answer.skipped:
        text = "; ".join(answer.skipped[:MAX_SKIPPED])
        more = len(answer.skipped) - MAX_SKIPPED
        if more > 0:
            text += f"; and {more} more, which --json names"
        counts = f"{len(answer.skipped)} of {n_files} documents"
        log.warning("%s cannot be read: %s", counts, text)
    if answer.unread_blocks:
        level = logging.WARNING
        which = "the last of the page"
        if n_files > 1:
            level = logging.INFO
            which = "those that rank lowest for the question"
        text = "%d blocks were not read, %s; --set max_contexts=N reads more"
        log.log(level, text, answer.unread_blocks, which)


def _has_colours() -> bool:
    """Returns whether standard output is a terminal that shows colours (https://no-color.org)."""
    is_wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"
    return is_wanted and sys.stdout.isatty()


def _read_page(path: str, record: str | None, process: PageProcess) -> Page:
    if path == STDIN:
        if record is not None:
            raise terminal.UsageError("--record is for a jsonl file, not for standard input")
        if sys.stdin.isatty():
            log.info("reading the page from standard input; Ctrl-D ends it")
        data = sys.stdin.buffer.read(LIMITS.document_bytes + 1)
        name = "standard input"
        return process.read(name, documents.decode_page, data, name)
    is_jsonl = path.endswith(SHARD_SUFFIXES)
    is_table = path.endswith(SUFFIXES)
    if not (record or is_jsonl or is_table or is_stream(path)):
        return process.read(path, inputs.read_page, path)
    page = inputs.read_page(path, record)
    if is_jsonl and not record and inputs.count_records(path, 2) > 1:
        advice = "--record N takes another, nq answer --data answers all questions"
        log.info(
            "%s has several records, and the page of the first is read: %s",
            path,
            advice,
        )
    if is_table and QUESTION in columns(path):
        advice = "nq answer --data answers them"
        log.warning(
            "%s is a table of questions, and is read as a page: %s",
            path,
            advice,
        )
    return page


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


def render(answer: Answer, marks: Sequence[str] = MARKS, cite: bool = False) -> str:
    """Returns the answer, the block that contains it, and the alternatives, as text.

    ``marks`` are put around the short answer in its block. With ``cite`` the documents are named.
    """
    parts = ["no answer"]
    if answer.answered:
        text = answer.text or (CANNOT_TELL if answer.asks_yes_no else "no short answer")
        score = "" if answer.score is None else f" (score {answer.score:.1f})"
        parts = [visible(text) + _in_brackets(answer.short_probability) + score]
    if answer.long_span:
        source = _source(answer, cite)
        where = f"found in {source}".rstrip() + _in_brackets(answer.long_probability)
        parts.append(f"{where}:\n{_block(answer, answer.long_span, marks)}")
    if answer.alternatives:
        title = "runners-up" if answer.answered else "best guesses"
        rows = "\n".join(_row(other, cite) for other in answer.alternatives)
        parts.append(f"{title}:\n{rows}")
    return "\n\n".join(parts)


def _percent(probability: float | None) -> str:
    """Returns a probability in percent that is never 0 or 100.

    >>> _percent(0.834), _percent(0.001), _percent(0.9999)
    ('83%', '<1%', '>99%')
    """
    if probability is None:
        return ""
    if probability < 0.01:
        return "<1%"
    return ">99%" if probability > 0.99 else f"{probability:.0%}"


def _in_brackets(probability: float | None) -> str:
    return "" if probability is None else f" ({_percent(probability)})"


def _source(answer: Answer, cite: bool) -> str:
    """Returns document and page of an answer, as far as they tell it from others."""
    parts = [visible(answer.page.name)] if cite else []
    if answer.long_span:
        number = answer.page.citation(answer.long_span)["page_number"]
        parts += [] if number is None else [f"page {number}"]
    return ", ".join(parts)


def _row(other: Answer, cite: bool) -> str:
    answer = truncate(visible(other.text or "(no short answer)"), 40)
    source = truncate(_source(other, cite), 40)
    start = f"{_percent(other.short_probability):>6}  "
    start += "".join(f"{part} · " for part in (answer, source) if part)
    block = other.page.text(other.long_span).replace("\n", " ") if other.long_span else ""
    return start + truncate(visible(block), max(_width() - len(start), 20))


def _block(answer: Answer, block: Span, marks: Sequence[str]) -> str:
    """Returns a block with marks in lines of the terminal; of many those around the answer."""
    text = ""
    for part, is_answer in answer.page.marked(block, answer.short_spans):
        shown = visible(part, lines=True)
        text += marks[0] + shown + marks[1] if is_answer else shown
    width = _width() - len(INDENT)
    lines = [row for line in text.split("\n") for row in textwrap.wrap(line, width)]
    marked = next((i for i, row in enumerate(lines) if marks[0] in row), 0)
    first = max(0, min(marked - MAX_LINES // 2, len(lines) - MAX_LINES))
    last = first + MAX_LINES
    before = ["…"] if first > 0 else []
    behind = ["…"] if last < len(lines) else []
    return textwrap.indent("\n".join([*before, *lines[first:last], *behind]), INDENT)


def _width() -> int:
    return min(shutil.get_terminal_size().columns, MAX_WIDTH)
