"""The programs of a cluster: command lines of the JobManager, a TaskManager, and so on.

All listen on this machine only. Spark runs in the process of Beam's job server, with one worker
pool. Flink has more processes: each TaskManager has a worker pool of its own, as on a real cluster
each machine has one. All pools have the name ``POOL`` and the same port, and each TaskManager has
its own file of host names, which says where that is. One pool for several TaskManagers does not
work: they give their workers the same ids, and Beam's pool ends one for the other.

A TaskManager and its pool, and so its workers, are pinned to one core.
"""

import os
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from experiments.clusters.install import Installation, install_flink, install_spark
from nq import processor

HERE = Path(__file__).parent
LOGGING = "log4j.properties"
ROOT = HERE.parents[1]
RUNTIME = "org.apache.flink.runtime"
JOB_MANAGER = f"{RUNTIME}.entrypoint.StandaloneSessionClusterEntrypoint"
TASK_MANAGER = f"{RUNTIME}.taskexecutor.TaskManagerRunner"
SPARK_JOB_SERVER = "org.apache.beam.runners.spark.SparkJobServerDriver"
HEAP = {
    JOB_MANAGER: "384m",
    TASK_MANAGER: "320m",
    "job-server": "256m",
    SPARK_JOB_SERVER: "512m",
}
TASK_MANAGER_MEMORY = ("-XX:MaxDirectMemorySize=192m", "-XX:MaxMetaspaceSize=192m")
"""As in ``config.yaml``."""
OPENED = (
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.net",
    "java.io",
    "java.nio",
    "java.text",
    "java.time",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
)
"""Packages of Java that Flink and Spark read by reflection."""
POOL = "flink-worker-pool"
LOCALHOST = "127.0.0.1"
HOSTS = Path("/etc/hosts")


class Ports(NamedTuple):
    """Where the programs listen.

    These are Flink's REST API with its web page, the JobManager for TaskManagers, Beam's job
    server, its store of files, and worker pools, each at an address of its own. Spark has not the
    first two.
    """

    rest: int = 8081
    rpc: int = 6123
    jobs: int = 8099
    artifacts: int = 8098
    pool: int = 50000


class Program(NamedTuple):
    """A program to start, on all cores or on one of them.

    ``listens`` are the addresses at which it answers once it is ready.
    """

    name: str
    command: list[str]
    core: int | None = None
    environment: Mapping[str, str] = {}
    listens: tuple[tuple[str, int], ...] = ()


def free_ports() -> Ports:
    """Returns ports that nothing listens on now."""
    sockets = [socket.create_server((LOCALHOST, 0)) for _ in Ports._fields]
    numbers = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return Ports(*numbers)


def flink(folder: Path, ports: Ports, number: int, slots: int) -> Iterator[Program]:
    """Yields JobManager, TaskManagers, each after its worker pool, and Beam's job server.

    Writes the TaskManagers' files of host names.
    """
    installation = install_flink()
    manager = _flink(JOB_MANAGER, "jobmanager", installation, folder, ports)
    listens = (LOCALHOST, ports.rest), (LOCALHOST, ports.rpc)
    yield Program("jobmanager", [*manager, "--executionMode", "cluster"], listens=listens)
    available = processor.cores()
    known = f"{HOSTS.read_text('utf-8')}\n{LOCALHOST} {socket.gethostname()}\n"
    for i in range(number):
        core = available[i % len(available)]
        address = f"127.0.1.{i + 1}"
        hosts = folder / f"hosts-{i + 1}"
        hosts.write_text(f"{known}{address} {POOL}\n", encoding="utf-8")
        yield worker_pool(f"workers-{i + 1}", address, ports.pool, core)
        name = f"taskmanager-{i + 1}"
        java = [*TASK_MANAGER_MEMORY, f"-Djdk.net.hosts.file={hosts}"]
        command = _flink(TASK_MANAGER, name, installation, folder, ports, *java)
        settings = {"taskmanager.numberOfTaskSlots": slots, "taskmanager.cpu.cores": slots}
        yield Program(name, [*command, *_settings(settings)], core)
    java = ["java", f"-Xmx{HEAP['job-server']}", "-jar", str(installation.job_server)]
    yield _job_server(java, folder, ports, f"--flink-master=localhost:{ports.rest}")


def spark(folder: Path, ports: Ports, slots: int) -> Iterator[Program]:
    """Yields a worker pool, and the job server in which Spark runs ``slots`` tasks at a time."""
    yield worker_pool("workers-1", LOCALHOST, ports.pool)
    settings = {
        "spark.driver.bindAddress": LOCALHOST,
        "spark.driver.host": "localhost",
        "spark.local.dir": folder / "temporary",
        "spark.ui.enabled": "false",
        "java.io.tmpdir": folder / "temporary",
    }
    java = [*_java(SPARK_JOB_SERVER, "job-server", folder), *_settings(settings)]
    command = [*java, "-cp", f"{install_spark()}/*", SPARK_JOB_SERVER]
    yield _job_server(command, folder, ports, f"--spark-master-url=local[{slots}]")


def worker_pool(name: str, address: str, port: int, core: int | None = None) -> Program:
    """Returns a worker pool; its workers have the Python of this process, and this nq."""
    command = [sys.executable, "-m", "experiments.clusters.worker_pool", f"{address}:{port}"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return Program(
        name,
        command,
        core,
        {"PATH": path, "PYTHONPATH": str(ROOT)},
        ((address, port),),
    )


def _job_server(command: list[str], folder: Path, ports: Ports, master: str) -> Program:
    """Returns Beam's job server, which translates pipelines for the master and submits them."""
    options = {
        "job-host": "localhost",
        "job-port": ports.jobs,
        "artifact-port": ports.artifacts,
        "expansion-port": 0,
        "artifacts-dir": folder / "artifacts",
    }
    arguments = [f"--{name}={value}" for name, value in options.items()]
    listens = (LOCALHOST, ports.jobs), (LOCALHOST, ports.artifacts)
    return Program("job-server", [*command, master, *arguments], listens=listens)


def _flink(
    main: str, name: str, installation: Installation, folder: Path, ports: Ports, *java: str
) -> list[str]:
    """Returns the command line of one of Flink's classes."""
    path = f"{installation.libraries}/*{os.pathsep}{installation.job_server}"
    settings = {
        "rest.port": ports.rest,
        "jobmanager.rpc.port": ports.rpc,
        "blob.storage.directory": folder / "temporary",
        "io.tmp.dirs": folder / "temporary",
    }
    command = [*_java(main, name, folder), *java, "-cp", path, main, "--configDir", str(HERE)]
    return [*command, *_settings(settings)]


def _java(main: str, name: str, folder: Path) -> list[str]:
    """Returns the start of the command line of a class of Flink or Spark, with its log."""
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED]
    logging = {
        "log.file": folder / f"{name}.log",
        "log4j.configurationFile": HERE / LOGGING,
    }
    return ["java", f"-Xmx{HEAP[main]}", *opened, *_settings(logging)]


def _settings(values: Mapping[str, object]) -> list[str]:
    return [f"-D{name}={value}" for name, value in values.items()]
