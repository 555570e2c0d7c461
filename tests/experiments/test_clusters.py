"""The parts of a cluster that need no Java: its description, and its processes."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from experiments import cluster
from experiments.clusters import processes
from experiments.clusters.programs import Ports, Program
from nq.worker import ROOT

pytestmark = pytest.mark.extended

SLEEP = "import time; time.sleep(60)"
STARTS_ANOTHER = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SLEEP!r}])"


def python(code: str, **others: object) -> Program:
    """A program of one line."""
    return Program("python", [sys.executable, "-c", code], **others)  # type: ignore[arg-type]


@pytest.mark.parametrize(("runner", "task_managers"), [(cluster.FLINK, 2), (cluster.SPARK, 0)])
def test_the_docs_have_what_a_start_prints(runner: str, task_managers: int) -> None:
    folder = Path("/home/me/nq-pipeline/runs/cluster")
    started = cluster.Cluster(folder, runner, Ports(), task_managers, 2, {})
    page = Path(ROOT, "docs", "cluster.md").read_text(encoding="utf-8").replace(" \\\n  ", " ")
    assert f"\n{cluster.describe(started)}\n```" in page


def test_all_processes_of_a_cluster_end_and_no_others(tmp_path: Path) -> None:
    stranger = subprocess.Popen([sys.executable, "-c", SLEEP])
    try:
        started = processes.start(python(STARTS_ANOTHER), tmp_path)
        processes.wait(lambda: len(processes.find(tmp_path)) == 2, "both run", [started])
        pids = [process.pid for process in processes.find(tmp_path)]
        assert processes.find(tmp_path / "another") == []
        assert cluster.stop(tmp_path) == 2
        assert processes.find(tmp_path) == []
        assert not any(psutil.pid_exists(pid) for pid in pids if pid != started.process.pid)
        started.process.wait()
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()
