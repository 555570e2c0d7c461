"""Sizes and drifts of the kinds of storage, for a tiny model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import nq
from experiments import storage
from nq.model.config import STORES

pytestmark = pytest.mark.extended


def test_fewer_bits_take_less_and_drift_more(
    tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = ["--data", str(nq.bundled_sample()), "--windows", "6", "--json"]
    assert storage.main([str(tiny_model), *data]) == 0
    result = json.loads(capsys.readouterr().out)
    stores = {row["store"]: row for row in result["stores"]}
    assert result["windows"] == 6 and tuple(stores) == STORES
    assert stores["float32"]["max_drift"] == 0.0 == stores["float32"]["changed_share"]
    assert 0 < stores["float16"]["mean_drift"] < stores["int8"]["mean_drift"]
    assert stores["float16"]["bytes"] < stores["float32"]["bytes"]
