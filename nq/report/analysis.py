"""Summarizes cases: outcomes, losses by stage, and the calibration of the scores.

The figures are for a page and a terminal.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nq.evaluation.calibration import Bin, expected_calibration_error, reliability
from nq.evaluation.nq_eval import Decision, Verdict
from nq.report.judgments import KINDS, MEANING, STAGES, TRAITS, Case, Stage
from nq.text import grid

COUNTS = tuple(map(str, MEANING))
LOSSES = {
    **dict.fromkeys(
        [("long", Stage.RETRIEVAL), ("short", Stage.RETRIEVAL)], "no passage has the answer"
    ),
    ("long", Stage.CONTEXTS): "it is not among the blocks that are read",
    ("long", Stage.WINDOWS): "no window contains any of it",
    ("long", Stage.POSITIONS): "no two of the best positions of a window are in it",
    ("short", Stage.CONTEXTS): "it is in none of the blocks that are read",
    ("short", Stage.WINDOWS): "no window contains all of it",
    ("short", Stage.POSITIONS): "its start and end are not among the best positions of a window",
}
NEEDS_SCORES = "Answer with --keep-scores to tell losses of the best positions from the decision's."


@dataclass(frozen=True, slots=True)
class Tally:
    """The number of answers with each outcome.

    Precision, recall and F1 are the official ones, but ``None`` where they are undefined.
    """

    right: int
    wrong: int
    extra: int
    missed: int
    null: int
    precision: float | None
    recall: float | None
    f1: float | None

    @property
    def n(self) -> int:
        return self.right + self.wrong + self.extra + self.missed + self.null


@dataclass(frozen=True, slots=True)
class Bound:
    """The upper bound that a stage sets, reached if all later stages were perfect.

    ``lost`` counts the gold answers that the stage loses; ``recall`` is the share of those that
    neither it nor an earlier stage loses, and ``f1`` is that of a precision of 1.
    """

    lost: int
    recall: float
    f1: float


@dataclass(frozen=True, slots=True)
class KindReport(Tally):
    """The report on the answers of one kind, long or short.

    ``bounds`` are those of the stages before the decision; ``decision`` has the gold answers that
    only the decision lost, to another answer or to none. There is no calibration if the scores are
    not probabilities.
    """

    bounds: dict[Stage, Bound]
    decision: dict[str, int]
    expected_calibration_error: float | None
    reliability: list[Bin] | None


@dataclass(frozen=True, slots=True)
class Analysis:
    """The error analysis of annotated examples; ``without_gold`` more have no annotations.

    A loss can be told at ``stages``. ``splits`` has the outcomes by trait, its value, and kind.
    """

    examples: int
    without_gold: int
    stages: tuple[Stage, ...]
    kinds: dict[str, KindReport]
    splits: dict[str, dict[str, dict[str, Tally]]]

    def to_dict(self) -> dict[str, Any]:
        values = asdict(self)
        counts = {"examples": self.examples, "without_gold": self.without_gold}
        return {**counts, **values["kinds"], "splits": values["splits"]}

    def __str__(self) -> str:
        """Returns the outcomes as a table; the page has all figures of the analysis."""
        more = f"; {self.without_gold} more have no annotations" if self.without_gold else ""
        rows = []
        for kind, part in self.kinds.items():
            measures = map(number, (part.precision, part.recall, part.f1))
            rows.append([kind, *(getattr(part, name) for name in COUNTS), *measures])
        lines = grid(["answers", *COUNTS, "precision", "recall", "F1"], rows)
        meanings = "; ".join(f"{outcome}: {meaning}" for outcome, meaning in MEANING.items())
        examples = f"{self.examples} annotated examples{more}"
        return "\n".join(filter(None, [f"{examples}\n", *lines, meanings, self.advice]))

    @property
    def advice(self) -> str:
        """The advice to keep the scores, which some stages need; empty if the run has kept them."""
        return "" if Stage.POSITIONS in self.stages else NEEDS_SCORES

    def loss(self, kind: str, stage: Stage) -> str:
        """Explains in words how a stage lost a gold answer.

        The decision has the losses of the stages that are not known.
        """
        if stage != Stage.DECISION:
            return LOSSES[kind, stage]
        if Stage.POSITIONS in self.stages:
            return "another answer was chosen, or none"
        return "it was not among the best positions, or not chosen"


def number(value: float | None) -> str:
    """Returns a share with three digits, or a dash for ``None``."""
    return "-" if value is None else f"{value:.3f}"


def analyse(
    cases: Sequence[Case], without_gold: int = 0, stages: Sequence[Stage] = STAGES
) -> Analysis:
    """Returns the error analysis of a run."""
    kinds = {kind: _kind_report(cases, kind, stages) for kind in KINDS}
    splits: dict[str, dict[str, dict[str, Tally]]] = {}
    for trait, order in TRAITS.items():
        by_value: dict[str, list[Case]] = defaultdict(list)
        for case in cases:
            by_value[case.traits[trait]].append(case)
        splits[trait] = {
            v: {
                kind: Tally(**tally_fields(c.judgments[kind] for c in by_value[v]))
                for kind in KINDS
            }
            for v in order
            if v in by_value
        }
    return Analysis(len(cases), without_gold, tuple(stages), kinds, splits)


def _kind_report(cases: Sequence[Case], kind: str, stages: Sequence[Stage]) -> KindReport:
    judgments = [case.judgments[kind] for case in cases]
    decided = Counter(j.outcome for j in judgments if j.lost is Stage.DECISION)
    lost = Counter(j.lost for j in judgments)
    n_gold = remaining = sum(j.has_gold for j in judgments)
    bounds: dict[Stage, Bound] = {}
    for stage in stages:
        if stage is not Stage.DECISION:
            remaining -= lost[stage]
            recall = remaining / n_gold if n_gold else 0.0
            bounds[stage] = Bound(lost[stage], recall, 2 * recall / (1 + recall))
    predicted = [j for j in judgments if j.predicted]
    scores = [j.score for j in predicted]
    correct = [j.correct for j in predicted]
    calibrated = all(0 <= j.score <= 1 for j in judgments)
    error = expected_calibration_error(scores, correct) if calibrated else None
    return KindReport(
        **tally_fields(judgments),
        bounds=bounds,
        decision={"another": decided[Verdict.WRONG], "none": decided[Verdict.MISSED]},
        expected_calibration_error=error,
        reliability=reliability(scores, correct) if calibrated else None,
    )


def tally_fields(decisions: Iterable[Decision]) -> dict[str, Any]:
    """Returns the fields of the tally of decisions."""
    outcomes = Counter[str](decision.outcome for decision in decisions)
    counts = {name: outcomes[name] for name in COUNTS}
    right = counts["right"]
    n_predicted = right + counts["wrong"] + counts["extra"]
    n_gold = right + counts["wrong"] + counts["missed"]
    return {
        **counts,
        "precision": right / n_predicted if n_predicted else None,
        "recall": right / n_gold if n_gold else None,
        "f1": 2 * right / (n_predicted + n_gold) if n_gold else None,
    }
