"""How much of a page has to be read: what each ``NEAR`` of ``refine`` saves and what it costs.

    python -m experiments.margin --data dev.jsonl.gz --max-seq-length 512 --doc-stride 128

Reads every window once; then tells for each margin which windows ``refine`` would have read, which
answers would have become others, and what that does to F1 where there is gold. With ``--output``
the scores are kept: a reading that was interrupted goes on, and other margins take no reading.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nq.bundle import bundled_model
from nq.commands import terminal
from nq.config import DecisionConfig, WindowConfig
from nq.errors import Error
from nq.formats.predictions import encode_prediction
from nq.inference import prune
from nq.inference.profile import Profile
from nq.postprocess.decision import decide
from nq.records import READ, SCORE_COLUMNS, Example, ExampleId, IntArray, Prediction, WindowScores
from nq.runs.scoring import Scorekeeper

if TYPE_CHECKING:
    from nq.runs.scored import Scored

MARGINS = (0.0, 1.0, 2.0, prune.NEAR, 3.0, 5.0)
PARTS = ("long", "short", "yes_no")
F1 = {"long": "long-answer-f1", "short": "short-answer-f1", "micro": "micro_f1"}
REMAINDERS = {"even": 0, "odd": 1}


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.margin",
        description="Tells what each margin of the optimization 'refine' saves and costs.",
    )
    parser.add_argument("--data", nargs="+", required=True, metavar="FILE")
    parser.add_argument("--model", type=Path, metavar="DIR", help="default: the bundled model")
    terminal.add_settings(
        parser, WindowConfig, only=("max_seq_length", "doc_stride"), show_default=False
    )
    parser.add_argument(
        "--margins", nargs="+", type=_margin, default=MARGINS, metavar="X", help="to be compared"
    )
    parser.add_argument(
        "--half",
        choices=(*REMAINDERS, "all"),
        default="even",
        help="which examples count, by their ids; all are read (default: even)",
    )
    parser.add_argument(
        "--profile",
        default="mixed+grappler+buckets",
        help="to read all windows under (default: mixed+grappler+buckets)",
    )
    parser.add_argument("--batch-size", type=terminal.positive, default=16, metavar="N")
    parser.add_argument(
        "--limit", type=terminal.positive, metavar="N", help="the first N records only"
    )
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="keep windows and scores here for another time"
    )
    terminal.add_common(parser)
    return parser


def _margin(text: str) -> float:
    value = float(text)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number from 0 on, got {text}")
    return value


@dataclass(frozen=True)
class Page:
    """One example whose windows were all read: what it would have been without some of them."""

    example: Example
    scores: WindowScores
    token_map: IntArray
    decision: DecisionConfig
    _decided: dict[bytes, Prediction] = field(default_factory=dict)

    def decided(self) -> Prediction:
        """The prediction by all windows."""
        return decide(self.example, self.scores, self.decision)

    def refined(self, margin: float) -> tuple[Prediction, int]:
        """The prediction under ``refine``, and how many windows it rests on."""

        def look_up(windows: IntArray) -> dict[str, np.ndarray[Any, Any]]:
            return {name: getattr(self.scores, name)[windows] for name in SCORE_COLUMNS}

        everything = [slice(0, len(self.scores))]
        columns = prune.read(
            look_up,
            self.token_map,
            [self.example],
            everything,
            self.decision,
            prune.levels(margin),
        )
        read = columns.pop(READ)
        key = read.tobytes()
        if key not in self._decided:
            self._decided[key] = decide(self.example, WindowScores(**columns), self.decision)
        return self._decided[key], int(read.sum())


@dataclass
class Tally:
    """What is counted of one way to read."""

    questions: int = 0
    windows: int = 0
    changed: Counter[str] = field(default_factory=Counter)
    score: Scorekeeper = field(default_factory=Scorekeeper)

    def add(self, example: Example, found: Prediction, whole: Prediction, windows: int) -> None:
        """Takes in a prediction beside that by all windows."""
        self.questions += 1
        self.windows += windows
        others = changes(found, whole)
        self.changed.update(others)
        self.changed["any"] += bool(others)
        self.score.add(example, encode_prediction(found, example.token_bytes))

    def shares(self) -> dict[str, float]:
        """Of all answers, those that changed: in each part, and in any."""
        return {name: self.changed[name] / self.questions for name in (*PARTS, "any")}

    def f1(self) -> dict[str, float]:
        """Empty without gold."""
        metrics = self.score.metrics()
        return {name: metrics[key] for name, key in F1.items() if metrics}


def changes(found: Prediction, whole: Prediction) -> list[str]:
    """Which parts of the answer are others; scores do not count.

    >>> changes(Prediction(1, long_score=0.5), Prediction(1))
    []
    """
    same = (
        found.long == whole.long,
        found.shorts == whole.shorts,
        found.yes_no is whole.yes_no,
    )
    return [part for part, equal in zip(PARTS, same, strict=True) if not equal]


def measure(pages: Iterable[Page], margins: Sequence[float]) -> dict[str, Any]:
    """What every margin reads and changes.

    Args:
        pages: whose windows were all read.
        margins: ``near`` of ``nq.inference.prune.read``.

    Returns:
        How many ``questions`` and ``windows``, the ``f1`` of reading them all, and for each of
        the ``margins`` the shares of windows read and of answers changed, and what it adds to F1.
    """
    plain, tallies = Tally(), {margin: Tally() for margin in sorted(set(margins))}
    for page in pages:
        whole = page.decided()
        plain.add(page.example, whole, whole, len(page.scores))
        for margin, tally in tallies.items():
            found, windows = page.refined(margin)
            tally.add(page.example, found, whole, windows)
    if not plain.questions:
        raise Error("no example of that half in the data; give --half all, or more data")
    f1 = plain.f1()
    return {
        "questions": plain.questions,
        "windows": plain.windows,
        "f1": f1,
        "margins": [
            {
                "margin": margin,
                "read": tally.windows / plain.windows,
                "changed": tally.shares(),
                "f1": {name: value - f1[name] for name, value in tally.f1().items()},
            }
            for margin, tally in tallies.items()
        ],
    }


def in_half(example_id: ExampleId, half: str) -> bool:
    """Whether an example counts; ids that are no numbers are in no half.

    >>> in_half(4, "even"), in_half(4, "odd"), in_half("a", "odd"), in_half("a", "all")
    (True, False, False, True)
    """
    return half == "all" or (isinstance(example_id, int) and example_id % 2 == REMAINDERS[half])


def read_pages(scored: Scored, half: str, on_page: Callable[[int, int], None]) -> Iterator[Page]:
    """The examples of a half with their scores.

    Args:
        scored: all of them.
        half: ``even``, ``odd`` or ``all``.
        on_page: told of each example that is done, and how many there are.
    """
    from nq.preprocess.features import features
    from nq.preprocess.tokenizers.load import load_tokenizer

    job = scored.job
    tokenizer = load_tokenizer(job.model, job.windows.compat)
    for example, scores in scored:
        if in_half(example.example_id, half):
            token_map = features(example, tokenizer, job.windows).token_map
            yield Page(example, scores, token_map, job.decision)
        on_page(1, scored.examples)


def table(result: dict[str, Any]) -> str:
    """The result as a person reads it."""
    whole = "   ".join(f"{name} {f1:.3f}" for name, f1 in result["f1"].items())
    lines = [
        f"{result['questions']} questions, {result['windows']} windows",
        f"F1 if all are read: {whole or 'not known, the data have no annotations'}",
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
    profile = Profile.parse(args.profile)
    if profile.changes.refine:
        raise terminal.UsageError("every window is to be read: leave refine out of --profile")
    from nq.formats import inputs
    from nq.model.checkpoint import load_settings
    from nq.runs.job import Job, Report
    from nq.runs.scored import score_windows

    model = args.model or bundled_model()
    own = load_settings(model)
    windows = terminal.settings(own.windows, args)
    files = tuple(inputs.find_files(args.data))
    with _folder(args.output) as folder:
        job = Job(
            files, model, profile, windows, own.decision, args.batch_size, folder, limit=args.limit
        )
        with (
            terminal.bar("predict", "windows") as bar,
            score_windows(job, Report(args.profile, folder), bar) as scored,
            terminal.bar("compare", "pages") as compared,
        ):
            result = measure(read_pages(scored, args.half, compared), args.margins)
    if args.json:
        terminal.print_json(result)
    else:
        print(table(result))
    return 0


@contextlib.contextmanager
def _folder(output: Path | None) -> Iterator[Path]:
    """Where windows and scores lie: for good, or for a while."""
    if output is not None:
        yield output
        return
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return terminal.run(compare, parser(), argv)


if __name__ == "__main__":
    raise SystemExit(main())
