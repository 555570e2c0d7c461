"""Starts and ends a small cluster on this machine, of Flink or Spark, for ``nq answer --runner``.

    python -m experiments.cluster start
    python -m experiments.cluster start --runner SparkRunner
    python -m experiments.cluster status
    python -m experiments.cluster stop

Flink has a JobManager with its web page, TaskManagers, each with one core and a pool of Beam
workers, and Beam's job server. Spark has a pool of Beam workers and a job server, which runs Spark
in its own process. All listen on this machine only. The first start fetches Flink (about 400 MB) or
Spark (300 MB), each with its job server, into ``$XDG_CACHE_HOME/nq``.

The folder of a cluster has ``cluster.json`` (ports and processes) and the logs.
"""

import argparse
import contextlib
import json
import shlex
import shutil
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from experiments import Values, command
from experiments.clusters import processes, programs
from experiments.clusters.programs import POOL, Ports, Program
from nq.commands import terminal
from nq.errors import Error
from nq.storage import exclusive_lock

FOLDER = Path("runs") / "cluster"
DESCRIPTION, LOCK = "cluster.json", ".lock"
REQUEST_TIMEOUT_S = 5.0
WORKERS_KEPT_MS = 60_000
FLINK, SPARK = "FlinkRunner", "SparkRunner"


@dataclass(frozen=True)
class Cluster:
    """A running cluster, with the process of each program by its name.

    Spark has no TaskManagers: the job server runs its tasks, ``slots`` at a time. ``started`` has
    the programs of ``pids``, in the process that started them.
    """

    folder: Path
    runner: str
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
        if self.runner == FLINK:
            master = f"--flink_master=localhost:{self.ports.rest}"
            pool = POOL
            tasks = f"--parallelism={self.task_managers}"
        else:
            master = f"--spark_master_url=local[{self.slots}]"
            pool = "localhost"
            tasks = f"--workers={self.slots}"
        return [
            "--runner",
            self.runner,
            master,
            f"--job_endpoint=localhost:{self.ports.jobs}",
            "--environment_type=EXTERNAL",
            f"--environment_config={pool}:{self.ports.pool}",
            f"--environment_cache_millis={WORKERS_KEPT_MS}",
            tasks,
        ]

    def get(self, path: str) -> Any:
        """Returns the reply of Flink's REST API to a GET request."""
        with urllib.request.urlopen(f"{self.url}{path}", timeout=REQUEST_TIMEOUT_S) as reply:
            return json.load(reply)

    def to_dict(self) -> Values:
        """Returns JSON values of it, but for ``started``."""
        values = {field.name: getattr(self, field.name) for field in fields(self)[:-1]}
        return {**values, "folder": str(self.folder), "ports": self.ports._asdict()}


def read(folder: Path) -> Cluster:
    """Returns the cluster in a folder; an ``Error`` if none was started there."""
    try:
        values = json.loads((folder / DESCRIPTION).read_bytes())
    except FileNotFoundError as error:
        raise Error(f"no cluster runs in {folder}: run make cluster") from error
    return Cluster(**{**values, "folder": folder, "ports": Ports(**values["ports"])})


