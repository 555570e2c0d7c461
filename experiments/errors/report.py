"""cases -> report: what became of the answers, where they are lost, how sure the model was."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.errors.losses import STAGES, Case, Outcome, Stage, Verdict
from experiments.errors.traits import TRAITS
from nq.evaluation.calibration import Bin, expected_calibration_error, reliability

KINDS = ("long", "short")
NOT_SAID = "not said"


@dataclass(frozen=True, slots=True)
class Tally:
    """How many answers came to what.

    Precision, recall and F1 are those of the evaluation, but ``None`` where there is nothing
    that they could be of.
    """

    right: int = 0
    wrong: int = 0
    extra: int = 0
    missed: int = 0
    null: int = 0

    @property
    def n(self) -> int:
        """All of them."""
        return self.right + self.wrong + self.extra + self.missed + self.null

    @property
    def n_gold(self) -> int:
        """Those with an answer to find."""
        return self.right + self.wrong + self.missed

    @property
    def n_predicted(self) -> int:
        """Those that were answered."""
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
        """Counts and measures as plain values."""
        measures = {"precision": self.precision, "recall": self.recall, "f1": self.f1}
        return dataclasses.asdict(self) | measures


@dataclass(frozen=True, slots=True)
class Bound:
    """What would be reached if everything behind a stage were perfect.

    ``lost`` of the gold answers are lost at the stage itself, the others are ``recall``;
    nothing else is answered.
    """

    stage: Stage
    lost: int
    recall: float

    @property
    def f1(self) -> float:
        """With a precision of 1."""
        return 2 * self.recall / (1 + self.recall)


@dataclass(frozen=True, slots=True)
class Calibration:
    """The answers given, by their probability, and the expected calibration error."""

    bins: list[Bin]
    error: float


@dataclass(frozen=True, slots=True)
class Part:
    """The answers of one kind, long or short.

    Args:
        overall: all of them.
        bounds: by stage, in order; without the positions where the scores were not kept.
        other, null: of those that only the decision lost, how many it gave for another answer
            and how many for none.
        calibration: ``None`` where the scores are no probabilities.
        wrong: the surest answers that are not right, the surest first.
        missed: those that came closest to being given.
    """

    overall: Tally
    bounds: list[Bound]
    other: int
    null: int
    calibration: Calibration | None
    wrong: list[Case]
    missed: list[Case]


@dataclass(frozen=True, slots=True)
class Split:
    """The examples of one trait's value."""

    value: str
    long: Tally
    short: Tally


@dataclass(frozen=True, slots=True)
class Report:
    """All that is told of a run; ``with_scores`` says whether its scores were kept."""

    run: Mapping[str, str]
    n: int
    without_gold: int
    with_scores: bool
    long: Part
    short: Part
    splits: dict[str, list[Split]]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            "run": dict(self.run),
            "examples": self.n,
            "without_gold": self.without_gold,
            **{kind: _part_dict(getattr(self, kind), kind) for kind in KINDS},
            "splits": {
                trait: {s.value: {k: getattr(s, k).to_dict() for k in KINDS} for s in found}
                for trait, found in self.splits.items()
            },
        }


def report(
    cases: Sequence[Case],
    run: Mapping[str, str],
    without_gold: int = 0,
    with_scores: bool = True,
    examples: int = 10,
) -> Report:
    """What the cases tell.

    Args:
        cases: of all annotated examples.
        run: what is said of the run, by name.
        without_gold: how many examples have no annotations.
        with_scores: whether the cases know of the positions.
        examples: how many of the worst to keep.
    """
    return Report(
        run,
        len(cases),
        without_gold,
        with_scores,
        _part(cases, "long", with_scores, examples),
        _part(cases, "short", with_scores, examples),
        splits(cases),
    )


def _part(cases: Sequence[Case], kind: str, with_scores: bool, examples: int) -> Part:
    found = [verdict(case, kind) for case in cases]
    decided = Counter(v.outcome for v in found if v.lost is Stage.DECISION)
    return Part(
        tally(found),
        bounds(found, with_scores),
        decided[Outcome.WRONG],
        decided[Outcome.MISSED],
        calibration(found),
        worst(cases, kind, (Outcome.WRONG, Outcome.EXTRA), examples),
        worst(cases, kind, (Outcome.MISSED,), examples),
    )


def verdict(case: Case, kind: str) -> Verdict:
    """The long or the short verdict of a case."""
    found: Verdict = getattr(case, kind)
    return found


def tally(verdicts: Iterable[Verdict]) -> Tally:
    """Counts what the verdicts say."""
    counts = Counter(str(v.outcome) for v in verdicts)
    return Tally(**counts)


def splits(cases: Sequence[Case]) -> dict[str, list[Split]]:
    """For each trait that a case has its values in order, each with what became of it."""
    found: dict[str, list[Split]] = {}
    for trait, order in TRAITS.items():
        if not any(trait in case.traits for case in cases):
            continue
        by_value: dict[str, list[Case]] = defaultdict(list)
        for case in cases:
            by_value[case.traits.get(trait, NOT_SAID)].append(case)
        ranked = [*(v for v in order if v in by_value), *sorted(by_value.keys() - set(order))]
        found[trait] = [
            Split(v, *(tally(verdict(c, kind) for c in by_value[v]) for kind in KINDS))
            for v in ranked
        ]
    return found


def bounds(verdicts: Sequence[Verdict], with_scores: bool = True) -> list[Bound]:
    """The bound of each stage; that of the decision is the recall that was reached."""
    lost = Counter(v.lost for v in verdicts)
    n_gold = left = sum(v.has_gold for v in verdicts)
    found = []
    for stage in STAGES:
        if stage is Stage.POSITIONS and not with_scores:
            continue
        left -= lost[stage]
        found.append(Bound(stage, lost[stage], left / n_gold if n_gold else 0.0))
    return found


def calibration(verdicts: Sequence[Verdict]) -> Calibration | None:
    """How far the scores of the given answers can be believed, if all are probabilities."""
    if not all(0 <= v.score <= 1 for v in verdicts):
        return None
    given = [v for v in verdicts if v.predicted]
    scores, right = [v.score for v in given], [v.outcome is Outcome.RIGHT for v in given]
    return Calibration(reliability(scores, right), expected_calibration_error(scores, right))


def worst(
    cases: Sequence[Case], kind: str, outcomes: Sequence[Outcome], examples: int
) -> list[Case]:
    """The cases with one of these outcomes that score highest."""
    found = [case for case in cases if verdict(case, kind).outcome in outcomes]
    return sorted(found, key=lambda case: -verdict(case, kind).score)[:examples]


def _part_dict(part: Part, kind: str) -> dict[str, Any]:
    sure = part.calibration
    return {
        **part.overall.to_dict(),
        "bounds": {
            b.stage: {"lost": b.lost, "recall": b.recall, "f1": b.f1}
            for b in part.bounds
            if b.stage is not Stage.DECISION
        },
        "decision": {"another": part.other, "none": part.null},
        "expected_calibration_error": sure.error if sure else None,
        "reliability": [dataclasses.asdict(b) for b in sure.bins] if sure else None,
        "most_confident_wrong": [_case_dict(case, kind) for case in part.wrong],
        "most_confident_missed": [_case_dict(case, kind) for case in part.missed],
    }


def _case_dict(case: Case, kind: str) -> dict[str, Any]:
    found = dataclasses.asdict(verdict(case, kind))
    return {"example_id": case.example_id, "question": case.question, **found}
