"""The parts of a Flink cluster that need no Java: ports, processes and errors."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from experiments.flink import cluster, processes
from experiments.flink.programs import Program

pytestmark = pytest.mark.extended

SLEEP = "import time; time.sleep(60)"
STARTS_ANOTHER = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SLEEP!r}])"


def python(code: str, **others: object) -> Program:
    """A program of one line."""
    return Program("python", [sys.executable, "-c", code], **others)  # type: ignore[arg-type]


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
