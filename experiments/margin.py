"""Measures what pruning saves and which answers it changes, for several values of ``NEAR``.

    python -m experiments.margin --data dev.jsonl.gz --max-seq-length 512 --doc-stride 128

The command scores every window once. Then it tells for each margin (``near`` of
``nq.inference.prune.NEAR``) which windows ``prune`` would have computed, which answers would have
changed, and by how much F1 would have, where there is gold. With ``--output`` the scores are kept:
an interrupted run resumes, and other margins need no computation.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from experiments.halves import add_half, in_half
from nq.commands import arguments, terminal
from nq.config import DecisionConfig, WindowConfig
from nq.errors import Error
from nq.evaluation.evaluate import Evaluation, judge
from nq.formats.input_files import find_files
from nq.formats.outputs import encode_prediction
from nq.inference import prune
from nq.inference.profile import Profile
from nq.inference.scorer import window_scores
from nq.postprocess.decision import decide
from nq.preprocess.features import features
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.records import (
    READ,
    SCORE_COLUMNS,
    Columns,
    Example,
    IntArray,
    Prediction,
    WindowScores,
)
from nq.runs.config import Compute
from nq.runs.job import Job
from nq.runs.measure import Clock
from nq.runs.plan import Plan, check_job
from nq.runs.scoring import Scoring, open_scoring

MARGINS = (0.0, 1.0, 2.0, prune.NEAR, 3.0, 5.0)
DEFAULT_PROFILE = "mixed+grappler+buckets"
PARTS = ("long", "short", "yes_no")
F1 = {"long": "long-answer-f1", "short": "short-answer-f1", "micro": "micro_f1"}


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.margin",
        description="Measures what each margin of the optimization 'prune' saves and costs.",
    )
    arguments.add_data(parser)
    arguments.add_model(parser)
    arguments.add_settings(
        parser, WindowConfig, only=("max_seq_length", "doc_stride"), show_default=False
    )
    parser.add_argument(
        "--margins",
        nargs="+",
        type=_margin,
        default=MARGINS,
        metavar="X",
        help="to be compared",
    )
    add_half(parser, default="even")
    parser.add_argument(
        "--profile",
        type=arguments.profile,
        default=Profile.parse(DEFAULT_PROFILE),
        metavar="P",
        help=f"optimizations to score all windows under (default: {DEFAULT_PROFILE})",
    )
    arguments.add_settings(parser, Compute, ["batch_size"])
    arguments.add_limit(parser)
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="keep windows and scores in this folder"
    )
    arguments.add_common(parser)
    return parser


def _margin(text: str) -> float:
    value = float(text)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number from 0 on, got {text}")
    return value


@dataclass(frozen=True)
class Page:
    """One example with the scores of all its windows.

    Args:
        example: question and page.
        scores: of all windows.
        token_map: ``[W, L]`` document token of each position of each window.
        decision: how scores become answers.
    """

    example: Example
    scores: WindowScores
    token_map: IntArray
    decision: DecisionConfig

    def predict(self) -> Prediction:
        """Returns the prediction by all windows."""
        return decide(self.example, self.scores, self.decision).prediction

    def predict_pruned(self, margin: float) -> tuple[Prediction, int]:
        """Returns the prediction under ``prune``, and how many windows that computes."""

        def look_up(windows: IntArray) -> Columns:
            return {name: getattr(self.scores, name)[windows] for name in SCORE_COLUMNS}

        columns = prune.pruned_scores(
            look_up,
            self.token_map,
            [self.example],
            [slice(0, len(self.scores))],
            self.decision,
            margin,
        )
        decision = decide(self.example, window_scores(columns), self.decision)
        return decision.prediction, int(columns[READ].sum())


@dataclass
class Tally:
    """Adds up the predictions for several examples."""

    questions: int = 0
    windows: int = 0
    changed: Counter[str] = field(default_factory=Counter)
    evaluation: Evaluation = field(default_factory=Evaluation)

    def add(self, example: Example, pruned: Prediction, full: Prediction, windows: int) -> None:
        """Adds a prediction.

        Args:
            example: question and page.
            pruned: the prediction.
            full: the prediction by all windows.
            windows: how many windows were computed for ``pruned``.
        """
        self.questions += 1
        self.windows += windows
        parts = changed_parts(pruned, full)
        self.changed.update([*parts, "any"] if parts else [])
        self.evaluation.add(judge(example, encode_prediction(pruned, example.token_bytes)))

    def shares(self) -> dict[str, float]:
        """Returns the share of the answers that changed, by part, and in any part."""
        return {name: self.changed[name] / self.questions for name in (*PARTS, "any")}

    def f1(self) -> dict[str, float]:
        """Returns each F1; empty without gold."""
        metrics = self.evaluation.metrics()
        return {name: metrics[key] for name, key in F1.items() if metrics}


def changed_parts(pruned: Prediction, full: Prediction) -> list[str]:
    """Returns the parts of the answer that differ; scores do not count.

    >>> changed_parts(Prediction(1, long_score=0.5), Prediction(1))
    []
    """
    same = (
        pruned.long == full.long,
        pruned.shorts == full.shorts,
        pruned.yes_no is full.yes_no,
    )
    return [part for part, equal in zip(PARTS, same, strict=True) if not equal]


def measure(pages: Iterable[Page], margins: Sequence[float]) -> dict[str, Any]:
    """Returns what every margin computes and changes.

    Args:
        pages: with the scores of all windows.
        margins: values for ``nq.inference.prune.NEAR``.

    Returns:
        The numbers of ``questions`` and ``windows``, the ``f1`` with all windows, and for each of
        the ``margins`` the share of windows that are computed (``read``), the shares of answers
        that ``changed``, and the change of ``f1``.

    Raises:
        Error: there are no pages.
    """
    full, tallies = Tally(), {margin: Tally() for margin in sorted(set(margins))}
    for page in pages:
        prediction = page.predict()
        full.add(page.example, prediction, prediction, len(page.scores))
        for margin, tally in tallies.items():
            pruned, windows = page.predict_pruned(margin)
            tally.add(page.example, pruned, prediction, windows)
    if not full.questions:
        raise Error("no example of that half in the data: give --half all, or more data")
    f1 = full.f1()
    return {
        "questions": full.questions,
        "windows": full.windows,
        "f1": f1,
        "margins": [
            {
                "margin": margin,
                "read": tally.windows / full.windows,
                "changed": tally.shares(),
                "f1": {name: value - f1[name] for name, value in tally.f1().items()},
            }
            for margin, tally in tallies.items()
        ],
    }


def read_pages(job: Job, scoring: Scoring, half: str) -> Iterator[Page]:
    """Yields the examples of one half with their scores; all examples are scored."""
    tokenizer = load_tokenizer(job.model.folder, job.model.windows.compat)
    for example, scores in scoring:
        if isinstance(scores, WindowScores) and in_half(example.example_id, half):
            token_map = features(example, tokenizer, job.model.windows).token_map
            yield Page(example, scores, token_map, job.model.decision)


def table(result: dict[str, Any]) -> str:
    """Returns the result as text."""
    f1 = "   ".join(f"{name} {value:.3f}" for name, value in result["f1"].items())
    lines = [
        f"{result['questions']} questions, {result['windows']} windows",
        f"F1 with all windows: {f1 or 'unknown, the data have no annotations'}",
        "",
        "        windows     answers changed, %           F1 changed, points",
        "margin   read, %    long  short yes/no    any     long  short  micro",
    ]
    for row in result["margins"]:
        changed = "".join(f"{100 * share:7.1f}" for share in row["changed"].values())
        f1 = "".join(f"{100 * row['f1'][name]:+7.2f}" if row["f1"] else f"{'-':>7}" for name in F1)
        lines.append(f"{row['margin']:6g}{100 * row['read']:10.1f} {changed}  {f1}")
    return "\n".join(lines)


def compare(args: argparse.Namespace) -> int:
    """Runs the command."""
    if args.profile.changes.prune:
        raise terminal.UsageError("all windows must be scored: remove prune from --profile")
    temporary = tempfile.TemporaryDirectory() if args.output is None else None
    with temporary or nullcontext(args.output) as folder:
        job = Job(
            find_files(args.data),
            args.model,
            args.profile,
            output=folder,
            limit=args.limit,
            compute=arguments.settings(Compute, args),
        )
        windows = arguments.settings(job.model.windows, args)
        job = replace(job, model=replace(job.model, windows=windows))
        check_job(job)
        with (
            terminal.ProgressBar("predict", "windows") as bar,
            open_scoring(Plan.of(job), Clock(), bar) as scoring,
        ):
            result = measure(read_pages(job, scoring, args.half), args.margins)
    if args.json:
        terminal.print_json(result)
    else:
        print(table(result))
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    return terminal.run(compare, parser(), argv)


if __name__ == "__main__":
    raise SystemExit(main())
