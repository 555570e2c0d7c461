"""``python -m experiments.string_match RUN_DIR``: how many short answers read like the gold.

For data whose records carry their answers as texts (``answers``: a list of strings). Before they
are compared, texts lose upper case, punctuation, articles and double blanks, as in SQuAD's
evaluation (Rajpurkar et al. 2016).
"""

from __future__ import annotations

import argparse
import re
import string
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import orjson

from experiments.errors.finished import Finished, read_finished
from nq.commands import terminal
from nq.errors import Error
from nq.evaluation import labels
from nq.formats import inputs
from nq.formats.fields import RecordError
from nq.records import Example, Span
from nq.runs.examples import answered_examples

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans(dict.fromkeys(string.punctuation, ""))


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.string_match",
        description="The share of short answers of a finished run that read like one of the "
        "record's 'answers'.",
    )
    parser.add_argument("run", type=Path, metavar="RUN_DIR", help="folder that nq answer wrote")
    terminal.add_common(parser)
    return parser


def normalized(text: str) -> str:
    """What is compared.

    >>> normalized("The  U.S. , 1990"), normalized("u.s. 1990")
    ('us 1990', 'us 1990')
    """
    plain = text.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", plain).split())


def match(args: argparse.Namespace) -> int:
    """Runs the command."""
    run = read_finished(args.run)
    found = [
        (answer_text(example, run.predictions[example.example_id]), gold)
        for example, gold in with_answers(run)
    ]
    if not found:
        raise Error(f"no record that {args.run} was made from has 'answers' to compare with")
    right = sum(normalized(said) in map(normalized, gold) for said, gold in found)
    result = {
        "questions": len(found),
        "answered_in_short": sum(bool(said) for said, _ in found),
        "matched": right,
        "share": right / len(found),
    }
    terminal.print_result(result, args.json)
    return 0


def with_answers(run: Finished) -> Iterator[tuple[Example, list[str]]]:
    """The examples of a run whose records carry answers as texts."""
    gold: dict[tuple[int, int], list[str]] = {}
    for index, path in enumerate(run.job.files):
        for source, line in inputs.read_lines(path, index, limit=run.job.limit):
            texts = None if isinstance(line, RecordError) else _answers(line)
            if texts:
                gold[index, source.line] = texts
    for source, example in answered_examples(run.job):
        if (source.file_index, source.line) in gold:
            yield example, gold[source.file_index, source.line]


def _answers(line: bytes) -> list[str] | None:
    try:
        texts = orjson.loads(line).get("answers")
    except (ValueError, AttributeError):
        return None
    return texts if isinstance(texts, list) and all(isinstance(t, str) for t in texts) else None


def answer_text(example: Example, label: labels.Label) -> str:
    """The short answer in words, empty where there is none."""
    return " ".join(example.text(Span(s.start_token, s.end_token)) for s in label.short)


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return terminal.run(match, parser(), argv)


if __name__ == "__main__":
    sys.exit(main())
