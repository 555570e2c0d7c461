"""The frame of the studies: rows that are kept, files of others, table, plot and recording."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from experiments import study

pytestmark = pytest.mark.extended


def draw(rows: object, path: Path) -> None:
    path.write_bytes(b"a picture")


STUDY = study.Study(
    "try",
    table=lambda rows: f"{len(rows)} rows\n",
    plot=draw,
    title=lambda row: f"n {row['n']}",
    params=lambda row: {"n": row["n"]},
    metrics=lambda row: {"time/s": row["s"]},
)


def arguments(folder: Path, *more: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    study.add_options(parser, "try")
    return parser.parse_args(["--output", str(folder), *more])


def test_each_row_is_a_run_with_the_tag_of_the_study(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from nq.mlflow_store import import_mlflow

    import_mlflow()
    from mlflow import MlflowClient

    store = f"sqlite:///{tmp_path}/mlflow.db"
    args = arguments(tmp_path / "out", "--tracking-uri", store)
    results = study.Results.of(STUDY, args)
    results.add({"n": 1, "s": 2.0}, {"n": 2, "s": 3.0})
    assert study.finish(STUDY, args, results, started=0.0) == 0
    assert capsys.readouterr().out.startswith("2 rows\nwritten to ")
    client = MlflowClient(store)
    (experiment,) = client.search_experiments(filter_string="name = 'nq'")
    runs = client.search_runs([experiment.experiment_id])
    assert {run.data.params["n"]: run.data.metrics["time/s"] for run in runs} == {
        "1": 2.0,
        "2": 3.0,
    }
    (tag,) = {run.data.tags["study"] for run in runs}
    assert tag.startswith("try 20")
    (first,) = [run for run in runs if run.data.params["n"] == "1"]
    names = {file.path for file in client.list_artifacts(first.info.run_id)}
    assert names == {"try.json", "try.png"}
