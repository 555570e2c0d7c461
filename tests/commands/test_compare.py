"""Tests ``nq compare`` by real comparisons with a tiny model, killed and continued."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import nq
from nq import storage, tracking
from nq.commands.compare import parser
from nq.commands.main import console
from nq.config import TrackingConfig
from nq.errors import Error
from nq.mlflow_store import DEFAULT_EXPERIMENT, connect
from nq.runs import compare, shapes
from nq.runs.measure import BUSY, machine
from nq.runs.profile_choice import COMPARED, choose_profile
from nq.storage import COMPARISON, own_paths
from tests import nq_records
from tests.conftest import Commands
from tests.terminal_output import without_progress

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
QUESTIONS, TIMEOUT_S = 3, 300.0
BLOCK = "import sys\nsys.modules['openvino'] = None\n"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    records = [nq_records.simplified(i, words=4 + 5 * i) for i in range(1, QUESTIONS + 1)]
    return nq_records.write_lines(tmp_path_factory.mktemp("data") / "questions.jsonl", records)


def kept(folder: Path) -> list[tuple[int, str]]:
    """Returns round and profile of each run that a comparison has kept."""
    parts = (path.stem.split("-") for path in (folder / storage.MEASURED).glob("[0-9]*.json"))
    return sorted((int(number), profile) for number, profile in parts)


def test_a_comparison_is_killed_continued_and_not_mixed_with_another(
    data: Path, tiny_model: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """OpenVINO cannot be imported in it."""
    (tmp_path / "sitecustomize.py").write_text(BLOCK, encoding="utf-8")
    folder, path = tmp_path / "out", os.pathsep.join([str(tmp_path), str(ROOT)])
    profiles = ["grappler", "mixed+buckets+openvino"]
    command = [sys.executable, "-m", "nq", "compare", "--data", data, "--model", tiny_model]
    command += ["--profiles", *profiles, "--rounds", "1", "--output", folder]
    store = f"sqlite:///{tmp_path}/mlflow.db"
    command += ["--tracking-uri", store]

    def start(*options: str) -> subprocess.Popen[str]:
        arguments = [*map(str, command), *options]
        environment = {**os.environ, "PYTHONPATH": path}
        pipe = subprocess.PIPE
        return subprocess.Popen(arguments, env=environment, stdout=pipe, stderr=pipe, text=True)

    killed, deadline = start(), time.monotonic() + TIMEOUT_S
    while len(kept(folder)) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1)  # so that a run goes on
    children = Path(f"/proc/{killed.pid}/task/{killed.pid}/children").read_text().split()
    killed.send_signal(signal.SIGKILL)
    killed.communicate(timeout=TIMEOUT_S)
    while any(Path("/proc", child).exists() for child in children):
        assert time.monotonic() < deadline, "a run goes on after its comparison was killed"
        time.sleep(0.05)
    before = kept(folder)
    assert before[:2] == [(0, "baseline"), (0, "grappler")]
    times = {path: path.stat().st_mtime_ns for path in (folder / storage.MEASURED).iterdir()}

    out, err = start("--json").communicate(timeout=TIMEOUT_S)
    result = json.loads(out)
    assert without_progress(err) == "nq: error: 1 profile failed: mixed+buckets+openvino\n"
    after = kept(folder)
    assert all(path.stat().st_mtime_ns == time_ns for path, time_ns in times.items())
    assert after == [(n, p) for n in (0, 1) for p in ("baseline", "grappler")]
    *rows, failed = result["rows"]
    assert {row["profile"] for row in rows} == {"baseline", "grappler"} >= {result["take"]}
    assert "run pip install 'nq-pipeline[openvino]'" in failed["error"]
    for row in rows:
        assert row["low"] == row["windows_per_s"] == row["high"] > 0
        assert row["first_start_s"] > 0 and row["memory_mb"] > 100 and row["changed"] == 0
        assert row["micro_f1"] is not None
    job = nq.Job([data], tiny_model, "auto", root=tmp_path)
    assert choose_profile(job)[0] == result["take"]
    page = Path(result["page"]).read_text("utf-8")
    assert page.count('<th scope="row">') == 3 and "not installed" in page
    client = connect(store)
    experiment = client.get_experiment_by_name(DEFAULT_EXPERIMENT)
    recorded = client.search_runs([experiment.experiment_id])
    assert len({run.data.tags["comparison"] for run in recorded}) == 1
    assert {run.info.run_name for run in recorded} == {"baseline", "grappler"}
    order = [{"field_name": f"metrics.{tracking.WINDOWS_PER_S}", "ascending": False}]
    models = client.search_logged_models([experiment.experiment_id], order_by=order)
    assert [model.params["profile"] for model in models] == [row["profile"] for row in rows]
    for run in recorded:
        (point,) = client.get_metric_history(run.info.run_id, "rounds.predict_s")
        assert point.step == 1 and run.data.metrics[tracking.MICRO_F1] is not None
        (model,) = [one for one in models if one.source_run_id == run.info.run_id]
        assert model.name == f"{tiny_model.name} · {run.info.run_name}"
        figures = {metric.key: metric.value for metric in model.metrics}
        assert figures[tracking.PREDICT_S] == point.value and figures[tracking.CHANGED] == 0
        assert not [name for name in figures if name.startswith("rounds/")]
        (dataset,) = run.inputs.dataset_inputs
        assert {metric.dataset_digest for metric in model.metrics} == {dataset.dataset.digest}
        files = {file.path for file in client.list_artifacts(run.info.run_id)}
        is_taken = run.info.run_name == result["take"]
        assert files == ({"comparison.json", "compare.html", "compare.json"} if is_taken else set())
        assert (run.data.tags[tracking.DESCRIPTION] == result["reason"]) == is_taken
        assert result["take"] in run.data.tags[tracking.DESCRIPTION]
    parts = {f"{number:03d}-{profile}.json" for number, profile in after}
    assert {path.name for path in own_paths(folder, COMPARISON)} == {
        *("compare.json", "compare.html", storage.MEASURED, "request.json", *parts)
    }

    whole = storage.read_json(folder / "compare.json")
    assert whole["machine"] == machine()
    assert {run["device"] for run in whole["runs"]} == {"CPU"}

    common = ["compare", "--model", str(tiny_model), "--output", str(folder), "--data"]
    other = nq_records.write_lines(tmp_path / "other.jsonl", [nq_records.simplified(9)])
    for options, differing in (([str(data), "--limit", "2"], "options"), ([str(other)], "data")):
        assert console([*common, *options]) == 1
        (line,) = capfd.readouterr().err.splitlines()
        assert f"out has measurements of other {differing}: give another --output" in line
    moved = Path(shutil.copytree(tiny_model, tmp_path / "moved"))
    rows = nq.compare([data], ["grappler"], model=moved, rounds=1, output=folder)
    assert [row.profile for row in rows] == [row["profile"] for row in result["rows"][:2]]
    assert kept(folder) == after

    file = folder / COMPARED
    unrecorded = storage.read_json(file) | {"recorded": []}
    storage.write_json(file, unrecorded)
    options = ["--profiles", "grappler", "--rounds", "1", "--tracking-uri", f"sqlite:///{data}"]
    assert console([*common, str(data), *options]) == 0
    assert capfd.readouterr().err.count("not recorded") == 1  # not once for each profile
    assert storage.read_json(file) == unrecorded  # so that a repetition records it


def answer_here(commands: Commands, profile: str, *options: object) -> dict[str, Any]:
    """Runs ``nq answer`` in this process: that of its own is tested above."""
    result: dict[str, Any] = commands.json("answer", *options, "--no-track", "--profile", profile)
    return {**result, "wall_s": result["time"]["total_s"]}


def test_a_run_beside_other_programs_is_repeated_once_and_marked(
    data: Path,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    commands: Commands,
) -> None:
    """The runs are real; the marks are those of the test. Removed answers are given again."""
    busy = iter([True, True, True, True, False, False])

    def answer(profile: str, options: Any) -> dict[str, Any]:
        result = answer_here(commands, profile, *options)
        return result | {"speed_comparable": f"no: {BUSY}" * next(busy)}

    monkeypatch.setattr(compare, "answer_in_process", answer)
    monkeypatch.chdir(tmp_path)
    rows = compare.compare(data, "baseline", model=tiny_model, rounds=2, limit=2)
    assert [row.busy for row in rows] == [1]
    shutil.rmtree(next(rows.folder.glob("baseline-*")))
    options = ["--limit", "2"]
    again = compare.compare([data], ["baseline"], model=tiny_model, rounds=2, options=options)
    (metrics,) = again.folder.glob("baseline-*/metrics.json")
    assert json.loads(metrics.read_bytes())["examples"] == 2
    assert [row.windows_per_s for row in again] == [row.windows_per_s for row in rows]
    assert not list(busy)
    page = (rows.folder / "compare.html").read_text("utf-8")
    assert "other programs took much of the processor in 1 round<" in page


@pytest.mark.filterwarnings("ignore:For backward compatibility, 'str' dtypes")  # in MLflow
def test_a_profile_that_fails_in_a_later_round_has_one_row_and_new_ones_are_recorded(
    data: Path,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    commands: Commands,
) -> None:
    """The runs are real, but the second one of grappler."""
    fails = iter([False, True])

    def answer(profile: str, options: Any) -> dict[str, Any]:
        if profile == "grappler" and next(fails):
            raise Error("out of memory")
        return answer_here(commands, profile, *options)

    monkeypatch.setattr(compare, "answer_in_process", answer)
    monkeypatch.chdir(tmp_path)
    track, recorded = TrackingConfig(f"sqlite:///{tmp_path}/mlflow.db"), []
    for profile in ("grappler", "buckets"):
        rows = compare.compare([data], [profile], model=tiny_model, rounds=1, track=track)
        recorded += [row.profile for row in rows if not row.error]
        if profile == "grappler":
            assert [(row.profile, row.error) for row in rows[1:]] == [(profile, "out of memory")]
    client = connect(str(track.uri))
    experiment = client.get_experiment_by_name(DEFAULT_EXPERIMENT)
    runs = client.search_runs([experiment.experiment_id])
    assert sorted(run.info.run_name for run in runs) == sorted(recorded)
    assert "options of nq answer alone" in commands.error("compare", "--register", "x", code=2)


def test_changed_answers_are_told_and_data_without_gold_have_no_f1(
    data: Path,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    commands: Commands,
) -> None:
    """The runs are real; those of the other profile have thresholds that let no answer pass."""
    records = map(json.loads, data.read_text("utf-8").splitlines())
    bare = [{key: value for key, value in one.items() if key != "annotations"} for one in records]
    file = nq_records.write_lines(tmp_path / "bare.jsonl", bare)

    def answer(profile: str, options: Any) -> dict[str, Any]:
        threshold = "-9" if profile == "baseline" else "9"
        return answer_here(commands, profile, *options, "--set", f"long_threshold={threshold}")

    monkeypatch.setattr(compare, "answer_in_process", answer)
    base, other = compare.compare(
        *([file], ["grappler"]), model=tiny_model, rounds=1, output=tmp_path / "out"
    )
    if base.profile != "baseline":
        base, other = other, base
    assert (base.changed, other.changed, other.micro_f1) == (0, QUESTIONS, None)
    page = (tmp_path / "out" / "compare.html").read_text("utf-8")
    assert page.count('"question":') == QUESTIONS and "micro F1" not in page


def test_a_profile_is_measured_in_batches_and_windows_of_several_sizes(
    data: Path,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    commands: Commands,
) -> None:
    monkeypatch.setattr(
        shapes, "answer_in_process", lambda name, options: answer_here(commands, name, *options)
    )
    command = ["compare", "--data", data, "--model", tiny_model, "--rounds", "1"]
    command += ["--output", tmp_path / "out", "--profiles", "grappler"]
    sizes = ["--batch-sizes", "1", "4", "--max-seq-lengths", "24", "32"]
    rows = commands.json(*command, *sizes)["rows"]
    cells = [(row["batch_size"], row["max_seq_length"]) for row in rows]
    assert cells == [(1, 24), (1, 32), (4, 24), (4, 32)]
    assert all(row["windows_per_s"] > 0 < row["questions_per_s"] for row in rows)
    measured = tmp_path / "out" / storage.MEASURED
    times = {path: path.stat().st_mtime_ns for path in measured.iterdir()}
    damaged = measured / "001-4-32.json"
    damaged.write_bytes(b"{")
    text = commands.out(*command, *sizes)
    again = {path for path, time_ns in times.items() if path.stat().st_mtime_ns != time_ns}
    assert again == {damaged}  # nothing else is repeated
    assert "windows/s, batch  24 pieces  32 pieces" in text and "Fastest: batch of " in text
    others = [*command, "--limit", "1", "--batch-sizes", "1"]
    assert "has measurements of other options" in commands.error(*others)
    assert "give one profile" in commands.error("compare", "--batch-sizes", "1", code=2)
    assert parser().parse_args(["--batch-size", "1"]).unknown == ["--batch-size", "1"]
