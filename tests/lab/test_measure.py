"""Tests ``nq compare`` by real comparisons with a tiny model, killed and continued."""

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, repeat
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import pytest

import nq
from nq import extras, storage, tracking
from nq.config import TrackingConfig
from nq.errors import ChangedError, Error
from nq.inference.profile import CANDIDATES, default_choice
from nq.lab import measure, rounds
from nq.lab.choose import COMPARED
from nq.lab.rows import Row
from nq.memo import Memo
from nq.mlflow_store import DEFAULT_EXPERIMENT, connect
from nq.runs.folder import FinishedRun
from nq.runs.measure import BUSY, machine
from nq.storage import own_paths
from tests.conftest import Commands
from tests.lab.conftest import QUESTIONS
from tests.support import nq_records
from tests.support.child_processes import wait_until
from tests.support.jobs import answer_here, chosen

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:For backward compatibility, 'str' dtypes"),  # in MLflow
]
ROOT = Path(__file__).parents[2]
BLOCK = "import sys\nsys.modules['onnxruntime'] = None\n"
MISSING, GIVEN = "buckets+onnx", "openvino"


def kept(folder: Path) -> list[tuple[int, str]]:
    """Returns round and profile of each run that a comparison has kept."""
    parts = (path.stem.split("-") for path in (folder / measure.MEASURED).glob("[0-9]*.json"))
    return sorted((int(number), profile) for number, profile in parts)


def recorded_runs(store: str) -> list[Any]:
    client = connect(store)
    experiment = client.get_experiment_by_name(DEFAULT_EXPERIMENT)
    return list(client.search_runs([experiment.experiment_id]))


@dataclass(frozen=True)
class Continued:
    """A comparison of one round that was killed and continued; ONNX Runtime is missing."""

    folder: Path
    store: str
    given: str  # id of the run that MLFLOW_RUN_ID names
    before: dict[Path, int]  # times of what was kept when it was killed
    result: dict[str, Any]
    err: str


