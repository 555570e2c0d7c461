"""Counts the short answers that equal the gold text.

    python -m experiments.string_match --data pages.jsonl.gz --profile mixed+buckets+openvino

The records must have their answers as texts (``answers``: a list of strings); they are
compared as in the evaluation of SQuAD.
"""

import argparse
import contextlib
from itertools import islice

import orjson

from experiments import Values, command
from experiments.command import markdown
from experiments.scored import answered
from nq.errors import Error
from nq.evaluation.text_match import normalize
from nq.formats import lines
from nq.records import ExampleKey
from nq.runs.job import Job


def match(args: argparse.Namespace) -> int:
    """Runs the command."""
    with answered(Job(args.data, args.model, args.profile, limit=args.limit)) as finished:
        gold, answers = _gold(finished.job), []
        for source, example in finished.sources():
            if texts := gold.get(source.key):
                spans = finished.predictions[example.example_id].shorts
                answers.append((" ".join(map(example.text, spans)), texts))
    if not answers:
        raise Error("no record of the data has 'answers' to compare with")
    matched = sum(normalize(answer) in map(normalize, texts) for answer, texts in answers)
    result = {
        "questions": len(answers),
        "answered_in_short": sum(bool(answer) for answer, _ in answers),
        "matched": matched,
        "share": matched / len(answers),
    }
    return command.show(result, args, table)


def _gold(job: Job) -> dict[ExampleKey, list[str]]:
    """Returns the answers of the records that have them as texts, by file number and line."""
    gold: dict[ExampleKey, list[str]] = {}
    for index, path in enumerate(job.files):
        for number, line in islice(lines.rows(path), job.limit):
            if isinstance(line, bytes) and b'"answers"' in line:
                with contextlib.suppress(ValueError, AttributeError):  # a dead letter
                    answers = orjson.loads(line).get("answers")
                    if isinstance(answers, list) and all(isinstance(t, str) for t in answers):
                        gold[index, number] = answers
    return gold


def table(result: Values) -> str:
    """Returns the result as a Markdown table."""
    counts = (result[name] for name in ("questions", "answered_in_short", "matched"))
    return markdown(
        ("questions", "with a short answer", "equal to the gold text"), [*map(str, counts)]
    )


main = command.main(match, command.add_answering)
