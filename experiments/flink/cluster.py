"""A cluster in a folder: start, end, description.

The folder has ``cluster.json`` (ports and processes) and the logs.
"""

import contextlib
import json
import shutil
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.flink import processes, programs
from experiments.flink.install import install
from experiments.flink.programs import POOL, Ports, Program
from nq.errors import Error
from nq.storage import exclusive_lock

DESCRIPTION, LOCK = "cluster.json", ".lock"
REQUEST_TIMEOUT_S = 5.0
WORKERS_KEPT_MS = 60_000


@dataclass(frozen=True)
class Cluster:
    """A running cluster, with the process of each program by its name.

    ``started`` has the same programs, in the process that started them.
    """

    folder: Path
    ports: Ports
    task_managers: int
    slots: int
    pids: Mapping[str, int]
    started: Sequence[processes.Running] = ()

    @property
    def url(self) -> str:
        """The address of Flink's web page, which is that of its REST API too."""
        return f"http://localhost:{self.ports.rest}"

    def options(self) -> list[str]:
        """Returns the options that let ``nq answer`` run on the cluster."""
        return [
            *("--runner", "FlinkRunner"),
            f"--flink_master=localhost:{self.ports.rest}",
            f"--job_endpoint=localhost:{self.ports.jobs}",
            "--environment_type=EXTERNAL",
            f"--environment_config={POOL}:{self.ports.pool}",
            f"--environment_cache_millis={WORKERS_KEPT_MS}",
            f"--parallelism={self.task_managers}",
        ]

    def get(self, path: str) -> Any:
        """Returns the reply of Flink's REST API to a GET request."""
        with urllib.request.urlopen(f"{self.url}{path}", timeout=REQUEST_TIMEOUT_S) as reply:
            return json.load(reply)

    def to_dict(self) -> dict[str, Any]:
        """Returns JSON values of it."""
        return {
            "folder": str(self.folder),
            "ports": self.ports._asdict(),
            "task_managers": self.task_managers,
            "slots": self.slots,
            "pids": dict(self.pids),
        }


def read(folder: Path) -> Cluster:
    """Returns the cluster in a folder; an ``Error`` if none was started there."""
    try:
        values = json.loads((folder / DESCRIPTION).read_bytes())
    except FileNotFoundError as error:
        raise Error(f"no cluster runs in {folder}: run make cluster") from error
    return Cluster(**{**values, "folder": folder, "ports": Ports(**values["ports"])})


def start(
    folder: Path, task_managers: int = 2, slots: int = 2, ports: Ports | None = None
) -> Cluster:
    """Starts a cluster and waits until it is ready; it outlives this process.

    Logs are in ``folder``. Each TaskManager has one core, and one worker for all its slots.

    Raises:
        Error: a cluster runs in the folder, a port is taken, a program is missing or ends early.
    """
    ports, folder = ports or Ports(), folder.resolve()
    installation = install()
    with exclusive_lock(folder / LOCK):
        _check(folder, ports)
        (folder / "temporary").mkdir(exist_ok=True)
        try:
            manager = programs.job_manager(installation, folder, ports)
            others = list(programs.workers(installation, folder, ports, task_managers, slots))
            server = programs.job_server(installation, folder, ports)
            started = [processes.start(program, folder) for program in (manager, *others, server)]
            pids = {running.name: running.process.pid for running in started}
            cluster = Cluster(folder, ports, task_managers, slots, pids, started)
            _wait(cluster, [*others, server])
        except BaseException:
            processes.end(folder)
            raise
        text = json.dumps(cluster.to_dict(), indent=1)
        (folder / DESCRIPTION).write_text(f"{text}\n", encoding="utf-8")
    return cluster


def stop(folder: Path) -> int:
    """Ends all processes of the cluster in a folder; returns how many there were.

    Logs stay; a cluster that has crashed in part is ended too.
    """
    number = processes.end(folder)
    (folder / DESCRIPTION).unlink(missing_ok=True)
    shutil.rmtree(folder / "temporary", ignore_errors=True)
    shutil.rmtree(folder / "artifacts", ignore_errors=True)
    return number


@contextlib.contextmanager
def running(folder: Path, task_managers: int = 2, slots: int = 2) -> Iterator[Cluster]:
    """A cluster on free ports, which ends with the block."""
    started: Sequence[processes.Running] = ()
    try:
        cluster = start(folder, task_managers, slots, programs.free_ports())
        started = cluster.started
        yield cluster
    finally:
        stop(folder)
        for each in started:
            each.process.wait()


def _check(folder: Path, ports: Ports) -> None:
    if pids := [process.pid for process in processes.find(folder)]:
        raise Error(f"a cluster runs in {folder} (process {pids[0]}): end it by make cluster-stop")
    taken = [port for port in ports[:-1] if processes.listens((programs.LOCALHOST, port))]
    if taken:
        raise Error(
            f"port {taken[0]} is in use: end the program that listens there, or give --free-ports"
        )


def _wait(cluster: Cluster, listening: Sequence[Program]) -> None:
    """Waits until all programs answer and all TaskManagers have registered with their slots.

    A TaskManager reports its slots a moment after it has registered.
    """
    ready = cluster.task_managers, cluster.task_managers * cluster.slots

    def registered() -> bool:
        with contextlib.suppress(OSError):
            overview = cluster.get("/overview")
            return (overview["taskmanagers"], overview["slots-total"]) == ready
        return False

    def all_listen() -> bool:
        return all(processes.listens(each.listens) for each in listening if each.listens)

    processes.wait(registered, "all TaskManagers are registered", cluster.started)
    processes.wait(all_listen, "worker pools and job server listen", cluster.started)