@pytest.fixture(scope="module")
def continued(data: Path, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Continued:
    """Kills a comparison in its first round, checks that its run ends too, and continues it."""
    tmp_path = tmp_path_factory.mktemp("continued")
    (tmp_path / "sitecustomize.py").write_text(BLOCK, encoding="utf-8")
    folder, path = tmp_path / "runs" / "out", os.pathsep.join([str(tmp_path), str(ROOT)])
    store = f"sqlite:///{tmp_path}/mlflow.db"
    command = [sys.executable, "-m", "nq", "compare", "--data", data, "--model", tiny_model]
    command += ["--profiles", GIVEN, MISSING, "--rounds", "1"]
    command += ["--output", folder, "--tracking-uri", store, "--limit", QUESTIONS]
    client = connect(store)
    given = client.create_run(client.create_experiment(DEFAULT_EXPERIMENT)).info.run_id

    def start(*options: str) -> subprocess.Popen[str]:
        arguments = [*map(str, command), *options]
        environment = {**os.environ, "PYTHONPATH": path, "MLFLOW_RUN_ID": given}
        pipe = subprocess.PIPE
        return subprocess.Popen(arguments, env=environment, stdout=pipe, stderr=pipe, text=True)

    with start() as killed:
        process = psutil.Process(killed.pid)
        wait_until(lambda: len(kept(folder)) >= 2, killed)
        wait_until(process.children, killed)  # the next run
        running = process.children(recursive=True)
        killed.kill()
        killed.communicate()
    wait_until(lambda: not any(one.is_running() for one in running))
    before = {path: path.stat().st_mtime_ns for path in (folder / measure.MEASURED).iterdir()}
    with start("--json") as continuing:
        out, err = continuing.communicate()
    return Continued(folder, store, given, before, json.loads(out), err)


def test_a_comparison_that_was_killed_is_continued(
    continued: Continued, data: Path, tiny_model: Path
) -> None:
    """A profile that is not installed has a row with the reason; one round gives no verdict."""
    assert all(path.stat().st_mtime_ns == time_ns for path, time_ns in continued.before.items())
    assert {"000-baseline.json", "001-baseline.json"} <= {path.name for path in continued.before}
    *rows, failed = continued.result["rows"]
    assert continued.err.splitlines()[-1].endswith(f"1 profile failed: {MISSING}")
    assert failed["profile"] == MISSING and "nq-pipeline[onnx]" in failed["error"]
    names = sorted(row["profile"] for row in rows)
    assert set(names) == {"baseline", GIVEN, default_choice("CPU")}
    assert kept(continued.folder) == [(0, "baseline"), *((1, name) for name in names)]
    for row in rows:
        assert row["low"] == row["windows_per_s"] == row["high"] > 0
        assert row["first_start_s"] > 0 and row["memory_mb"] > 100
        assert row["changed"] == 0 or "mixed" in row["profile"]
        assert row["micro_f1"] is not None
    page = Path(continued.result["page"]).read_text("utf-8")
    assert page.count('<th scope="row">') == len(continued.result["rows"])
    parts = {f"{number:03d}-{profile}.json" for number, profile in kept(continued.folder)}
    assert {path.name for path in own_paths(continued.folder, measure.COMPARISON)} == {
        *("compare.json", "compare.html", measure.MEASURED, "request.json", *parts)
    }
    whole = storage.read_json(continued.folder / COMPARED)
    assert whole["machine"] == machine() and {run["device"] for run in whole["runs"]} == {"CPU"}
    assert continued.result["take"] == ""
    job = nq.Job([data], tiny_model, root=continued.folder.parent, limit=QUESTIONS)
    assert chosen(job)[0] == default_choice("CPU")


def test_the_runs_of_a_comparison_are_recorded_as_those_of_an_answering(
    continued: Continued, tiny_model: Path
) -> None:
    *rows, _ = continued.result["rows"]
    client, recorded = connect(continued.store), recorded_runs(continued.store)
    (whole,) = [run for run in recorded if tracking.PARENT not in run.data.tags]
    assert (whole.info.run_id, whole.info.status) == (continued.given, "FINISHED")
    assert whole.data.tags["output"] == str(continued.folder)
    assert whole.data.tags[tracking.DESCRIPTION] == continued.result["reason"]
    files = {file.path for file in client.list_artifacts(whole.info.run_id)}
    assert files == {"comparison.json", "compare.html", "compare.json"}
    recorded = [run for run in recorded if run is not whole]
    assert {run.data.tags[tracking.PARENT] for run in recorded} == {whole.info.run_id}
    of = f"{tiny_model.name} · questions.jsonl"
    assert {run.info.run_name for run in recorded} == {f"{row['profile']} · {of}" for row in rows}
    order = [{"field_name": f"metrics.{tracking.WINDOWS_PER_S}", "ascending": False}]
    models = client.search_logged_models([whole.info.experiment_id], order_by=order)
    assert [model.params["profile"] for model in models] == [row["profile"] for row in rows]
    for run in recorded:
        (point,) = client.get_metric_history(run.info.run_id, "rounds.predict_s")
        assert point.step == 1
        assert {tracking.MICRO_F1, "long_f1", "short_f1"} <= set(run.data.metrics)
        params = run.data.params
        assert (params["model"], params["limit"]) == (tiny_model.name, str(QUESTIONS))
        assert params["precision"] == ("bfloat16" if "mixed" in params["profile"] else "float32")
        assert {"batch_size", "windows.max_seq_length", "decision.rule", "rounds"} <= set(params)
        (model,) = [one for one in models if one.source_run_id == run.info.run_id]
        assert model.name == f"{tiny_model.name} · {params['profile']}"
        engine = "openvino" if "openvino" in params["profile"] else "tensorflow"
        assert model.params.items() - params.items() == {("engine", engine)}
        figures = {metric.key: metric.value for metric in model.metrics}
        assert figures[tracking.PREDICT_S] == point.value
        assert figures[tracking.CHANGED] == 0 or "mixed" in params["profile"]
        (dataset,) = run.inputs.dataset_inputs
        assert {metric.dataset_digest for metric in model.metrics} == {dataset.dataset.digest}
        assert continued.result["reason"] in run.data.tags[tracking.DESCRIPTION]


def test_a_comparison_is_not_mixed_with_another(
    continued: Continued, data: Path, tiny_model: Path, tmp_path: Path, commands: Commands
) -> None:
    common = ["compare", "--model", tiny_model, "--output", continued.folder, "--data"]
    other = nq_records.write_lines(tmp_path / "other.jsonl", [nq_records.simplified(9)])
    for options, differing in (([data], "options"), ([other, "--limit", QUESTIONS], "data")):
        line = commands.error(*common, *options)
        assert differing in line and "--output" in line


def test_a_failure_of_the_store_is_told_once_and_a_model_may_move(
    continued: Continued,
    data: Path,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    commands: Commands,
) -> None:
    monkeypatch.setitem(CANDIDATES, "CPU", (GIVEN,))
    before, file = kept(continued.folder), continued.folder / COMPARED
    storage.write_json(file, storage.read_json(file) | {"recorded": []})
    moved = Path(shutil.copytree(tiny_model, tmp_path / "moved"))
    command = ["compare", "--model", moved, "--output", continued.folder, "--data", data]
    command += ["--profiles", GIVEN, "--rounds", "1", "--limit", QUESTIONS]
    monkeypatch.setattr(measure, "reopened", lambda memo: [])  # this machine may be busy
    commands.out(*command, "--tracking-uri", f"sqlite:///{data}")
    assert kept(continued.folder) == before
    assert commands.err.count("not recorded") == 1  # not once for each profile
    assert storage.read_json(file)["recorded"] == []  # so that a repetition records it


def test_the_device_is_asked_for_without_python_files_of_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("keras", "nq", "random", "tensorflow"):
        (tmp_path / f"{name}.py").write_text("open('ran', 'w')", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(extras, "has_gpu", lambda: True)  # also where there is none
    assert rounds.device_in_process() in ("CPU", "GPU")
    assert not (tmp_path / "ran").exists()


Answer = Callable[[nq.Job], dict[str, Any]]


@dataclass(frozen=True)
class Here:
    """Comparisons whose runs are in this process: those in one of their own are tested above.

    The working folder is a new one, and one profile is the default of this machine.
    """

    data: Path
    model: Path
    commands: Commands
    patch: pytest.MonkeyPatch
    default: str = GIVEN

    def use(self, answer: Answer) -> None:
        """Has runs done by a function."""
        self.patch.setattr(rounds, "answer_in_process", answer)

    def mark(self, busy: Iterator[bool]) -> None:
        """Marks runs as those beside other programs or not."""

        def answer(job: nq.Job) -> dict[str, Any]:
            verdict = f"no: {BUSY}" if next(busy) else "yes"
            return answer_here(job) | {"speed_comparable": verdict}

        self.use(answer)


@pytest.fixture
def here(
    data: Path,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    commands: Commands,
) -> Here:
    here = Here(data, tiny_model, commands, monkeypatch)
    monkeypatch.setitem(CANDIDATES, "CPU", (here.default,))
    monkeypatch.chdir(tmp_path)
    here.use(answer_here)
    return here


def test_a_busy_run_is_repeated_once_and_its_round_does_not_count(here: Here) -> None:
    busy = iter([False, True, True, False, True, False, *[False] * 4])
    here.mark(busy)
    phases, totals = list[str](), set[int]()
    rows = nq.compare(
        *([here.data], ["baseline"]),
        model=here.model,
        rounds=3,
        progress=lambda new, total: totals.add(total),
        on_phase=phases.append,
    )
    assert totals == {1 + 3 * 2}  # what auto takes is measured, too
    assert [name.split(",")[0] for name in phases if "repeating" in name] == ["baseline"] * 2
    assert {row.profile: row.busy for row in rows} == {"baseline": 0, here.default: 0}
    runs = storage.read_json(rows.folder / COMPARED)["runs"]
    for row in rows:
        own = [run["windows_per_s"] for run in runs if run["profile"] == row.profile]
        assert row.windows_per_s == median(own[-2:]) and len(row.ratios) == 2
    assert list(busy) == [False]


def test_answers_that_were_removed_or_replaced_are_given_again(here: Here) -> None:
    speeds, other = [], nq.Job([here.data], here.model, GIVEN, limit=2)
    for is_replaced in (False, True):
        rows = nq.compare(str(here.data), "baseline", model=here.model, rounds=1, limit=2)
        (metrics,) = rows.folder.glob("baseline-*/metrics.json")
        result = json.loads(metrics.read_bytes())
        assert (result["examples"], result["profile"]) == (2, "baseline")
        speeds.append({row.profile: row.windows_per_s for row in rows})
        if is_replaced:  # such as by the option --output
            nq.run(replace(other, output=metrics.parent))
        else:
            shutil.rmtree(metrics.parent)
    assert all(one == speeds[0] for one in speeds)


def test_the_time_that_is_left_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    steps = [(1, Row(f"profile {number}")) for number in range(3)]
    caplog.set_level("INFO", "nq")
    run = {"label": "profile 0"}
    rounds.run_all(steps, lambda number, one: run, Memo(tmp_path), lambda done, total: None)
    (first, *_) = caplog.messages
    assert first.startswith("2 runs left: about ") and first.endswith(" minutes")


def test_busy_rounds_give_no_verdict_and_are_measured_again(here: Here, tmp_path: Path) -> None:
    here.mark(chain([False], repeat(True, 8), repeat(False)))
    commands, store, comparable = here.commands, f"sqlite:///{tmp_path}/mlflow.db", list[str]()
    command = ["compare", "--data", here.data, "--model", here.model, "--rounds", "2"]
    command += ["--profiles", "baseline", "--tracking-uri", store]
    job = nq.Job([here.data], here.model)
    for is_busy in (True, False):
        result = commands.json(*command)
        folder = str(Path(result["page"]).parent.relative_to(tmp_path))
        profile, why = chosen(job)
        assert profile == (here.default if is_busy else result["take"])
        assert (folder in why, bool(result["take"])) == (not is_busy, not is_busy)
        rows = [run for run in recorded_runs(store) if tracking.PARENT in run.data.tags]
        comparable += sorted(run.data.tags[tracking.SPEED_COMPARABLE] for run in rows)
    assert comparable == [f"no: {BUSY}"] * 4 + ["yes"] * 2  # the first two are there twice
    assert commands.json("compare", "--forget") == {"forgotten": {folder: result["take"]}}
    profile, why = chosen(job)
    assert profile == here.default and folder not in why
    assert commands.json("compare", "--forget") == {"forgotten": {}}
    assert commands.json(*command)["take"] == result["take"]
    assert folder in commands.out("compare", "--forget")


def test_three_busy_rounds_give_a_verdict_that_auto_does_not_take(here: Here) -> None:
    speeds = {"baseline": 10.0, here.default: 5.0}

    def answer(job: nq.Job) -> dict[str, Any]:
        result = answer_here(job)
        times = {**result["time"], "predict_s": speeds[str(job.profile)]}
        return {**result, "time": times, "speed_comparable": f"no: {BUSY}"}

    here.use(answer)
    rows = nq.compare([here.data], ["baseline"], model=here.model, rounds=3)
    assert rows.take == here.default and "on a busy machine" in rows.reason
    assert str(rows.folder) not in chosen(nq.Job([here.data], here.model))[1]


CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "data.jsonl": lambda data: data.replace(b"tower", b"bridge"),
    "model/model.safetensors": lambda data: data[:-4] + bytes(4),
    "pages/a.txt": lambda data: data + b" More.",
}


@pytest.mark.parametrize(
    ("changed", "run", "is_put_back"),
    [
        ("data.jsonl", 1, True),
        ("data.jsonl", 3, False),
        ("model/model.safetensors", 1, False),
        ("model/model.safetensors", 3, True),
        ("pages/a.txt", 2, False),
    ],
)
def test_what_changes_while_it_is_compared_is_noticed(
    here: Here, tiny_model: Path, tmp_path: Path, changed: str, run: int, is_put_back: bool
) -> None:
    """Data and model are replaced in one of three runs; the next comparison knows none of it."""
    model = Path(shutil.copytree(tiny_model, tmp_path / "model"))
    settings = json.loads((model / "nq.json").read_bytes())
    del settings["weights"]  # their digests, which would refuse others
    (model / "nq.json").write_text(json.dumps(settings), encoding="utf-8")
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "a.txt").write_text("Ann keeps the tower.\n\nBob sleeps.", encoding="utf-8")
    records = [{"question": "who keeps the tower", "page": "a.txt", "answer": "Ann"}]
    data = nq_records.write_lines(tmp_path / "data.jsonl", records)
    file, numbers = tmp_path / changed, itertools.count(1)
    before = file.read_bytes()
    after = CHANGES[changed](before)
    assert after != before

    def answer(job: nq.Job) -> dict[str, Any]:
        is_now = next(numbers) == run
        if is_now:
            file.write_bytes(after)
        try:
            return answer_here(job)
        finally:
            if is_now and is_put_back:
                file.write_bytes(before)

    here.use(answer)
    output = tmp_path / "out"
    arguments: dict[str, Any] = {"model": model, "rounds": 1, "pages": pages, "output": output}
    with pytest.raises(ChangedError):
        nq.compare([data], ["baseline"], **arguments)
    assert not (output / measure.MEASURED).exists()
    file.write_bytes(before)
    rows = nq.compare([data], ["baseline"], **arguments)
    names = {run["label"]: run["name"] for run in storage.read_json(output / COMPARED)["runs"]}
    for one in rows:
        finished = FinishedRun(output / names[one.label])  # checks its data
        assert finished.description["models"] == nq.Model.open(model).key


