"""Runs whose questions a runner of Beam answers: equal to runs without Beam, and their errors."""

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nq import storage
from nq.beam.files import BEAM
from nq.bundle import bundled_sample
from nq.commands.main import console
from nq.config import TrackingConfig
from nq.errors import Error
from nq.evaluation.answer_files import PREDICTIONS
from nq.inference.profile import default_choice
from nq.lab.compare import compare_two
from nq.lab.run_page import write_report
from nq.model.model import Model
from nq.runs.config import Beam
from nq.runs.folder import JOB, FinishedRun
from nq.runs.job import Job
from nq.runs.measure import BESIDE
from nq.runs.result import Result
from nq.runs.run import run
from nq.storage import UNFINISHED
from nq.worker import ROOT
from tests.beam.folder_file_system import PLUGIN, uri
from tests.support.child_processes import first_line, started
from tests.support.folders import write
from tests.support.jobs import chosen, flat_job, predictions
from tests.support.nq_records import changed, simplified, write_lines
from tests.test_missing_packages import BLOCK

LOCAL = "FnApiRunner"
FILES = (PREDICTIONS, "skipped.jsonl", "nbest.jsonl", "kaggle.csv", "squad.json")
FORMATS = "nbest,kaggle,squad"
BEAM_ONLY = {"beam", "time", "windows_per_s", "peak_memory_bytes", "speed_comparable"}
DIFFERENT = BEAM_ONLY | {"output", "run_id", "started_at", "ended_at", "read_windows"}
"""Entries of ``metrics.json`` that a runner may change; it computes repeated records too."""
EMBEDDED = ["--job_endpoint=embed", "--job_server_timeout=600"]


