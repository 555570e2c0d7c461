"""Summarizes cases: outcomes, losses by stage, and the calibration of the scores."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from nq.evaluation.calibration import Bin, expected_calibration_error, reliability
from nq.evaluation.nq_eval import Decision, Outcome
from nq.report.judgments import KINDS, STAGES, Case, Stage
from nq.report.traits import TRAITS

NOT_STATED = "not stated"


@dataclass(frozen=True, slots=True)
class Tally:
    """The number of answers with each outcome.

    Precision, recall and F1 are the official ones, but ``None`` where they are undefined.
    """

    right: int = 0
    wrong: int = 0
    extra: int = 0
    missed: int = 0
    null: int = 0

    @property
    def n(self) -> int:
        return self.right + self.wrong + self.extra + self.missed + self.null

    @property
    def n_gold(self) -> int:
        return self.right + self.wrong + self.missed

    @property
    def n_predicted(self) -> int:
        return self.right + self.wrong + self.extra

    @property
    def precision(self) -> float | None:
        return self.right / self.n_predicted if self.n_predicted else None

    @property
    def recall(self) -> float | None:
        return self.right / self.n_gold if self.n_gold else None

    @property
    def f1(self) -> float | None:
        return 2 * self.right / (self.n_predicted + self.n_gold) if self.n_gold else None

    def to_dict(self) -> dict[str, Any]:
        measures = {"precision": self.precision, "recall": self.recall, "f1": self.f1}
        return dataclasses.asdict(self) | measures


@dataclass(frozen=True, slots=True)
class Bound:
    """The upper bound that a stage sets, reached if all later stages were perfect.

    ``lost`` counts the gold answers that the stage loses; ``recall`` is the share of those that
    neither it nor an earlier stage loses.
    """

    stage: Stage
    lost: int
    recall: float

    @property
    def f1(self) -> float:
        """The F1 with a precision of 1."""
        return 2 * self.recall / (1 + self.recall)


@dataclass(frozen=True, slots=True)
class Calibration:
    """The given answers by probability, and the expected calibration error."""

    bins: list[Bin]
    error: float


@dataclass(frozen=True, slots=True)
class KindReport:
    """The report on the answers of one kind, long or short.

    Of the gold answers that only the decision lost, ``other`` lost to another answer and ``null``
    to none. There is no ``calibration`` if the scores are not probabilities. ``wrong`` has the
    wrong and extra answers with the highest scores, highest first, ``missed`` the missed ones.
    """

    overall: Tally
    bounds: list[Bound]
    other: int
    null: int
    calibration: Calibration | None
    wrong: list[dict[str, Any]]
    missed: list[dict[str, Any]]

    def to_dict(self) -> dict[str, Any]:
        calibration = self.calibration
        return {
            **self.overall.to_dict(),
            "bounds": {
                b.stage: {"lost": b.lost, "recall": b.recall, "f1": b.f1}
                for b in self.bounds
                if b.stage is not Stage.DECISION
            },
            "decision": {"another": self.other, "none": self.null},
            "expected_calibration_error": calibration.error if calibration else None,
            "reliability": list(map(dataclasses.asdict, calibration.bins)) if calibration else None,
            "most_confident_wrong": self.wrong,
            "most_confident_missed": self.missed,
        }


@dataclass(frozen=True, slots=True)
class Analysis:
    """The error analysis of ``n`` annotated examples; ``without_gold`` more have no annotations.

    A loss can be told at ``stages``. ``splits`` has the outcomes by trait, its value, and kind.
    """

    n: int
    without_gold: int
    stages: tuple[Stage, ...]
    kinds: dict[str, KindReport]
    splits: dict[str, dict[str, dict[str, Tally]]]

    def to_dict(self) -> dict[str, Any]:
        return {
            "examples": self.n,
            "without_gold": self.without_gold,
            **{kind: report.to_dict() for kind, report in self.kinds.items()},
            "splits": {
                trait: {
                    value: {kind: tally.to_dict() for kind, tally in tallies.items()}
                    for value, tallies in values.items()
                }
                for trait, values in self.splits.items()
            },
        }


def analyse(
    cases: Sequence[Case],
    without_gold: int = 0,
    stages: Sequence[Stage] = STAGES,
    examples: int = 10,
) -> Analysis:
    """Returns the error analysis of a run, with lists of so many worst examples."""
    kinds = {kind: _kind_report(cases, kind, stages, examples) for kind in KINDS}
    splits: dict[str, dict[str, dict[str, Tally]]] = {}
    for trait, order in TRAITS.items():
        if not any(trait in case.traits for case in cases):
            continue
        by_value: dict[str, list[Case]] = defaultdict(list)
        for case in cases:
            by_value[case.traits.get(trait, NOT_STATED)].append(case)
        values = [*(v for v in order if v in by_value), *sorted(by_value.keys() - set(order))]
        splits[trait] = {
            v: {kind: tally(c.judgments[kind] for c in by_value[v]) for kind in KINDS}
            for v in values
        }
    return Analysis(len(cases), without_gold, tuple(stages), kinds, splits)


def _kind_report(
    cases: Sequence[Case], kind: str, stages: Sequence[Stage], examples: int
) -> KindReport:
    judgments = [case.judgments[kind] for case in cases]
    decided = Counter(j.outcome for j in judgments if j.lost is Stage.DECISION)
    lost = Counter(j.lost for j in judgments)
    n_gold = remaining = sum(j.has_gold for j in judgments)
    bounds = []
    for stage in stages:
        remaining -= lost[stage]
        bounds.append(Bound(stage, lost[stage], remaining / n_gold if n_gold else 0.0))
    calibration = None
    if all(0 <= j.score <= 1 for j in judgments):
        given = [j for j in judgments if j.predicted]
        scores, correct = [j.score for j in given], [j.correct for j in given]
        error = expected_calibration_error(scores, correct)
        calibration = Calibration(reliability(scores, correct), error)

    def worst(*outcomes: Outcome) -> list[dict[str, Any]]:
        matching = [case for case in cases if case.judgments[kind].outcome in outcomes]
        matching.sort(key=lambda case: -case.judgments[kind].score)
        names = ("outcome", "score", "lost", "gold", "answer")
        return [
            {"example_id": case.example_id, "question": case.question}
            | {name: getattr(case.judgments[kind], name) for name in names}
            for case in matching[:examples]
        ]

    return KindReport(
        overall=tally(judgments),
        bounds=bounds,
        other=decided[Outcome.WRONG],
        null=decided[Outcome.MISSED],
        calibration=calibration,
        wrong=worst(Outcome.WRONG, Outcome.EXTRA),
        missed=worst(Outcome.MISSED),
    )


def tally(judgments: Iterable[Decision]) -> Tally:
    """Returns the number of decisions with each outcome."""
    return Tally(**Counter(str(j.outcome) for j in judgments))
