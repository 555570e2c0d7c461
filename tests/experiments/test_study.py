"""The frame of the studies: rows that are kept, files of others, table, plot and recording."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from experiments import machine, study
from nq import extras
from nq.errors import Error


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


def test_the_options_have_defaults() -> None:
    parser = argparse.ArgumentParser()
    study.add_options(parser, "try")
    args = parser.parse_args([])
    assert (args.rounds, args.output) == (12, Path("runs/try"))


def test_a_row_is_measured_once(tmp_path: Path) -> None:
    args = arguments(tmp_path)
    first = study.Results.of(STUDY, args, batch=1)
    first.add({"n": 1, "s": 2.0})
    again = study.Results.of(STUDY, args, batch=1)
    assert again.find({"n": 1}) == {"n": 1, "s": 2.0}
    assert again.find({"n": 2}) is None
    again.add({"n": 2, "s": 4.0})
    values = json.loads((tmp_path / "try.json").read_text("utf-8"))
    assert [row["n"] for row in values["rows"]] == [1, 2]
    assert (values["rounds"], values["batch"]) == (12, 1)
    assert values["machine"] == machine.describe()


def test_rows_with_other_settings_are_not_mixed(tmp_path: Path) -> None:
    study.Results.of(STUDY, arguments(tmp_path)).add({"n": 1})
    with pytest.raises(Error, match=r"try\.json was measured with another rounds: give another"):
        study.Results.of(STUDY, arguments(tmp_path, "--rounds", "3"))


@pytest.mark.parametrize("text", ["[]", "{", '{"rounds": 12}'])
def test_a_file_of_others_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "try.json").write_text(text, encoding="utf-8")
    with pytest.raises(Error, match=r"try\.json has no results of a study .*remove it, or"):
        study.Results.of(STUDY, arguments(tmp_path))
    assert (tmp_path / "try.json").read_text("utf-8") == text


def test_without_matplotlib_nothing_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(extras.EXTRAS, "plots", ("no_such_package",))
    with pytest.raises(Error, match=r"run pip install 'nq-pipeline\[plots\]'"):
        study.Results.of(STUDY, arguments(tmp_path))


def test_the_machine_is_described() -> None:
    values = machine.describe()
    places = values["topology"]
    assert 1 <= places["sockets"] <= places["cores"] <= places["threads"]
    assert "keras" in values["versions"]
    words = machine.in_words(values)
    assert words.startswith(f"{places['cores']} cores ({places['threads']} threads) of ")


@pytest.mark.slow
def test_each_row_is_a_run_with_the_tag_of_the_study(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from nq.tracking.store import import_mlflow

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
