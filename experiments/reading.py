"""Measures what the scores of a model are worth before any decision is made from them.

    python -m experiments.reading --data dev.jsonl.gz --model MODEL --half even

For each question with a gold short answer, the best-scored span inside the gold block is compared
with the gold texts as in the evaluation of SQuAD (Rajpurkar et al. 2016): exact match, and F1 of
the words. For each question with a gold long answer, the blocks of the page are ranked by their
best span; counted is how often a gold block is the first. Nothing is fitted, so that models before
and after ``nq tune`` are compared alike.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from experiments.halves import add_half, in_half
from experiments.string_match import normalized
from nq.commands import arguments, terminal
from nq.config import WindowConfig
from nq.errors import Error
from nq.postprocess.blocks import block_of_token
from nq.postprocess.fit import gold_longs
from nq.postprocess.spans import pairs
from nq.records import Example, Span, WindowScores
from nq.runs.finished import read_run
from nq.runs.job import Job
from nq.runs.run import run


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.reading",
        description="Measures exact match and F1 inside the gold block, and the rank of that "
        "block among all blocks of the page.",
        epilog=arguments.PROFILES_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    arguments.add_data(parser, note=" of annotated data")
    arguments.add_model(parser)
    arguments.add_profile(parser)
    arguments.add_limit(parser)
    arguments.add_settings(parser, WindowConfig)
    add_half(parser, default="even")
    arguments.add_common(parser)
    return parser


@dataclass(frozen=True)
class Reading:
    """What the scores of one page are worth.

    Args:
        exact: whether the best span in the gold block equals a gold short answer; ``None`` without
            a gold short answer of words.
        f1: the largest F1 of its words and those of a gold short answer, 0 to 1.
        first: whether a gold block has the best span of the page.
    """

    exact: bool | None
    f1: float
    first: bool


def read(example: Example, scores: WindowScores, max_answer_length: int) -> Reading | None:
    """Returns what the scores of an example are worth; ``None`` without a gold long answer."""
    gold = gold_longs(example)
    if not gold:
        return None
    spans = pairs(scores, max_answer_length)
    of_token = block_of_token(example)
    first, last = of_token[spans.start_doc], of_token[spans.end_doc]
    is_gold = np.array([c.span in gold for c in example.candidates] + [False])
    inside = (first == last) & (first >= 0)
    best = int(np.argmax(inside)) if inside.any() else -1
    found = np.flatnonzero(inside & is_gold[first])
    answer = example.text(spans.span(int(found[0]))) if len(found) else ""
    texts = [_text(example, a.shorts) for a in example.annotations or () if a.shorts]
    if len(texts) < min(2, len(example.annotations or ())):
        texts = []
    return Reading(
        normalized(answer) in map(normalized, texts) if texts else None,
        max((word_f1(answer, text) for text in texts), default=0.0),
        best >= 0 and bool(is_gold[first[best]]),
    )


def _text(example: Example, spans: Sequence[Span]) -> str:
    return " ".join(map(example.text, spans))


def word_f1(answer: str, gold: str) -> float:
    """Returns SQuAD's F1 of the words of two texts.

    >>> word_f1("the 42 kilometers", "42"), word_f1("yes", "no")
    (0.6666666666666666, 0.0)
    """
    words, expected = Counter(normalized(answer).split()), Counter(normalized(gold).split())
    common = (words & expected).total()
    return 2 * common / (words.total() + expected.total()) if common else 0.0


def measure(args: argparse.Namespace) -> int:
    """Runs the command."""
    job = Job(args.data, args.model, args.profile, limit=args.limit, keep_scores=True)
    windows = arguments.window_settings(args, job.model.folder)
    job = replace(job, model=replace(job.model, windows=windows))
    with tempfile.TemporaryDirectory() as folder:
        with terminal.ProgressBar("read", "windows") as bar:
            finished = run(replace(job, root=Path(folder)), progress=bar)
        readings = list(_readings(finished.folder, args.half))
    if not readings:
        raise Error(f"the half {args.half!r} of the examples has no gold long answers")
    shorts = [r for r in readings if r.exact is not None]
    result = {
        "long_questions": len(readings),
        "gold_block_first": sum(r.first for r in readings) / len(readings),
        "short_questions": len(shorts),
        "exact_match_in_gold_block": sum(bool(r.exact) for r in shorts) / max(1, len(shorts)),
        "f1_in_gold_block": sum(r.f1 for r in shorts) / max(1, len(shorts)),
    }
    terminal.print_result(result, args.json)
    return 0


def _readings(folder: Path, half: str) -> Iterator[Reading]:
    finished = read_run(folder)
    for key, example in finished.examples():
        if finished.scores is not None and in_half(example.example_id, half):
            reading = read(
                example, finished.scores[key], finished.job.model.decision.max_answer_length
            )
            if reading is not None:
                yield reading


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    return terminal.run(measure, parser(), argv)


if __name__ == "__main__":
    raise SystemExit(main())
