"""Summarizes cases: outcomes, losses by stage, and the calibration of the scores."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nq.evaluation.calibration import Bin, expected_calibration_error, reliability
from nq.evaluation.nq_eval import Decision, Outcome
from nq.report.judgments import KINDS, STAGES, Case, Stage
from nq.report.traits import TRAITS


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
    scores, correct = [j.score for j in predicted], [j.correct for j in predicted]
    calibrated = all(0 <= j.score <= 1 for j in judgments)
    error = expected_calibration_error(scores, correct) if calibrated else None
    return KindReport(
        **tally_fields(judgments),
        bounds=bounds,
        decision={"another": decided[Outcome.WRONG], "none": decided[Outcome.MISSED]},
        expected_calibration_error=error,
        reliability=reliability(scores, correct) if calibrated else None,
    )


def tally_fields(decisions: Iterable[Decision]) -> dict[str, Any]:
    """Returns the fields of the tally of decisions."""
    counts = Counter(decision.outcome for decision in decisions)
    right, wrong, extra, missed, null = (counts[outcome] for outcome in Outcome)
    n_predicted, n_gold = right + wrong + extra, right + wrong + missed
    return {
        **{"right": right, "wrong": wrong, "extra": extra, "missed": missed, "null": null},
        "precision": right / n_predicted if n_predicted else None,
        "recall": right / n_gold if n_gold else None,
        "f1": 2 * right / (n_predicted + n_gold) if n_gold else None,
    }
