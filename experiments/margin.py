"""Measures what pruning saves and which answers it changes, for several values of ``NEAR``.

    python -m experiments.margin --data dev.jsonl.gz --max-seq-length 512 --doc-stride 128

The command scores every window once. Then it tells for each margin (``near`` of
``nq.inference.prune.NEAR``) which windows ``prune`` would have computed, which answers would have
changed, and by how much F1 would have, where there is gold. With ``--output`` the scores are kept:
an interrupted run resumes, and other margins need no computation.
"""

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from experiments import command
from experiments.halves import add_half, in_half
from experiments.text_tables import markdown
from nq.commands import arguments, terminal
from nq.config import DecisionConfig, WindowConfig
from nq.errors import Error
from nq.evaluation.evaluate import Evaluation, judge
from nq.formats.input_files import find_files
from nq.formats.outputs import encode_prediction
from nq.inference import prune
from nq.inference.profile import Profile
from nq.inference.scorer import window_scores
from nq.model.spec import ModelSpec
from nq.postprocess.decision import decide
from nq.preprocess.features import features
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.progress import ProgressBar
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


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    arguments.add_data(parser)
    arguments.add_model(parser)
    arguments.add_settings(
        parser, WindowConfig, only=("max_seq_length", "doc_stride"), show_default=False
    )
    kind = arguments.number_in("[0, inf)")
    parser.add_argument("--margins", nargs="+", type=kind, default=MARGINS, metavar="X")
    add_half(parser, default="even")
    text = "optimizations to score all windows under"
    command.add_option(parser, "profile", Profile.parse(DEFAULT_PROFILE), text)
    arguments.add_settings(parser, Compute, ["batch_size"])
    arguments.add_limit(parser)
    text = "keep windows and scores in this folder"
    command.add_option(parser, "output", None, text, **command.KINDS[Path])


def pruned(
    example: Example,
    scores: WindowScores,
    token_map: IntArray,
    decision: DecisionConfig,
    margin: float,
) -> tuple[Prediction, int]:
    """Returns the prediction under ``prune``, and how many windows that computes.

    ``scores`` are those of all windows, and ``token_map`` is ``[W, L]``: the document token of each
    position of each window.
    """

    def look_up(windows: IntArray) -> Columns:
        return {name: getattr(scores, name)[windows] for name in SCORE_COLUMNS}

    every = [slice(0, len(scores))]
    columns = prune.pruned_scores(look_up, token_map, [example], every, decision, margin)
    prediction = decide(example, window_scores(columns), decision).prediction
    return prediction, int(columns[READ].sum())


@dataclass
class Tally:
    """Adds up the predictions for several examples."""

    questions: int = 0
    windows: int = 0
    changed: Counter[str] = field(default_factory=Counter)
    evaluation: Evaluation = field(default_factory=Evaluation)

    def add(self, example: Example, full: Prediction, one: Prediction, windows: int) -> None:
        """Adds the prediction by all windows, and one for which so many were computed."""
        self.questions += 1
        self.windows += windows
        same = one.long == full.long, one.shorts == full.shorts, one.yes_no is full.yes_no
        parts = [part for part, equal in zip(PARTS, same, strict=True) if not equal]
        self.changed.update([*parts, "any"] if parts else [])
        self.evaluation.add(judge(example, encode_prediction(one, example.token_bytes)))

    def shares(self) -> dict[str, float]:
        """Returns the share of the answers that changed, by part, and in any part."""
        return {name: self.changed[name] / self.questions for name in (*PARTS, "any")}

    def f1(self) -> dict[str, float]:
        """Returns each F1; empty without gold."""
        metrics = self.evaluation.metrics()
        return {name: metrics[key] for name, key in F1.items() if metrics}


def measure(
    scoring: Scoring, model: ModelSpec, half: str, margins: Iterable[float]
) -> dict[str, Any]:
    """Returns what every margin computes and changes; all examples of the job are scored.

    Returns:
        The numbers of ``questions`` and ``windows``, the ``f1`` with all windows, and for each of
        the ``margins`` the share of windows that are computed (``read``), the shares of answers
        that ``changed``, and the change of ``f1``.

    Raises:
        Error: there are no pages in that half.
    """
    tokenizer = load_tokenizer(model.folder, model.windows.compat)
    full, tallies = Tally(), {margin: Tally() for margin in sorted(set(margins))}
    for example, scores in scoring:
        if isinstance(scores, WindowScores) and in_half(example.example_id, half):
            page = example, scores, features(example, tokenizer, model.windows).token_map
            prediction = decide(example, scores, model.decision).prediction
            full.add(example, prediction, prediction, len(scores))
            for margin, tally in tallies.items():
                tally.add(example, prediction, *pruned(*page, model.decision, margin))
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


def table(result: Mapping[str, Any]) -> str:
    """Returns the result as a Markdown table, with a line about all windows."""
    f1 = ", ".join(f"{name} {value:.3f}" for name, value in result["f1"].items())
    shares = (f"{name} changed, %" for name in (*PARTS, "any"))
    points = (f"{name} F1, points" for name in F1)
    cells = (
        (
            *(f"{row['margin']:g}", f"{100 * row['read']:.1f}"),
            *(f"{100 * share:.1f}" for share in row["changed"].values()),
            *(f"{100 * row['f1'][name]:+.2f}" if row["f1"] else "" for name in F1),
        )
        for row in result["margins"]
    )
    head = ("margin", "windows, %", *shares, *points)
    return (
        f"{result['questions']} questions, {result['windows']} windows, F1 with all windows: "
        f"{f1 or 'unknown, the data have no annotations'}\n\n{markdown(head, *cells)}"
    )


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
            ProgressBar("predict", "windows") as bar,
            open_scoring(Plan(job), Clock(), bar) as scoring,
        ):
            result = measure(scoring, job.model, args.half, args.margins)
    return command.show(result, table, args)


main = command.main(compare, options)

if __name__ == "__main__":
    raise SystemExit(main())
