"""Studies 1 to 3, kills and the server's speed, with tiny models or without one; all extended."""

import json
from pathlib import Path

import pytest

from experiments import concurrency, kills, scaling, units
from experiments import scaling_dispatch as dispatch
from experiments.compression import __main__ as compression
from experiments.compression import measure
from experiments.compression.models import STATES
from experiments.compression.report import BASELINE, BFLOAT16, INT8
from experiments.serving import __main__ as serving
from experiments.workloads import Workload
from tests.experiments import light_units
from tests.experiments.conftest import RunCommand

pytestmark = pytest.mark.extended


def test_a_real_unit_runs_all_approaches() -> None:
    tiny = Workload("tiny", "tensorflow", 16)
    task = concurrency.Task(tiny, 2, shared=False, budget_mb=1e6)
    with units.started(concurrency.load, task, (), units.thread_settings(1)) as unit:
        assert unit.receive()[0] == 2
        for approach in concurrency.IN_PROCESS:
            seconds, waiting = unit.ask(approach)
            assert 0 < waiting <= seconds
        assert unit.ask(concurrency.MEMORY) > 100


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


def test_a_study_goes_on_with_pruning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_command: RunCommand
) -> None:
    """The speeds are not those of models; the first command prunes nothing."""
    monkeypatch.setattr(measure, "load", light_units.compression)
    options = ["--quick", "--rounds", 3, "--no-track", "--output", tmp_path]
    first = run_command(compression.main, *options, "--prune")["rows"]
    rows = run_command(compression.main, *options)["rows"]
    assert rows[: len(first)] == first
    pruned = [one for one in rows if one["prune"] and one["profile"] == BASELINE]
    assert [one["state"] for one in pruned] == list(STATES)
    assert len({json.dumps(one["seconds"]) for one in pruned}) == 1
    assert all(one["gflop"] < rows[0]["gflop"] for one in pruned)
    assert {one["profile"] for one in rows[-2:]} == {INT8, BFLOAT16}
    assert set(rows[-1]["reference_seconds"]) == {BASELINE, BFLOAT16}


def test_a_killed_and_an_interrupted_run(run_command: RunCommand) -> None:
    options = ["--kills", 1, "--interrupts", 1, "--profiles", "baseline"]
    rows = run_command(kills.main, *options)["rows"]
    assert {row["attack"] for row in rows} == {"SIGKILL", "none, after kills", "SIGINT"}


def test_the_command_measures_a_server(tiny_model: Path, run_command: RunCommand) -> None:
    options = ["--model", tiny_model, "--profile", "baseline", "--max-body-mb", 1]
    options += ["--clients", 4, "--questions", 8, "--rounds", 1, "--arrivals", 8]
    figures = run_command(serving.main, *options, "--requests", 60)
    assert (figures["requests"], figures["good"]) == (60, 40)
    assert figures["crashes"] == figures["lost"] == figures["misjudged"] == 0
    assert min(figures[name] for name in ("one_per_s", "many_per_s", "alone_s", "load_p95_s")) > 0
    missed = serving.table({**figures, "p95_ratio": 4})
    assert "at most 2: missed" in missed and "at most 0: reached" in missed
