"""Study 2: groups, queues of requests, verdicts by hand, resuming, a real tiny group."""

import json
from pathlib import Path

import pytest

from experiments import scaling, units
from experiments import scaling_dispatch as dispatch
from experiments.workloads import Workload
from tests.experiments import light_units

pytestmark = pytest.mark.extended


def test_a_study_goes_on_where_it_stopped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(scaling, "load", light_units.scaling)
    monkeypatch.setattr(dispatch, "load", light_units.dispatch)
    argv = ["--quick", "--rounds", "3", "--no-track", "--output", str(tmp_path)]
    assert scaling.main([*argv, "--parts", "copies", "dispatch", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)["rows"]
    assert scaling.main(argv) == 0
    assert "| (f) dispatch by length lowers the p95 latency |" in capsys.readouterr().out
    second = json.loads((tmp_path / "scaling.json").read_text("utf-8"))["rows"]
    assert second[: len(first)] == first
    assert {r["part"] for r in second} == {"threads", "instances", "copies", "dispatch"}


def test_a_real_group() -> None:
    tiny = [
        scaling.Variant(((Workload("tiny", "tensorflow", 16, 1, 1), (0,)),) * count)
        for count in (1, 2)
    ]
    rows = scaling.measure({"part": "copies"}, tiny, 2)
    assert [(r["instances"], r["windows"]) for r in rows] == [(1, 1), (2, 2)]
    for values in rows:
        assert [len(some) for some in values["latencies"]] == [values["instances"]] * 2
        assert all(max(a) <= b for a, b in zip(values["latencies"], values["seconds"], strict=True))
        assert values["cores"] == [[[0]]] * values["instances"]
    assert units.thread_cores()