def test_a_profile_that_fails_in_a_later_round_has_one_row_and_new_ones_are_recorded(
    here: Here, tmp_path: Path
) -> None:
    """The runs are real, but the second one of xla."""
    fails = iter([False, True])

    def answer(job: nq.Job) -> dict[str, Any]:
        if str(job.profile) == "xla" and next(fails):
            raise Error("out of memory")
        return answer_here(job)

    here.use(answer)
    track, recorded = TrackingConfig(f"sqlite:///{tmp_path}/mlflow.db"), []
    for profile in ("xla", "buckets"):
        rows = nq.compare([here.data], [profile], model=here.model, rounds=2, track=track)
        recorded += [row.profile for row in rows if not row.error]
        if profile == "xla":
            assert [(row.profile, row.error) for row in rows[2:]] == [(profile, "out of memory")]
    runs = recorded_runs(str(track.uri))
    names = [run.data.params["profile"] for run in runs if tracking.PARENT in run.data.tags]
    assert sorted(names) == sorted(recorded)


def test_profiles_are_measured_in_batches_and_windows_of_several_sizes(
    here: Here, tmp_path: Path
) -> None:
    command = ["compare", "--data", here.data, "--model", here.model, "--rounds", "1", "--no-track"]
    command += ["--output", tmp_path / "out", "--profiles", here.default]
    command += ["--batch-sizes", "1", "4", "--max-seq-lengths", "24", "--set", "doc_stride=7"]
    result = here.commands.json(*command)
    rows = {(row["profile"], row["batch_size"], row["max_seq_length"]) for row in result["rows"]}
    sizes = {(here.default, 1, 24), (here.default, 4, 24)}
    assert rows == {("baseline", None, None), (here.default, None, None)} | sizes
    assert all(row["windows_per_s"] > 0 < row["questions_per_s"] for row in result["rows"])
    jobs = [json.loads(path.read_bytes())["job"] for path in (tmp_path / "out").glob("*/job.json")]
    windows = [job["models"][0]["windows"] for job in jobs]
    assert {one["doc_stride"] for one in windows} == {7}
    run = {
        (job["profile"], job["batch_size"], one["max_seq_length"])
        for job, one in zip(jobs, windows, strict=True)
    }
    assert len(run) == 4 and sizes <= run
    measured = tmp_path / "out" / measure.MEASURED
    times = {path: path.stat().st_mtime_ns for path in measured.iterdir()}
    assert len(times) == len(["request.json"]) + 2 + 4  # round 0 has both window lengths
    damaged = measured / f"001-{here.default}-4-24.json"
    damaged.write_bytes(b"{")
    assert "batch" in here.commands.out(*command)
    again = {path for path, time_ns in times.items() if path.stat().st_mtime_ns != time_ns}
    assert again == {damaged}  # nothing else is repeated


def test_a_comparison_of_pages_that_were_edited_is_another(here: Here, tmp_path: Path) -> None:
    page = tmp_path / "pages" / "tower.txt"
    page.parent.mkdir()
    page.write_text("The tower was built in 1889.")
    lines = [{"id": 1, "question": "When was the tower built?", "page": "tower"}]
    file = nq_records.write_lines(tmp_path / "questions.jsonl", lines)
    command = ["compare", "--data", file, "--pages", page.parent, "--model", here.model]
    command += ["--rounds", "1", "--profiles", "baseline", "--no-track"]
    first = here.commands.json(*command)["page"]
    assert here.commands.json(*command)["page"] == first
    page.write_text("The tower was built in 1890.")
    assert here.commands.json(*command)["page"] != first
    assert "other pages" in here.commands.error(*command, "--output", str(Path(first).parent))
