"""Tests the comparison of an experiment's runs: what is listed, and what MLflow's UI shows."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nq.tracking import history, start, view
from nq.tracking.store import how_to_compare
from tests.chromium import CHROMIUM, needs_chromium
from tests.tracking.mlflow_stores import FirstRuns, stored
from tests.tracking.test_server import Server

pytestmark = pytest.mark.slow  # importing MLflow takes seconds

PROFILES = {"baseline": 120.5, "mixed+grappler": 60.25, "xla": 90.125}
COLUMNS = [
    *("params.`profile`", "metrics.`time/total_s`", "metrics.`time/windows_per_s`"),
    *("metrics.`quality/micro_f1`", "metrics.`parity/changed_answers`"),
    *("metrics.`memory/peak_mb`", "tags.`speed_comparable`"),
]


def record(store: str, profile: str, total_s: float, experiment: str | None = None) -> Any:
    with start(store, experiment, f"{profile} · dev", profile=profile, system_metrics=False) as run:
        run.open(started=1e9)
        run.params({view.PROFILE: profile, "batch_size": 16, view.INSTANCES: 2, view.THREADS: 1})
        run.tags({view.SPEED_COMPARABLE: "yes", view.MACHINE: "one, 2 cores"})
        figures = {view.TOTAL_S: total_s, view.WINDOWS_PER_S: 20, view.MICRO_F1: 0.5}
        run.metrics({**figures, view.PEAK_MB: 700.5, view.CHANGED: 3, "time/load_s": 5.0})
        run.end_at(1e9 + total_s)
    return stored(run)


def test_a_run_has_the_time_of_its_work(store: str) -> None:
    run = record(store, "xla", 90.125)
    assert (run.info.start_time, run.info.end_time) == (10**12, 10**12 + 90_125)
    assert run.info.status == "FINISHED"


def test_a_command_that_cannot_start_leaves_no_run(store: str) -> None:
    before = Path("mlflow.db").read_bytes()
    with pytest.raises(ValueError, match="no model"), start(store) as run:
        raise ValueError("no model")
    assert (run.run_id, run.how_to_compare()) == (None, None)
    assert Path("mlflow.db").read_bytes() == before


def test_recorded_runs_are_listed(store: str) -> None:
    for profile, total_s in PROFILES.items():
        record(store, profile, total_s)
    with start(store, name="a training", system_metrics=False) as other:
        other.params({"epochs": 3})
    listed = history(store)
    assert {run.profile: run.total_s for run in listed.runs} == PROFILES
    assert (listed.experiment, listed.others) == ("nq", 1)
    run = next(run for run in listed.runs if run.profile == "xla")
    assert (run.name, run.micro_f1, run.changed, run.peak_mb) == ("xla · dev", 0.5, 3, 700.5)
    assert (run.machine, run.speed_comparable) == ("one, 2 cores", "yes")
    assert (run.status, run.started) == ("FINISHED", 1e9)
    assert (run.instances, run.threads) == (2, 1)
    assert listed.how_to_open == how_to_compare(store, stored(other).info.experiment_id)


def test_a_run_of_an_earlier_version_is_listed(store: str) -> None:
    with start(store, "old", system_metrics=False) as run:
        run.params({"profile": "mixed"})
        run.metrics({"time/total_s": 5, "speed/windows_per_s": 3, "tally/peak_memory_bytes": 2**21})
    (listed,) = history(store, "old").runs
    assert (listed.total_s, listed.windows_per_s, listed.peak_mb) == (5.0, 3.0, 2.0)
    assert (listed.micro_f1, listed.changed, listed.speed_comparable) == (None, None, "")
    assert (listed.instances, listed.threads) == (None, None)


@pytest.mark.parametrize(
    ("uri", "experiment", "message"),
    [
        (None, "nowhere", r"no experiment 'nowhere' in sqlite.*, which has Default, first"),
        ("sqlite:///other.db", None, r"other.db: there is no database; give the store"),
        ("runs", None, r"MLflow 3 needs a database, not a folder: give sqlite"),
        ("sqlite:///text.db", None, r"text.db: .*not a database"),
    ],
)
def test_a_store_that_cannot_be_read_is_one_line(
    uri: str | None, experiment: str | None, message: str, store: str
) -> None:
    Path("text.db").write_text("a text that is longer than the header of a database" * 9)
    with pytest.raises(ValueError, match=message) as raised:
        history(uri or store, experiment)
    assert "\n" not in str(raised.value)
    assert not Path("other.db").exists()


def test_the_view_is_stored_with_the_first_run_and_again_by_the_list(store: str) -> None:
    from mlflow import MlflowClient

    client, run = MlflowClient(store), record(store, "xla", 1.0)
    experiment_id = run.info.experiment_id
    assert json.loads(client.get_experiment(experiment_id).tags[view.TAG]) == view.state()
    client.set_experiment_tag(experiment_id, view.TAG, "{}")
    history(store)
    assert json.loads(client.get_experiment(experiment_id).tags[view.TAG]) == view.state()


# ------------------------------------------------------------------------ MLflow's UI


@pytest.fixture(scope="module")
def server(first_runs: FirstRuns, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("ui")
    shutil.copyfile(first_runs.database, folder / "server.db")
    running = Server(folder)
    try:
        running.wait()
        for profile, total_s in PROFILES.items():
            record(running.uri, profile, total_s, "profiles")
        yield running
    finally:
        running.kill()


def shown(address: str, folder: Path, *options: str) -> str:
    """Returns the page of an address as Chromium renders it in a new profile of its own."""
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--window-size=2600,1000"]
    wait = ["--timeout=20000", "--virtual-time-budget=20000", f"--user-data-dir={folder}/profile"]
    process = subprocess.run(
        [*command, *wait, *options, "--dump-dom", address],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return process.stdout


@pytest.mark.browser
@needs_chromium
def test_the_link_opens_the_table_with_its_columns_sorted_by_time(
    server: Server, tmp_path: Path
) -> None:
    page = shown(history(server.uri, "profiles").how_to_open, tmp_path)
    places = re.findall(r'aria-colindex="(\d+)"[^>]*? col-id="([^"]+)"', page)
    columns = dict(sorted((int(place), name) for place, name in places if name in COLUMNS))
    assert list(columns.values()) == COLUMNS
    rows = [page.find(f"{name} · dev") for name in sorted(PROFILES, key=lambda p: PROFILES[p])]
    assert -1 not in rows and rows == sorted(rows)
    assert "60.25" in page and "700.5" in page