def start(
    folder: Path,
    task_managers: int = 2,
    slots: int = 2,
    ports: Ports | None = None,
    runner: str = FLINK,
) -> Cluster:
    """Starts a cluster and waits until it is ready; it outlives this process.

    Logs are in ``folder``. Each TaskManager of Flink has one core, and one worker for all its
    slots; Spark has one worker.

    Raises:
        Error: a cluster runs in the folder, a port is taken, a program is missing or ends early.
    """
    ports, folder = ports or Ports(), folder.resolve()
    with exclusive_lock(folder / LOCK):
        if running := [process.pid for process in processes.find(folder)]:
            raise Error(
                f"a cluster runs in {folder} (process {running[0]}): end it by make cluster-stop"
            )
        (folder / "temporary").mkdir(exist_ok=True)
        if runner == SPARK:
            task_managers = 0
            listed = list(programs.spark(folder, ports, slots))
        else:
            listed = list(programs.flink(folder, ports, task_managers, slots))
        addresses = (address for program in listed for address in program.listens)
        if taken := next(filter(processes.listens, addresses), None):
            raise Error(
                f"port {taken[1]} is in use: end the program that listens there, or give "
                "--free-ports"
            )
        try:
            started = [processes.start(program, folder) for program in listed]
            pids = {running.name: running.process.pid for running in started}
            cluster = Cluster(folder, runner, ports, task_managers, slots, pids, started)
            _wait(cluster, listed)
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
def running(
    folder: Path, task_managers: int = 2, slots: int = 2, runner: str = FLINK
) -> Iterator[Cluster]:
    """A cluster on free ports, which ends with the block."""
    started: Sequence[processes.Running] = ()
    try:
        cluster = start(folder, task_managers, slots, programs.free_ports(), runner)
        started = cluster.started
        yield cluster
    finally:
        stop(folder)
        for each in started:
            each.process.wait()


def _wait(cluster: Cluster, listed: Sequence[Program]) -> None:
    """Waits until all programs answer and all TaskManagers have registered with their slots.

    A TaskManager reports its slots a moment after it has registered.
    """
    ready = cluster.task_managers, cluster.task_managers * cluster.slots

    def registered() -> bool:
        with contextlib.suppress(OSError):
            overview = cluster.get("/overview")
            return (overview["taskmanagers"], overview["slots-total"]) == ready
        return False

    addresses = [address for each in listed for address in each.listens]
    processes.wait(
        lambda: all(map(processes.listens, addresses)),
        "worker pools and job server listen",
        cluster.started,
    )
    if cluster.task_managers:
        processes.wait(registered, "all TaskManagers are registered", cluster.started)


def _options(parser: terminal.Parser) -> None:
    parser.add_argument("action", choices=("start", "stop", "status"), help="what to do")
    command.add_option(parser, "folder", FOLDER, "folder of the logs, one for each cluster")
    runners = (FLINK, SPARK)
    text = "runner of Beam for which it is (default: %(default)s)"
    parser.add_argument("--runner", choices=runners, default=FLINK, help=text)
    command.add_option(parser, "task-managers", 2, "TaskManagers of Flink, each with one core")
    command.add_option(parser, "slots", 2, "tasks at a time, of a TaskManager or of Spark")
    usual = ", ".join(map(str, programs.Ports()))
    parser.flag("free-ports", f"listen on free ports instead of {usual}")


def describe(described: Cluster) -> str:
    """Returns where a cluster is, and the command that uses it."""
    options = " ".join(map(shlex.quote, described.options()))
    name = f"Flink with {described.task_managers} TaskManagers: {described.url}"
    if described.runner == SPARK:
        name = f"Spark with {described.slots} tasks at a time, in Beam's job server"
    return f"{name} (logs: {described.folder})\n\nnq answer {options} --data FILE --output DIR"


def run(args: argparse.Namespace) -> int:
    """Runs the command; ``status`` raises an ``Error`` if some programs have ended."""
    if args.action == "stop":
        number = stop(args.folder)
        return command.show({"ended": number}, args, lambda _: f"ended {number} processes\n")
    if args.action == "start":
        ports = programs.free_ports() if args.free_ports else None
        cluster = start(args.folder, args.task_managers, args.slots, ports, args.runner)
    else:
        cluster = read(args.folder)
        pids = {process.pid for process in processes.find(args.folder)}
        if ended := [name for name, pid in cluster.pids.items() if pid not in pids]:
            raise Error(
                f"{', '.join(ended)} of the cluster in {args.folder} ended: see the logs there, "
                "then make cluster-stop and make cluster"
            )
    values = cluster.to_dict() | {"options": cluster.options()}
    return command.show(values, args, lambda _: f"{describe(cluster)}\n")


main = command.main(run, _options)
