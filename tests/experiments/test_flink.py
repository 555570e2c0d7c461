"""The parts of a Flink cluster that need no Java: ports, processes and errors."""

from __future__ import annotations

import socket
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import psutil
import pytest
from apache_beam.options.pipeline_options import FlinkRunnerOptions

from experiments import cluster as command
from experiments.flink import cluster, install, processes, programs
from experiments.flink.install import Installation
from experiments.flink.programs import Program
from nq.errors import Error

SLEEP = "import time; time.sleep(60)"
STARTS_ANOTHER = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SLEEP!r}])"
INSTALLATION = Installation(Path("lib"), Path("job-server.jar"))


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


def test_a_child_of_a_killed_process_is_ended(tmp_path: Path) -> None:
    started = processes.start(python(STARTS_ANOTHER), tmp_path)
    processes.wait(lambda: len(processes.find(tmp_path)) == 2, "both run", [started])
    started.process.kill()
    started.process.wait()
    assert processes.end(tmp_path) == 1


def test_a_program_that_ends_early_is_named_with_its_last_line(tmp_path: Path) -> None:
    started = processes.start(python("print('one'); print('no memory'); exit(3)"), tmp_path)
    with pytest.raises(Error, match=r"python ended with exit code 3: no memory; see .*python\.out"):
        processes.wait(lambda: False, "it answers", [started])


def test_a_program_is_pinned_to_its_core(tmp_path: Path) -> None:
    core = max(programs.cores())
    code = "import os; print(sorted(os.sched_getaffinity(0)))"
    started = processes.start(python(code, core=core), tmp_path)
    assert started.process.wait() == 0
    assert started.output.read_text() == f"[{core}]\n"


def test_each_task_manager_has_its_own_worker_pool(tmp_path: Path) -> None:
    made = list(programs.workers(INSTALLATION, tmp_path, programs.Ports(), 3, 2))
    assert [program.name for program in made[::2]] == ["workers-1", "workers-2", "workers-3"]
    for pool, manager in zip(made[::2], made[1::2], strict=True):
        assert pool.core == manager.core
        (hosts,) = (a.partition("=")[2] for a in manager.command if a.startswith("-Djdk.net.hosts"))
        lines = Path(hosts).read_text("utf-8").split("\n")
        assert f"127.0.0.1 {socket.gethostname()}" in lines
        assert pool.listens == (lines[-2].split()[0], programs.Ports().pool)
    assert len({program.listens for program in made[::2]}) == 3


def test_a_port_in_use_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "install", lambda: INSTALLATION)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(Error, match=f"port {port} is in use: end the program"):
            cluster.start(tmp_path, ports=programs.free_ports()._replace(jobs=port))
    assert processes.find(tmp_path) == []


def test_java_and_maven_are_named_where_they_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert install.missing_programs() == ["java", "mvn"]
    assert command.main(["start", "--folder", str(tmp_path / "cluster")]) == 1
    assert "java and mvn not found: install a Java" in capsys.readouterr().err


def test_without_a_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = ["--folder", str(tmp_path)]
    assert command.main(["status", *folder]) == 1
    assert capsys.readouterr().err.endswith(f"no cluster runs in {tmp_path}: run make cluster\n")
    assert command.main(["stop", *folder]) == 0
    assert capsys.readouterr().out == "ended 0 processes\n"


def test_what_a_start_prints_is_in_the_documentation() -> None:
    page = (programs.ROOT / "docs" / "cluster.md").read_text("utf-8").replace("\\\n", " ")
    described = cluster.Cluster(Path("/home/me/nq/runs/cluster"), programs.Ports(), 2, 2, {})
    assert " ".join(command.describe(described).split()) in " ".join(page.split())


def test_the_versions_are_in_the_documentation() -> None:
    page = (programs.ROOT / "docs" / "cluster.md").read_text("utf-8")
    beam = version("apache-beam")
    library = f"`org.apache.beam:beam-runners-flink-1.19:{install.BEAM}`"
    assert f"| {beam} | {install.FLINK} | 17 | 3.11 | {library} | tested here |" in page
    listed = ", ".join(FlinkRunnerOptions.PUBLISHED_FLINK_VERSIONS)
    assert f"| {beam} | {listed} |" in page
    assert f"apache-flink-libraries=={install.FLINK} " in install.REQUIREMENTS.read_text("utf-8")
