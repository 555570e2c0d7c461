"""Tests the rows of runs and profiles beside each other, and their table."""

import pytest

from nq.report import comparison


@pytest.mark.parametrize("phase", ["predict_s", "pipeline_s"])
def test_a_row_has_the_speed_and_the_seconds_of_its_run(phase: str) -> None:
    time = {"load_s": 1.0, "compile_s": 2.0, "warmup_s": 4.0, phase: 5.0, "rescore_s": 1.0}
    result = {
        "profile": "mixed",
        "machine": "2 cores",
        "time": time,
        "windows": 8,
        "windows_per_s": 1.6,
    }
    own = comparison.row({**result, "peak_memory_bytes": 0, "metrics": {}})
    assert (own.predict_s, own.windows_per_s, own.first_start_s) == (5.0, 1.6, 7.0)
