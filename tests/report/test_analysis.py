"""Tallies that add up and bounds that decrease."""

import json

import pytest
from hypothesis import given

from nq.evaluation.nq_eval import Outcome
from nq.report.analysis import analyse
from nq.report.judgments import Case
from tests.report.example_cases import cases


@pytest.mark.slow
@given(cases())
def test_splits_add_up_and_bounds_decrease_to_the_recall_of_the_run(
    some_cases: list[Case],
) -> None:
    result = analyse(some_cases)
    json.dumps(result.to_dict())
    assert str(result)
    for kind, part in result.kinds.items():
        for values in result.splits.values():
            for name in Outcome:
                parts = (getattr(tallies[kind], name) for tallies in values.values())
                assert sum(parts) == getattr(part, name)
        n_gold, bounds = part.right + part.wrong + part.missed, part.bounds.values()
        recalls = [1.0 if n_gold else 0.0, *(b.recall for b in bounds), part.recall or 0.0]
        assert recalls == sorted(recalls, reverse=True)
        assert all((part.f1 or 0.0) <= b.f1 + 1e-9 for b in bounds)
        lost = sum(b.lost for b in bounds) + sum(part.decision.values())
        assert lost == n_gold - part.right
