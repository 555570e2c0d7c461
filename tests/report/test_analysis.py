"""Tallies that add up and bounds that decrease."""

from __future__ import annotations

import json

import pytest
from hypothesis import given

from nq.evaluation.nq_eval import Outcome
from nq.report.analysis import analyse
from nq.report.judgments import Case
from nq.report.tables import text
from tests.report.example_cases import cases


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