@pytest.fixture
def data(tmp_path: Path) -> list[str]:
    """Two files with good and bad records, repeated ids, and a question without gold."""
    lines: list[Any] = [simplified(i, words=20 + 9 * i) for i in range(7)]
    write_lines(tmp_path / "a.jsonl", [*lines[:3], b"bad", b"", *lines[3:], lines[1]])
    without_gold = changed(simplified(8), "annotations", [])
    write_lines(tmp_path / "b.jsonl", [b"{}", without_gold, lines[2], simplified(9, words=300)])
    return [str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")]


def job(
    data: Sequence[str | Path],
    model: Path,
    output: Path,
    runner: str | None = LOCAL,
    beam_options: Sequence[str] = (),
    temp: str | None = None,
    **more: Any,
) -> Job:
    beam = Beam(runner, beam_options, temp) if runner else None
    return flat_job(data, model, "openvino", output=output, formats=FORMATS, beam=beam, **more)


def assert_equal(found: Result, expected: Result) -> None:
    for name in FILES:
        assert (found.folder / name).read_bytes() == (expected.folder / name).read_bytes(), name
    metrics, others = (
        json.loads((result.folder / "metrics.json").read_bytes()) for result in (found, expected)
    )
    assert metrics.keys() - {"beam"} == others.keys()
    different = {name for name in others if metrics[name] != others[name]}
    assert different <= DIFFERENT
    assert found.rows == expected.rows
    descriptions = [json.loads((r.folder / JOB).read_bytes()) for r in (found, expected)]
    assert descriptions[0]["request"]["inputs"] == descriptions[1]["request"]["inputs"]
    assert descriptions[0]["beam"] == metrics["beam"]


def assert_same_answers(found: Result, expected: Result) -> None:
    """Of other batches the low bits of the scores may differ; no answer does."""
    compared = compare_two(FinishedRun(found.folder), FinishedRun(expected.folder))
    assert (compared.n_questions, compared[0].changed) == (expected.examples, 0)
    for name in ("long_answer_score", "short_answers_score"):
        scores = [[p[name] for p in predictions(one.folder)] for one in (found, expected)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-5)


@pytest.mark.slow
def test_a_runner_gives_the_files_of_a_run_without_beam(
    data: list[str], tiny_model: Path, tmp_path: Path
) -> None:
    import mlflow

    expected = run(job(data, tiny_model, tmp_path / "local", None), table_rows=5)
    seen: list[tuple[int, int]] = []
    address = f"sqlite:///{tmp_path / 'runs.db'}"
    found = run(
        job(data, tiny_model, tmp_path / "beam"),
        track=TrackingConfig(address, "e"),
        table_rows=5,
        progress=lambda new, total: seen.append((new, total)),
    )
    assert_equal(found, expected)
    assert found.totals.dead_letters == 4 and found.examples == 9
    assert found.beam is not None
    metrics = found.beam["metrics"]
    assert (metrics["records"], metrics["dead_letters"]) == (13, 2)  # two more have repeated ids
    assert metrics["windows"] == found.totals.counters.computed_windows > found.totals.windows
    assert metrics["model_s"] > 0 and metrics["models"] == 1
    assert sum(new for new, _ in seen) == 11 and {total for _, total in seen} == {0}
    assert not [path for path in found.folder.iterdir() if path.name.startswith(UNFINISHED)]
    phases = [s for n, s in found.measured.time.items() if n not in BESIDE]
    assert sum(phases) == pytest.approx(found.measured.time["total_s"])
    recorded = mlflow.MlflowClient(address).get_run(found.run_id).data
    of_pipeline = {name: recorded.metrics[f"beam.{name}"] for name in metrics}
    assert of_pipeline == pytest.approx(metrics, abs=1e-3)
    assert recorded.params["runner"] == LOCAL
    assert recorded.tags["beam.job_name"] == found.beam["job_name"]


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["prune+buckets", "rescore+mixed"])
def test_two_models_and_profiles(
    profile: str, data: list[str], tiny_model: Path, tiny_mpnet: Path, tmp_path: Path
) -> None:
    jobs = [
        Job(
            data[:1],
            Model.open(tiny_mpnet, ranker=tiny_model),
            profile,
            output=tmp_path / str(runner),
            formats=FORMATS,
            beam=Beam(runner) if runner else None,
        )
        for runner in (LOCAL, None)
    ]
    found, expected = map(run, jobs)
    assert_same_answers(found, expected)
    assert found.totals.reader_windows == expected.totals.reader_windows > 0


