"""``nq answer`` on a real Flink cluster, which the tests of this file share, and on Spark."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments import cluster as clusters
from experiments.cluster import Cluster
from experiments.clusters import install, processes
from nq.beam.pipelines import completed
from nq.bundle import bundled_sample
from nq.evaluation.answer_files import PREDICTIONS
from nq.runs.folder import JOB
from nq.storage import DEAD_LETTERS, UNFINISHED
from tests.support.child_processes import wait_until
from tests.support.terminal_output import without_progress

ROOT = Path(__file__).parents[2]
COPIES = 2
PROFILE = ["--profile", "openvino"]
BAD_LINES = b'{"question_text": "no page"}\n', b"no record\n"

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.extended,
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(install.missing_programs()) and "CI" not in os.environ,
        reason="needs Java and Maven to start a cluster",
    ),
]


@pytest.fixture(scope="module", autouse=True)
def quick_compiler() -> Iterator[None]:
    """Java compiles its code once and fast, since its programs end after a minute."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        yield


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two TaskManagers; a Flink that was fetched once is used again."""
    with clusters.running(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A job server in which Spark runs two tasks at a time; one that was fetched is used again."""
    folder = tmp_path_factory.mktemp("spark")
    with clusters.running(folder, runner=clusters.SPARK) as running:
        yield running
    assert not processes.find(folder)


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled questions, several times with ids of their own, and two bad lines."""
    records = [json.loads(line) for line in bundled_sample().read_bytes().splitlines()]
    lines = [
        json.dumps({**record, "example_id": copy * len(records) + i}).encode() + b"\n"
        for copy in range(COPIES)
        for i, record in enumerate(records)
    ]
    lines[3:3], lines[-2:-2] = BAD_LINES[:1], BAD_LINES[1:]
    path = tmp_path_factory.mktemp("questions") / "questions.jsonl"
    path.write_bytes(b"".join(lines))
    return path


class Answering:
    """The command ``nq answer`` in a process of its own."""

    def __init__(self, output: Path, model: Path, *options: str, cwd: Path = ROOT) -> None:
        self.output = output
        arguments = ["--no-track", "--json", "--model", str(model), "--output", str(output)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "nq.answer", *arguments, *options],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def result(self) -> dict[str, Any]:
        """Waits for a success; returns the summary."""
        output, errors = self.process.communicate()
        assert self.process.returncode == 0, errors
        summary: dict[str, Any] = json.loads(output)
        return summary

    def error(self) -> str:
        """Waits for a failure; returns its one line, without those of the progress."""
        output, errors = self.process.communicate()
        lines = without_progress(errors).splitlines()
        assert (self.process.returncode, output) == (1, ""), errors
        assert [line.startswith("nq: error: ") for line in lines] == [True], errors
        assert not (self.output / PREDICTIONS).exists()
        assert not (self.output / JOB).exists()
        return lines[0].removeprefix("nq: error: ")

    def answered(self) -> int:
        """Returns how many questions the workers have answered so far."""
        with contextlib.suppress(OSError):
            return sum(completed(str(path)) for path in self.output.glob(f"{UNFINISHED}*/progress"))
        return 0


def flink_jobs(cluster: Cluster, state: str) -> list[dict[str, Any]]:
    """Returns the jobs of the cluster in a state."""
    return [job for job in cluster.get("/jobs/overview")["jobs"] if job["state"] == state]


def cancel(cluster: Cluster, job: str) -> None:
    """Cancels a job, as Flink's web page does."""
    url = f"{cluster.url}/jobs/{job}?mode=cancel"
    urllib.request.urlopen(urllib.request.Request(url, method="PATCH")).close()


@pytest.fixture(scope="module")
def local(
    questions: Path, converted_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, bytes]:
    """The files that the command writes without a cluster."""
    output = tmp_path_factory.mktemp("local") / "run"
    Answering(output, converted_model, "--data", str(questions), *PROFILE).result()
    return files(output)


def files(output: Path) -> dict[str, bytes]:
    """Returns the files that must not depend on who answered."""
    return {name: (output / name).read_bytes() for name in (PREDICTIONS, DEAD_LETTERS)}


def test_spark_gives_the_files_of_a_local_run(
    spark: Cluster, questions: Path, tiny_model: Path, local: dict[str, bytes], tmp_path: Path
) -> None:
    options = ["--data", str(questions), *PROFILE, *spark.options()]
    summary = Answering(tmp_path / "run", tiny_model, *options).result()
    assert files(tmp_path / "run") == local
    assert (summary["examples"], summary["dead_letters"]) == (40 * COPIES, len(BAD_LINES))
    beam = summary["beam"]
    assert (beam["runner"], beam["workers"]) == ("SparkRunner", 2)
    assert beam["metrics"]["records"] == 40 * COPIES + len(BAD_LINES)
    assert beam["metrics"]["models"] == 1


def test_a_job_that_was_cancelled_is_started_again(
    cluster: Cluster, questions: Path, tiny_model: Path, local: dict[str, bytes], tmp_path: Path
) -> None:
    """The results are those of a local run, with the dead letters of the workers."""
    options = ["--data", str(questions), *PROFILE, *cluster.options()]
    answering = Answering(tmp_path / "run", tiny_model, *options)
    wait_until(lambda: flink_jobs(cluster, "RUNNING"), answering.process)
    cancel(cluster, flink_jobs(cluster, "RUNNING")[0]["jid"])
    assert "was cancelled: the same command starts it again" in answering.error()
    summary = Answering(tmp_path / "run", tiny_model, *options).result()
    assert files(tmp_path / "run") == local
    assert (summary["examples"], summary["dead_letters"]) == (40 * COPIES, len(BAD_LINES))
    (job,) = flink_jobs(cluster, "FINISHED")
    beam = summary["beam"]
    assert beam["job_name"] == job["name"]
    assert beam["metrics"]["records"] == 40 * COPIES + len(BAD_LINES)


@pytest.mark.parametrize("name", ["spark", "cluster"])
def test_workers_without_the_model(
    name: str, tiny_model: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The path is that of a model in the folder of the command, and of nothing in the workers'."""
    cluster: Cluster = request.getfixturevalue(name)
    (tmp_path / "model").symlink_to(tiny_model)
    model = Path("/proc/self/cwd/model")
    error = Answering(tmp_path / "run", model, *cluster.options(), cwd=tmp_path).error()
    assert error.startswith("FileNotFoundError: no model in /proc/self/cwd/model")
    assert "a worker does not see it" in error


def test_a_task_manager_that_is_killed_costs_no_answer(
    cluster: Cluster, questions: Path, tiny_model: Path, local: dict[str, bytes], tmp_path: Path
) -> None:
    """This test is the last one: one TaskManager remains."""
    data = ["--data", str(questions), *PROFILE]
    answering = Answering(tmp_path / "run", tiny_model, *data, *cluster.options())
    wait_until(answering.answered, answering.process)
    os.kill(cluster.pids["taskmanager-2"], signal.SIGKILL)
    killed_after = answering.answered()
    summary = answering.result()
    assert 0 < killed_after < 40 * COPIES
    assert files(tmp_path / "run") == local
    assert summary["examples"] == 40 * COPIES
    assert cluster.get("/overview")["taskmanagers"] == 1
    name = summary["beam"]["job_name"]
    (job,) = (one for one in flink_jobs(cluster, "FINISHED") if one["name"] == name)
    failures = cluster.get(f"/jobs/{job['jid']}/exceptions")
    assert failures["exceptionHistory"]["entries"]
