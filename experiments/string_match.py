"""Counts the short answers of a finished run that equal the gold text.

    python -m experiments.string_match runs/grappler-0e8ba8e85b

The records must have their answers as texts (``answers``: a list of strings). Before texts are
compared, upper case, punctuation, articles and repeated blanks are removed, as in the evaluation of
SQuAD (Rajpurkar et al. 2016).
"""

from __future__ import annotations

import argparse
import contextlib
import re
import string
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from nq.commands import arguments, terminal
from nq.errors import Error
from nq.evaluation.labels import Label
from nq.formats import lines
from nq.records import Example, ExampleKey, Span

if TYPE_CHECKING:
    from nq.runs.finished import FinishedRun

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans(dict.fromkeys(string.punctuation, ""))


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.string_match",
        description="Counts the short answers of a finished run that equal one of the record's "
        "'answers'.",
    )
    parser.add_argument("run", type=Path, metavar="RUN_DIR", help="folder that nq answer wrote")
    arguments.add_common(parser)
    return parser


def normalized(text: str) -> str:
    """Returns the part of a text that is compared.

    >>> normalized("The  U.S. , 1990"), normalized("u.s. 1990")
    ('us 1990', 'us 1990')
    """
    plain = text.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", plain).split())


def match(args: argparse.Namespace) -> int:
    """Runs the command."""
    from nq.runs.finished import FinishedRun

    run = FinishedRun(args.run)
    gold = _gold(run)
    answers = [
        (answer_text(example, run.predictions[example.example_id]), gold[key])
        for key, example in run.examples()
        if key in gold
    ]
    if not answers:
        raise Error(f"no record of the data of {args.run} has 'answers' to compare with")
    matched = sum(normalized(answer) in map(normalized, texts) for answer, texts in answers)
    result = {
        "questions": len(answers),
        "answered_in_short": sum(bool(answer) for answer, _ in answers),
        "matched": matched,
        "share": matched / len(answers),
    }
    terminal.print_result(result, args.json)
    return 0


def _gold(run: FinishedRun) -> dict[ExampleKey, list[str]]:
    """Returns the answers of the records that have them as texts, by file number and line."""
    gold: dict[ExampleKey, list[str]] = {}
    for index, path in enumerate(run.job.files):
        for number, line in islice(lines.rows(path), run.job.limit):
            if isinstance(line, bytes) and b'"answers"' in line:
                with contextlib.suppress(ValueError, AttributeError):  # a dead letter
                    answers = orjson.loads(line).get("answers")
                    if _are_texts(answers):
                        gold[index, number] = answers
    return gold


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 0 and all(isinstance(t, str) for t in value)


def answer_text(example: Example, label: Label) -> str:
    """Returns the short answer in words, empty if there is none."""
    return " ".join(example.text(Span(*span.tokens)) for span in label.short_spans)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    return terminal.run(match, parser(), argv)


if __name__ == "__main__":
    raise SystemExit(main())