@pytest.mark.slow
def test_the_default_profile_is_that_of_a_local_run(
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    runs = []
    for name, options in (("local", []), ("beam", ["--runner", LOCAL])):
        arguments = ["answer", "--model", str(tiny_model), "--no-track", "--output", name]
        assert console([*arguments, *options]) == 0
        lines = capsys.readouterr().out.splitlines()
        runs.append(
            (
                (tmp_path / name / PREDICTIONS).read_bytes(),
                json.loads((tmp_path / name / JOB).read_bytes())["job"]["profile"],
                [line for line in lines if line.startswith("profile auto: ")],
            )
        )
    assert runs[0] == runs[1]
    assert runs[0][1] == default_choice("CPU") and len(runs[0][2]) == 1


@pytest.mark.slow
def test_the_sample_by_two_processes(tiny_model: Path, tmp_path: Path) -> None:
    sample = [bundled_sample()]
    expected = run(job(sample, tiny_model, tmp_path / "local", None, limit=12))
    two = job(sample, tiny_model, tmp_path / "two", workers=2, limit=12)
    found = run(two, table_rows=3)
    assert_same_answers(found, expected)
    assert found.beam is not None and found.beam["workers"] == 2
    read = FinishedRun(found.folder)
    assert len(read.predictions) == found.examples
    assert write_report(found.folder).page.is_file()


@pytest.mark.slow
def test_files_model_and_temporary_files_with_uris(
    data: list[str], tiny_model: Path, tmp_path: Path
) -> None:
    expected = run(job(data, tiny_model, tmp_path / "local", None))
    killed, other, output = "0123456789ab", "ab0123456789", tmp_path / "beam"
    for name in (killed, other):
        left = write(tmp_path / "temp" / f"nq-{name}" / "beam-temp-results-0f" / "ab-1.results")
    with storage.hold(output / f"{UNFINISHED}{killed}", storage.PART):
        write(output / f"{UNFINISHED}{killed}" / "workers.log")
    write(output / storage.MARK, '{"kind": "run"}')
    by_uri = job(
        [uri(tmp_path / "*.jsonl")],
        tiny_model,
        output,
        temp=uri(tmp_path / "temp"),
        beam_options=[f"--beam_plugins={PLUGIN}"],
        limit=14,
    )
    found = run(by_uri)
    auto = [replace(by_uri, files=files) for files in (map(uri, data), data)]
    profiles = [chosen(one, BEAM) for one in auto]
    assert profiles[0] == profiles[1]
    for name in (PREDICTIONS, "nbest.jsonl", "kaggle.csv"):
        assert (found.folder / name).read_bytes() == (expected.folder / name).read_bytes()
    letters = (found.folder / "skipped.jsonl").read_text().splitlines()
    assert [json.loads(letter)["file"] for letter in letters] == [
        uri(one) for one in data for _ in "12"
    ]
    assert json.loads((found.folder / JOB).read_bytes())["job"]["files"] == list(map(uri, data))
    assert [path for path in (tmp_path / "temp").rglob("*") if path.is_file()] == [left]


@contextlib.contextmanager
def worker_pool(folder: Path, **environment: str) -> Iterator[list[str]]:
    """The options for a pool of Beam's workers in another folder."""
    (folder / "elsewhere").mkdir()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    code = (
        "import sys, time; from apache_beam.runners.worker import worker_pool_main as pool\n"
        "address, server = pool.BeamFnExternalWorkerPoolServicer.start(use_process=True)\n"
        "print(address, flush=True); sys.stdin.read(); server.stop(0)"
    )
    pool = started("-c", code, folder=folder / "elsewhere", PATH=path, **environment)
    with pool as process:
        address = f"--environment_config={first_line(process)}"
        yield [*EMBEDDED, "--environment_type=EXTERNAL", address]
        process.communicate()  # which closes its input, at which it stops the workers


@pytest.mark.slow
def test_workers_in_another_folder(
    data: list[str], tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They see relative paths of this process, of files and of pages, as paths from the root."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "lake.txt").write_text("The lake is old.\n\nThe lake is deep.")
    write_lines(tmp_path / "q.jsonl", [{"id": 7, "question": "is it deep", "page": "lake"}])
    names = ["a.jsonl", "b.jsonl", "q.jsonl"]
    with worker_pool(tmp_path, PYTHONPATH=ROOT) as options:
        found, expected = (
            run(job(names, tiny_model, Path(folder), runner, options, pages="pages"))
            for folder, runner in (("beam", "PortableRunner"), ("local", None))
        )
    assert_equal(found, expected)
    assert found.beam is not None and found.beam["job_id"].startswith("job-")


@pytest.mark.slow
def test_workers_without_the_engine(data: list[str], tiny_model: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(BLOCK, encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    with worker_pool(tmp_path, PYTHONPATH=path, MISSING="openvino") as options:
        runner = job(data, tiny_model, tmp_path / "beam", "PortableRunner", options)
        with pytest.raises(Error) as error:
            run(runner, profile="buckets+openvino")
    assert "pip install 'nq-pipeline[openvino]'" in str(error.value)
    assert "--profile" in str(error.value) and "\n" not in str(error.value)


def test_a_job_server_that_is_not_there(data: list[str], tiny_model: Path, tmp_path: Path) -> None:
    options = ["--job_endpoint=localhost:9", "--job_server_timeout=1"]
    with pytest.raises(Error, match="localhost:9 "):
        run(job(data, tiny_model, tmp_path / "beam", "PortableRunner", beam_options=options))
    assert not (tmp_path / "beam").exists()
