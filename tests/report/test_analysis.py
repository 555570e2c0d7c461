"""Tallies that add up and bounds that decrease."""

from __future__ import annotations

import json

import pytest
from hypothesis import given

from nq.report.analysis import analyse, calibration
from nq.report.judgments import KINDS, Case, Judgment, Outcome, Stage
from nq.report.tables import NEEDED, NO_PROBABILITIES, text
from tests.report.example_cases import cases


def judgment(outcome: Outcome, score: float = 0.5, lost: Stage | None = None) -> Judgment:
    return Judgment(outcome, score, lost, "gold text", "answer text")


def case(both: Judgment) -> Case:
    return Case(0, "who", {"question": "who"}, dict.fromkeys(KINDS, both))


@pytest.mark.slow
@given(cases())
def test_splits_add_up_and_bounds_decrease_to_the_recall_of_the_run(
    some_cases: list[Case],
) -> None:
    result = analyse(some_cases)
    json.dumps(result.to_dict())
    assert text(result)
    for kind, part in result.kinds.items():
        for values in result.splits.values():
            for name in Outcome:
                parts = (getattr(tallies[kind], name) for tallies in values.values())
                assert sum(parts) == getattr(part.overall, name)
        recalls = [1.0 if part.overall.n_gold else 0.0, *(b.recall for b in part.bounds)]
        assert recalls == sorted(recalls, reverse=True)
        assert recalls[-1] == pytest.approx(part.overall.recall or 0.0)
        assert all((part.overall.f1 or 0.0) <= b.f1 + 1e-9 for b in part.bounds)
        assert sum(b.lost for b in part.bounds) == part.overall.n_gold - part.overall.right
        assert part.other + part.null == part.bounds[-1].lost


def test_only_given_answers_have_a_calibration() -> None:
    judgments = [
        judgment(Outcome.RIGHT, 0.75),
        judgment(Outcome.EXTRA, 0.75),
        judgment(Outcome.MISSED, 0.1),
        judgment(Outcome.NULL, 0.0),
    ]
    result = calibration(judgments)
    assert result is not None
    assert [b.count for b in result.bins] == [0] * 7 + [2, 0, 0]
    assert result.error == 0.25
    assert calibration([*judgments, judgment(Outcome.NULL, -3.0)]) is None


def test_missing_figures_are_mentioned() -> None:
    needed = [*NEEDED.values(), NO_PROBABILITIES]
    whole = text(analyse([case(judgment(Outcome.WRONG, 0.5, Stage.DECISION))], without_gold=3))
    assert "1 annotated examples; 3 more have no annotations" in whole
    assert not [note for note in needed if note in whole]
    unknown = [case(judgment(Outcome.WRONG, 7.5, Stage.DECISION))]
    incomplete = text(analyse(unknown, stages=(Stage.CONTEXTS, Stage.DECISION)))
    assert all(note in incomplete for note in needed)
