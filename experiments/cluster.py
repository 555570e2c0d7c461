"""Starts and ends a small cluster on this machine, of Flink or Spark, for ``nq answer --runner``.

    python -m experiments.cluster start
    python -m experiments.cluster start --runner SparkRunner
    python -m experiments.cluster status
    python -m experiments.cluster stop

Flink has a JobManager with its web page, TaskManagers, each with one core and a pool of Beam
workers, and Beam's job server. Spark has a pool of Beam workers and a job server, which runs Spark
in its own process. All listen on this machine only. The first start fetches Flink (about 400 MB) or
Spark (300 MB), each with its job server, into ``$XDG_CACHE_HOME/nq``.
"""

import argparse
import shlex
from pathlib import Path

from experiments import command
from experiments.clusters import cluster, processes, programs
from nq.commands import terminal
from nq.errors import Error

FOLDER = Path("runs") / "cluster"


def _options(parser: terminal.Parser) -> None:
    parser.add_argument("action", choices=ACTIONS, help="what to do")
    command.add_option(parser, "folder", FOLDER, "folder of the logs, one for each cluster")
    runners = (cluster.FLINK, cluster.SPARK)
    text = "runner of Beam for which it is (default: %(default)s)"
    parser.add_argument("--runner", choices=runners, default=cluster.FLINK, help=text)
    command.add_option(parser, "task-managers", 2, "TaskManagers of Flink, each with one core")
    command.add_option(parser, "slots", 2, "tasks at a time, of a TaskManager or of Spark")
    usual = ", ".join(map(str, programs.Ports()))
    parser.flag("free-ports", f"listen on free ports instead of {usual}")


def start(args: argparse.Namespace) -> int:
    """Starts a cluster and prints how to use it."""
    ports = programs.free_ports() if args.free_ports else None
    started = cluster.start(args.folder, args.task_managers, args.slots, ports, args.runner)
    _print(started, args.json)
    return 0


def status(args: argparse.Namespace) -> int:
    """Prints the same of a running cluster; an ``Error`` says which of its programs have ended."""
    described = cluster.read(args.folder)
    running = {process.pid for process in processes.find(args.folder)}
    if ended := [name for name, pid in described.pids.items() if pid not in running]:
        raise Error(
            f"{', '.join(ended)} of the cluster in {args.folder} ended: see the logs there, then "
            "make cluster-stop and make cluster"
        )
    _print(described, args.json)
    return 0


def stop(args: argparse.Namespace) -> int:
    """Ends a cluster, whatever of it still runs."""
    number = cluster.stop(args.folder)
    if args.json:
        terminal.print_json({"ended": number})
    else:
        print(f"ended {number} processes")
    return 0


ACTIONS = {"start": start, "stop": stop, "status": status}


def describe(described: cluster.Cluster) -> str:
    """Returns where a cluster is, and the command that uses it."""
    options = " ".join(map(shlex.quote, described.options()))
    name = f"Flink with {described.task_managers} TaskManagers: {described.url}"
    if described.runner == cluster.SPARK:
        name = f"Spark with {described.slots} tasks at a time, in Beam's job server"
    return f"{name} (logs: {described.folder})\n\nnq answer {options} --data FILE --output DIR"


def _print(described: cluster.Cluster, as_json: bool) -> None:
    if as_json:
        terminal.print_json(described.to_dict() | {"options": described.options()})
    else:
        print(describe(described))


main = command.main(lambda args: ACTIONS[args.action](args), _options)

if __name__ == "__main__":
    raise SystemExit(main())
