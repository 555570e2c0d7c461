"""Study 2: groups, queues of requests, verdicts by hand, resuming, a real tiny group."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments import scaling, units
from experiments import scaling_dispatch as dispatch
from experiments import scaling_report as report
from experiments.intervals import CONFIRMED, NOT_TESTABLE, REFUTED
from experiments.scaling import Group
from experiments.workloads import Workload
from nq.bundle import bundled_sample
from tests.experiments import light_units


def row(part: str, seconds: float, reference: bool = False, **more: Any) -> Any:
    """Returns a row of one instance whose rounds all take so long."""
    return {
        **{"part": part, "shape": "base", "length": 128, "group": "tensorflow"},
        **{"engine": "tensorflow", "instances": 1, "threads": 2, "batch": 1, "pinned": True},
        "topology": {"threads": 2, "cores": 2, "sockets": 1, "numa_nodes": 1},
        **{"reference": reference, "windows": 1, "seconds": [seconds] * 5},
        **{"latencies": [[seconds]] * 5, **more},
    }


def groups(cores: int, *options: str) -> list[Group]:
    args = scaling.parser().parse_args(["--shapes", "base", "--lengths", "128", *options])
    return scaling.groups(args, ["tensorflow", "openvino"], list(range(cores)))


@pytest.mark.parametrize("cores", [1, 2, 4, 6, 8])
def test_instances_of_a_row_share_the_batch_and_the_cores(cores: int) -> None:
    for group in groups(cores):
        assert len({str(variant) for variant in group.variants}) == len(group.variants) > 1
        for variant in group.variants:
            values, own = variant.values, [places for _, places in variant.instances]
            if group.part == "instances":
                assert values["instances"] * values["batch"] == 8
            assert all(set(places) <= set(range(cores)) for places in own)
            if variant.pinned and values["instances"] * values["threads"] <= cores:
                assert all(len(places) == values["threads"] for places in own)
                assert len(set().union(*own)) == sum(map(len, own))
            if not variant.pinned:
                assert all(len(places) == cores for places in own)


def test_the_parts_of_two_cores() -> None:
    found = {
        (group.part, group.name): [
            (v.values["instances"], v.values["threads"], v.pinned) for v in group.variants
        ]
        for group in groups(2)
    }
    assert found["threads", "openvino"] == [(1, 2, True), (1, 1, True), (1, 4, True)]
    assert found["instances", "tensorflow"] == [
        *((1, 2, True), (2, 1, True), (2, 1, False), (4, 1, True), (4, 1, False)),
    ]
    assert found["copies", "tensorflow"] == [(1, 1, True), (2, 1, True)]
    assert found["engines", "all"] == [(1, 2, True)] * 2


def test_verdicts_by_hand() -> None:
    rows = [
        *(row("threads", 1.0, True), row("threads", 1.5, threads=1)),
        *(row("engines", 1.0, True), row("engines", 0.8, engine="torch")),
        *(row("instances", 1.0, True, windows=8, batch=8),),
        row("instances", 0.5, instances=4, windows=8, batch=2),
        row("copies", 1.0, True, threads=1),
        row("copies", 1.05, threads=1, instances=2, windows=2),
    ]
    assert report.torch_first(rows) == CONFIRMED
    assert report.halves(rows) == "base 128 tensorflow: 1.50 [1.50, 1.50]"
    assert str(report.speed_up(rows[5], rows)) == "2.00 [2.00, 2.00]"
    assert report.instances(rows) == CONFIRMED
    assert report.best_instances(rows) == "base 128 tensorflow: 4"
    assert report.copies(rows, latency=True) == report.copies(rows, latency=False) == CONFIRMED
    rows[7]["seconds"] = rows[0]["seconds"]
    rows[7]["latencies"] = [[1.0, 2.0]] * 5
    assert report.copies(rows, latency=True) == REFUTED
    assert report.dispatch(rows, report.SPLIT) == NOT_TESTABLE
    assert report.hardware_threads(rows) == report.sockets(rows) == NOT_TESTABLE
    for values in rows:
        values["topology"] = {"threads": 2, "cores": 1, "sockets": 2, "numa_nodes": 2}
    assert report.hardware_threads(rows) == REFUTED  # 1.5 times as fast
    assert report.sockets(rows) == REFUTED
    assert dict(report.claims(rows))["(g) 48 cores cost 6 times as much as 8"].startswith(
        "confirmed (arithmetic); base 128 tensorflow, 2 threads: 0.5 windows/(s core)"
    )
    assert report.summary(rows).count("| instances |") == 2
    assert "| instances | base | 128 | tensorflow | 4 x 2 | 2 |" in report.table(rows)


def test_dispatch_is_compared_by_latency_at_the_same_load() -> None:
    def served(policy: str, seconds: float, load: float) -> Any:
        values = {"policy": policy, "load": load, "classes": [[128]] * 5, "length": 0}
        return row("dispatch", seconds, policy == report.ONE, **values)

    rows = [served(report.ONE, 1.0, 0.5), served(report.SPLIT, 0.5, 0.5)]
    rows += [served(report.ONE, 3.0, 0.8), served(report.SPLIT, 6.0, 0.8)]
    assert [str(report.speed_up(r, rows))[:4] for r in rows] == ["1.00", "0.50", "1.00", "2.00"]
    assert report.dispatch(rows, report.SPLIT) == REFUTED
    assert report.dispatch(rows[:2], report.SPLIT) == CONFIRMED


@given(st.integers(1, 300), st.floats(0.1, 100), st.integers(0, 5))
def test_requests_are_seeded_and_arrive_at_their_rate(count: int, per_s: float, seed: int) -> None:
    made = dispatch.requests([32, 512], count, per_s, seed)
    assert made == dispatch.requests([32, 512], count, per_s, seed)
    arrivals = [request.arrival_s for request in made]
    assert arrivals == sorted(arrivals) and len(made) == count
    assert {request.length for request in made} <= {32, 512}
    if count > 100:
        assert 0.6 < arrivals[-1] * per_s / count < 1.6


def test_the_lengths_are_those_of_real_windows() -> None:
    lengths = dispatch.real_lengths([str(bundled_sample())])
    counts = Counter(lengths)
    assert set(counts) <= set(dispatch.CLASSES)
    assert counts.total() >= 40 and len(lengths) == counts.total()


@pytest.mark.parametrize("cores", [(0,), (0, 1), (0, 1, 2, 3, 4)])
def test_every_request_is_answered_by_an_instance_of_its_queue(cores: tuple[int, ...]) -> None:
    for policy in dispatch.policies(cores):
        assert sorted(core for places in policy.cores for core in places) == list(cores)
        assert len(policy.cores) == len(policy.queues)
        for length in dispatch.CLASSES:
            assert policy.queue_of(dispatch.Request(0.0, length)) in policy.queues


def test_requests_wait_in_the_order_of_their_arrival(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "load", light_units.dispatch)
    served = dispatch.Dispatch("tiny", "tensorflow", (0, 1), (32, 512, 512), 12)
    rows = served.rows(rounds=2)
    assert [(r["policy"], r["load"]) for r in rows] == [
        (policy, load) for load in (0.5, 0.8) for policy in (report.ONE, report.QUEUE, report.SPLIT)
    ]
    for values in rows:
        assert [len(some) for some in values["latencies"]] == [12, 12]
        lowest = [
            seconds - 1e-5 * length
            for some, classes in zip(values["latencies"], values["classes"], strict=True)
            for seconds, length in zip(some, classes, strict=True)
        ]
        assert min(lowest) >= 0  # no request is answered before it is computed


@pytest.mark.slow
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
    assert (tmp_path / "scaling.png").stat().st_size > 1000


@pytest.mark.slow
def test_a_real_group() -> None:
    (group, *_) = [group for group in groups(2, "--parts", "copies") if group.name == "tensorflow"]
    tiny = [
        scaling.Variant(
            tuple((Workload("tiny", "tensorflow", 16, 1, 1), (0,)) for _ in variant.instances)
        )
        for variant in group.variants
    ]
    rows = scaling.measure(Group("copies", "tiny", 16, "tensorflow", tuple(tiny)), 2)
    assert [(r["instances"], r["windows"]) for r in rows] == [(1, 1), (2, 2)]
    for values in rows:
        assert [len(some) for some in values["latencies"]] == [values["instances"]] * 2
        assert all(max(a) <= b for a, b in zip(values["latencies"], values["seconds"], strict=True))
        assert values["cores"] == [[[0]]] * values["instances"]
    assert units.thread_cores()
