"""The frame of the studies: rows that are kept, files of others, tables, plot and recording."""

import argparse
from pathlib import Path

import pytest

from experiments import study

pytestmark = pytest.mark.extended


STUDY = study.Study(
    "try",
    head=("n", "s"),
    cells=lambda row, rows: (str(row["n"]), f"{row['s']} of {len(rows)}"),
    claims=lambda rows: [("it is fast", "refuted")],
    plot=lambda rows, figure: study.line(figure.add_subplot(), [(r["n"], r["s"]) for r in rows]),
    title=lambda row: f"n {row['n']}",
    params=("n",),
    metrics=lambda row: {"time.s": row["s"]},
)


def arguments(folder: Path, *more: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    study.add_options(parser, "try")
    parser.set_defaults(json=False)
    return parser.parse_args(["--output", str(folder), *more])


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
    runs = client.search_runs([experiment.experiment_id])
    assert {run.data.params["n"]: run.data.metrics["time.s"] for run in runs} == {
        "1": 2.0,
        "2": 3.0,
    }
    (tag,) = {run.data.tags["study"] for run in runs}
    assert tag.startswith("try 20")
    (first,) = [run for run in runs if run.data.params["n"] == "1"]
    names = {file.path for file in client.list_artifacts(first.info.run_id)}
    assert names == {"try.json", "try.png"}
