"""The programs of a cluster: command lines of the JobManager, a TaskManager, and so on.

All listen on this machine only. Each TaskManager has a worker pool of its own, as on a real cluster
each machine has one: all pools have the name ``POOL`` and the same port, and each TaskManager has
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

from experiments.flink.install import Installation
from nq import processor

HERE = Path(__file__).parent
LOGGING = "log4j.properties"
ROOT = HERE.parents[1]
RUNTIME = "org.apache.flink.runtime"
JOB_MANAGER = f"{RUNTIME}.entrypoint.StandaloneSessionClusterEntrypoint"
TASK_MANAGER = f"{RUNTIME}.taskexecutor.TaskManagerRunner"
HEAP = {JOB_MANAGER: "384m", TASK_MANAGER: "320m", "job-server": "256m"}
TASK_MANAGER_MEMORY = ("-XX:MaxDirectMemorySize=192m", "-XX:MaxMetaspaceSize=192m")
"""As in ``config.yaml``."""
OPENED = ("lang", "lang.reflect", "net", "io", "nio", "text", "time", "util", "util.concurrent")
"""Packages of Java that Flink's serializers read by reflection."""
POOL = "flink-worker-pool"
LOCALHOST = "127.0.0.1"
HOSTS = Path("/etc/hosts")


class Ports(NamedTuple):
    """Where the programs listen.

    These are Flink's REST API with its web page, the JobManager for TaskManagers, Beam's job
    server, its store of files, and worker pools, each at an address of its own.
    """

    rest: int = 8081
    rpc: int = 6123
    jobs: int = 8099
    artifacts: int = 8098
    pool: int = 50000


class Program(NamedTuple):
    """A program to start, on all cores or on one of them.

    ``listens`` is an address at which it answers once it is ready, if one tells that.
    """

    name: str
    command: list[str]
    core: int | None = None
    environment: Mapping[str, str] = {}
    listens: tuple[str, int] | None = None


def free_ports() -> Ports:
    """Returns ports that nothing listens on now."""
    sockets = [socket.create_server((LOCALHOST, 0)) for _ in Ports._fields]
    numbers = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return Ports(*numbers)


def job_manager(installation: Installation, folder: Path, ports: Ports) -> Program:
    """Returns the JobManager, which has the web page."""
    command = _flink(JOB_MANAGER, "jobmanager", installation, folder, ports)
    return Program("jobmanager", [*command, "--executionMode", "cluster"])


def workers(
    installation: Installation, folder: Path, ports: Ports, number: int, slots: int
) -> Iterator[Program]:
    """Yields TaskManagers, each after its worker pool; writes their files of host names."""
    available = processor.cores()
    known = f"{HOSTS.read_text('utf-8')}\n{LOCALHOST} {socket.gethostname()}\n"
    for i in range(number):
        core, address = available[i % len(available)], f"127.0.1.{i + 1}"
        hosts = folder / f"hosts-{i + 1}"
        hosts.write_text(f"{known}{address} {POOL}\n", encoding="utf-8")
        yield worker_pool(f"workers-{i + 1}", address, ports.pool, core)
        name, java = f"taskmanager-{i + 1}", [*TASK_MANAGER_MEMORY, f"-Djdk.net.hosts.file={hosts}"]
        command = _flink(TASK_MANAGER, name, installation, folder, ports, *java)
        settings = {"taskmanager.numberOfTaskSlots": slots, "taskmanager.cpu.cores": slots}
        yield Program(name, [*command, *_settings(settings)], core)


def worker_pool(name: str, address: str, port: int, core: int | None = None) -> Program:
    """Returns a worker pool; its workers have the Python of this process, and this nq."""
    command = [sys.executable, "-m", "experiments.flink.worker_pool", f"{address}:{port}"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return Program(name, command, core, {"PATH": path, "PYTHONPATH": str(ROOT)}, (address, port))


def job_server(installation: Installation, folder: Path, ports: Ports) -> Program:
    """Returns Beam's job server, which translates pipelines and submits them to Flink."""
    options = {
        "flink-master": f"localhost:{ports.rest}",
        "job-host": "localhost",
        "job-port": ports.jobs,
        "artifact-port": ports.artifacts,
        "expansion-port": 0,
        "artifacts-dir": folder / "artifacts",
    }
    java = ["java", f"-Xmx{HEAP['job-server']}", "-jar", str(installation.job_server)]
    arguments = [f"--{name}={value}" for name, value in options.items()]
    return Program("job-server", [*java, *arguments], listens=("localhost", ports.jobs))


def _flink(
    main: str, name: str, installation: Installation, folder: Path, ports: Ports, *java: str
) -> list[str]:
    """Returns the command line of one of Flink's classes."""
    path = f"{installation.libraries}/*{os.pathsep}{installation.job_server}"
    opened = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in OPENED]
    logging = {"log.file": folder / f"{name}.log", "log4j.configurationFile": HERE / LOGGING}
    settings = {
        "rest.port": ports.rest,
        "jobmanager.rpc.port": ports.rpc,
        "blob.storage.directory": folder / "temporary",
        "io.tmp.dirs": folder / "temporary",
    }
    return [
        "java",
        f"-Xmx{HEAP[main]}",
        *java,
        *opened,
        *(f"-D{key}={value}" for key, value in logging.items()),
        *("-cp", path, main, "--configDir", str(HERE)),
        *_settings(settings),
    ]


def _settings(values: Mapping[str, object]) -> list[str]:
    return [f"-D{name}={value}" for name, value in values.items()]
