"""Study 1: the source's figures, approaches, budget, resuming, verdicts by hand."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from experiments import concurrency, units
from experiments import concurrency_report as report
from experiments.concurrency import Cell, Task
from experiments.intervals import CONFIRMED, NOT_TESTABLE, REFUTED
from experiments.workloads import Workload
from tests.experiments import light_units

TINY = Workload("tiny", "tensorflow", 16)


def row(approach: str, n: int, seconds: float, memory_mb: float = 100.0, **more: Any) -> Any:
    """Returns a row whose rounds all take so long."""
    return {
        **{"shape": "base", "length": 128, "engine": "tensorflow", "n": n, "models": n},
        **{"approach": approach, "weights": "own", "memory_mb": memory_mb, "status": "measured"},
        **{"seconds": [seconds] * 5, "source_seconds": [seconds / 2] * 5},
        **more,
    }


def test_the_source_has_the_ratios_that_it_derives() -> None:
    assert [len(report.SOURCE[name]) for name in ("sync", "asyncio", "threads")] == [19, 18, 18]
    ratio = report.source_ratio
    assert [f"{ratio('asyncio', n):.2f}" for n in (2, 3, 18)] == ["0.96", "0.89", "2.00"]
    assert [f"{ratio('threads', n):.3f}" for n in (2, 3, 4, 18)] == [
        *("0.984", "0.939", "0.996"),
        "1.909",
    ]
    assert ratio("processes", 2) is None


@pytest.mark.parametrize("count", [1, 3])
def test_every_approach_runs_each_step_once(count: int) -> None:
    runs: list[int] = []
    steps = [functools.partial(runs.append, i) for i in range(count)]
    executor, loop = ThreadPoolExecutor(count), asyncio.new_event_loop()
    approaches: list[Callable[[], tuple[float, float]]] = [
        lambda: concurrency.one_after_the_other(steps),
        lambda: concurrency.in_threads(steps),
        lambda: concurrency.in_asyncio(steps, loop, executor),
    ]
    for run in approaches:
        total, waiting = run()
        assert 0 <= waiting <= total
        assert sorted(runs) == list(range(count))
        runs.clear()
    loop.close()
    executor.shutdown()


def test_verdicts_by_hand() -> None:
    rows = [
        *(row("sync", 1, 1.0), row("asyncio", 1, 0.9), row("threads", 1, 1.0)),
        *(row("sync", 2, 2.0), row("asyncio", 2, 2.2), row("threads", 2, 2.5)),
        *(row("sync", 4, 4.0), row("asyncio", 4, 6.0), row("threads", 4, 8.0, 90.0)),
    ]
    assert str(report.against_sync(rows[4], rows)) == "1.10 [1.10, 1.10]"
    assert report.fastest(rows) == CONFIRMED  # one model alone says nothing
    assert report.gap_grows(rows) == CONFIRMED
    assert report.least_memory(rows) == REFUTED
    assert report.most_models(rows) == report.same_for_all_shapes(rows) == NOT_TESTABLE
    assert report.asyncio_by_threads(rows) == "base 128: 0.75 [0.75, 0.75]"
    other = [{**values, "shape": "bundled"} for values in rows]
    assert report.same_for_all_shapes([*rows, *other]) == CONFIRMED
    other[4]["seconds"] = [1.0] * 5
    assert report.fastest([*rows, *other]) == REFUTED
    assert report.same_for_all_shapes([*rows, *other]) == REFUTED


def test_the_largest_number_of_models_is_that_within_the_budget() -> None:
    reached: Any = {"status": report.BUDGET, "seconds": [], "source_seconds": [], "models": 2}
    rows = [
        *(row("sync", 2, 2.0), row("threads", 2, 2.0), row("asyncio", 2, 2.0)),
        *(row("sync", 3, 3.0), {**row("threads", 3, 3.0), **reached}),
    ]
    assert report.most_models(rows) == CONFIRMED
    rows[3] |= reached
    rows.append(row("asyncio", 3, 3.0))
    assert report.most_models(rows) == REFUTED
    assert "| budget reached |" in report.table(rows)
    assert report.summary(rows).count("| base | 128 |") == len(rows)


def test_a_cell_has_all_approaches_in_the_same_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrency, "load", light_units.concurrency)
    rows = Cell(TINY, 2, memory_mb=1000.0, rounds=3).rows()
    assert [(r["approach"], r["weights"], r["memory_mb"]) for r in rows] == [
        *(("sync", "own", 200.0), ("asyncio", "own", 200.0), ("threads", "own", 200.0)),
        ("processes", "own", 200.0),
        *(("sync", "shared", 100.0), ("asyncio", "shared", 100.0), ("threads", "shared", 100.0)),
    ]
    assert {r["status"] for r in rows} == {"measured"}
    assert all(len(r["seconds"]) == len(r["source_seconds"]) == 3 for r in rows)
    assert rows[1]["seconds"] == [0.25] * 3 and rows[1]["source_seconds"] == [0.125] * 3
    sets = [sets[0] for sets in rows[3]["cores"]]
    assert len(sets) == 2 and all(len(cores) == len(sets[0]) for cores in sets)


def test_what_is_beyond_the_budget_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrency, "load", light_units.concurrency)
    rows = Cell(TINY, 3, memory_mb=200.0, rounds=2).rows()
    status = {(r["approach"], r["weights"]): (r["status"], r["models"]) for r in rows}
    assert status["sync", "own"] == ("budget reached", 2)
    assert status["processes", "own"] == ("budget reached", 1)
    assert status["threads", "shared"] == ("measured", 3)
    assert all(bool(r["seconds"]) == (r["status"] == "measured") for r in rows)


@pytest.mark.slow
def test_a_study_goes_on_where_it_stopped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(concurrency, "load", light_units.concurrency)
    argv = ["--quick", "--rounds", "3", "--no-track", "--output", str(tmp_path), "--json"]
    assert concurrency.main([*argv]) == 0
    first = json.loads(capsys.readouterr().out)
    assert sorted({r["n"] for r in first["rows"]}) == [1, 2]
    path = tmp_path / "concurrency.json"
    cut = {**first, "rows": [r for r in first["rows"] if r["n"] == 1]}
    cut["rows"][0]["seconds"] = [7.0] * 3
    path.write_text(json.dumps(cut), encoding="utf-8")
    assert concurrency.main([*argv]) == 0
    second = json.loads(capsys.readouterr().out)
    assert [r["n"] for r in second["rows"]] == [1] * 7 + [2] * 7
    assert second["rows"][0]["seconds"] == [7.0] * 3
    assert (tmp_path / "concurrency.png").stat().st_size > 1000
    assert concurrency.main([*argv, "--memory-gb", "0.5"]) == 1
    assert "was measured with another memory_gb" in capsys.readouterr().err


@pytest.mark.slow
def test_a_real_unit_runs_all_approaches() -> None:
    task = Task(TINY, 2, shared=False, budget_mb=1e6)
    with units.started(concurrency.load, task, (), units.thread_settings(1)) as unit:
        assert unit.receive().models == 2
        for approach in concurrency.IN_PROCESS:
            seconds, waiting = unit.ask(approach)
            assert 0 < waiting <= seconds
        assert unit.ask(concurrency.MEMORY) > 100


@pytest.mark.slow
def test_a_real_unit_stops_at_its_budget() -> None:
    loaded, _ = concurrency.load(Task(TINY, 3, shared=False, budget_mb=1.0))
    assert loaded.models == 1
    loaded, work = concurrency.load(Task(TINY, 3, shared=True, budget_mb=1.0))
    assert loaded.models == 3
    assert work(report.THREADS)[0] > 0
