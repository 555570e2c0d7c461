"""The frame of the studies: recording, statistics against slower truths, processes."""

import argparse
import os
import statistics
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from experiments import study, units
from experiments.intervals import (
    interval,
)
from experiments.workloads import ENGINE_PACKAGES, Model, Workload, missing
from tests.experiments import light_units

STUDY = study.Study(
    "try",
    cells=lambda row, rows: {"n": row["n"], "s": f"{row['s']} of {len(rows)}"},
    claims=lambda rows: {"it is fast": "refuted"},
    plot=lambda rows, figure: study.line(figure.add_subplot(), [(r["n"], r["s"]) for r in rows]),
    params=("n",),
    metrics=lambda row: {"time.s": row["s"]},
)


def arguments(folder: Path, *more: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    study.add_options(parser, "try")
    parser.set_defaults(json=False)
    return parser.parse_args(["--output", str(folder), *more])


@pytest.mark.extended
def test_each_row_is_a_run_with_the_tag_of_the_study(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from nq.mlflow_store import import_mlflow

    import_mlflow()
    from mlflow import MlflowClient

    store = f"sqlite:///{tmp_path}/mlflow.db"
    args = arguments(tmp_path / "out", "--tracking-uri", store)
    results = study.Results(STUDY, args)
    results.add({"n": 1, "s": 2.0}, {"n": 2, "s": 3.0})
    assert study.finish(STUDY, args, results, started=0.0) == 0
    shown = capsys.readouterr().out
    assert "| 2 | 3.0 of 2 |" in shown and "| it is fast | refuted |" in shown
    client = MlflowClient(store)
    (experiment,) = client.search_experiments(filter_string="name = 'nq'")
    runs = {one.data.params["n"]: one for one in client.search_runs([experiment.experiment_id])}
    assert {n: one.data.metrics["time.s"] for n, one in runs.items()} == {"1": 2.0, "2": 3.0}
    (tag,) = {one.data.tags["study"] for one in runs.values()}
    assert tag.startswith("try 20") and runs["1"].info.run_name.startswith("n 1 · try")
    names = {file.path for file in client.list_artifacts(runs["1"].info.run_id)}
    assert names == {"try.json", "try.png"}


@pytest.mark.parametrize("values", [(4.0, 1.0, 2.0), (0.9, 1.0, 1.1, 1.05, 3.0)])
def test_the_interval_is_that_of_all_possible_resamples(values: tuple[float, ...]) -> None:
    medians = [statistics.median(some) for some in product(values, repeat=len(values))]
    low, high = np.quantile(medians, [0.05, 0.95], method="inverted_cdf")
    found = interval(values)
    assert found.median == statistics.median(values)
    assert (found.low, found.high) == pytest.approx((low, high))


def test_a_unit_starts_with_its_cores_and_its_environment() -> None:
    (first, *_) = before = sorted(os.sched_getaffinity(0))
    settings, names = units.thread_settings(3), ["TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS"]
    with units.started(light_units.environment, names, [first], settings) as unit:
        values, cores, heavy = unit.receive()
        assert unit.ask("hello") == "hello"
    assert values == dict.fromkeys(names, "3")
    assert (cores, heavy) == ([[first]], [])
    assert sorted(os.sched_getaffinity(0)) == before
    assert os.environ.get("TF_NUM_INTRAOP_THREADS") != "3"


# torch after TensorFlow in one process may crash; the study has one engine in each process
@pytest.mark.parametrize("engine", [name for name in ENGINE_PACKAGES if name != "torch"])
@pytest.mark.extended
def test_two_steps_of_one_model_run_in_every_engine(engine: str) -> None:
    assert not missing(engine)
    model = Model(Workload("tiny", engine, 16))
    for step in (model.step(), model.step()):
        step()
