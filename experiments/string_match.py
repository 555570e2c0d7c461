"""Counts the short answers of a finished run that equal the gold text.

    python -m experiments.string_match runs/grappler-0e8ba8e85b

The records must have their answers as texts (``answers``: a list of strings); they are
compared as in the evaluation of SQuAD.
"""

from __future__ import annotations

import argparse
import contextlib
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from experiments import command
from nq.errors import Error
from nq.evaluation.labels import Label
from nq.evaluation.text_match import normalize
from nq.formats import lines
from nq.records import Example, ExampleKey, Span

if TYPE_CHECKING:
    from nq.runs.finished import FinishedRun


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.add_argument("run", type=Path, metavar="RUN_DIR", help="folder that nq answer wrote")


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
    matched = sum(normalize(answer) in map(normalize, texts) for answer, texts in answers)
    result = {
        "questions": len(answers),
        "answered_in_short": sum(bool(answer) for answer, _ in answers),
        "matched": matched,
        "share": matched / len(answers),
    }
    command.print_result(result, args.json)
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


main = command.main(match, options)

if __name__ == "__main__":
    raise SystemExit(main())
