"""Tests that the limits of ``rescore`` are those that were measured."""

import json

from experiments import tables
from nq.inference.profile import Profile
from nq.inference.rescore import CLOSE, compute_type


def test_the_limits_are_those_of_the_committed_result() -> None:
    path = tables.ROOT / "experiments" / "results" / "rescoring_dev.json"
    rows = json.loads(path.read_bytes())["result"]["rows"]
    types = [compute_type(Profile.parse(row["profile"]), "CPU") for row in rows]
    assert {*types} == CLOSE.keys()
    for row, type_ in zip(rows, types, strict=True):
        assert row["limit"] == CLOSE[type_] > 1.25 * row["largest_margin"]
        assert row["changed_with_rescore"] == 0
