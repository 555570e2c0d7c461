"""A Flink cluster on this machine against a local run: speed, overhead and memory of workers.

    python -m experiments.cluster_scaling --data ../shared/data/dev/nq-dev.jsonl.gz

Answers some questions, and then many: the difference of both times is that of the questions beyond
the first ones, after all is loaded. It does so in a local run with one thread on one core, and on
clusters of one and of two TaskManagers with one core each, in every round. The peak memory of the
workers is that which Linux counts (``VmHWM``), the largest of all workers.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import psutil

from experiments import Values, command, units
from experiments import cluster as clusters
from experiments.cluster import Cluster
from experiments.clusters import processes
from experiments.command import markdown
from nq import processor
from nq.errors import Error

ROOT = Path(__file__).parents[1]
WORKER = "SdkHarness"
FEW, MANY, MOST = 40, 240, 400
POLL_S = 2.0


class Workers:
    """The workers that appear in a cluster, and the most memory that one of them has had."""

    def __init__(self, cluster: Cluster | None) -> None:
        self.cluster, self.peak_bytes = cluster, 0
        self.before = {process.pid for process in self._find()}

    def look(self) -> None:
        """Reads the memory of the workers that have appeared."""
        for process in self._find():
            if process.pid not in self.before:
                with contextlib.suppress(OSError):
                    status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
                    (line,) = (row for row in status.splitlines() if row.startswith("VmHWM"))
                    self.peak_bytes = max(self.peak_bytes, int(line.split()[1]) * 1024)

    def _find(self) -> Iterator[psutil.Process]:
        for process in processes.find(self.cluster.folder) if self.cluster else ():
            with contextlib.suppress(psutil.Error):
                if any(WORKER in argument for argument in process.cmdline()):
                    yield process


def measure(args: argparse.Namespace, questions: int, cluster: Cluster | None) -> dict[str, float]:
    """Answers questions locally on one core, or on a cluster.

    Returns:
        The numbers of ``workers`` (TaskManagers; 0 for a local run), ``questions`` and
        ``windows``, the seconds of all phases and those for making windows, for the model and for
        merging, and the memory of the largest worker (0 for a local run).

    Raises:
        Error: the command failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "nq.answer", "--data", *args.data]
        command += ["--model", args.model, "--limit", str(questions)]
        command += ["--profile", args.profile, "--threads", "1"]
        command += ["--no-track", "--json", "--output", f"{folder}/run"]
        pin = [] if cluster else ["taskset", "--cpu-list", str(processor.cores()[0])]
        workers = Workers(cluster)
        with open(f"{folder}/errors", "w+", encoding="utf-8") as errors:
            process = subprocess.Popen(
                [*pin, *command, *(cluster.options() if cluster else ())],
                env={**os.environ, **units.CPU_ONLY, "PYTHONPATH": str(ROOT)},
                stdout=subprocess.PIPE,
                stderr=errors,
            )
            output = b""
            while process.returncode is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    output, _ = process.communicate(timeout=POLL_S)
                workers.look()
            if process.returncode:
                errors.seek(0)
                raise Error(f"nq answer failed: {errors.read().strip()[-500:]}")
    summary = json.loads(output)
    seconds = summary["time"]
    metrics = summary.get("beam", {}).get("metrics", {})
    return {
        "workers": cluster.task_managers if cluster else 0,
        "questions": questions,
        "total_s": seconds["total_s"],
        "windows": summary["windows"],
        "prepare_s": seconds["preprocess_s"],
        "model_s": metrics.get("model_s", seconds.get("predict_s", 0.0)),
        "merge_s": seconds.get("merge_s", 0.0),
        "worker_peak_bytes": workers.peak_bytes,
    }


def study(args: argparse.Namespace) -> int:
    """Runs the command; returns its exit code."""
    sizes = {0: (FEW, MANY), 1: (FEW, MANY), 2: (FEW, MANY, MOST)}
    measurements = []
    for _ in range(args.rounds):
        for workers, numbers in sizes.items():
            with contextlib.ExitStack() as stack:
                cluster = None
                if workers:
                    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                    cluster = stack.enter_context(clusters.running(folder, workers))
                for number in numbers:
                    measurements.append(measure(args, number, cluster))
                    print(measurements[-1], file=sys.stderr)
    result = {"profile": args.profile, "rounds": args.rounds, "runs": measurements}
    return command.show(result, args, table)


def middle(result: Values, workers: int, questions: int, name: str) -> float:
    """Returns the median of a figure over the rounds; the local run has 0 workers."""
    same = (run for run in result["runs"] if run["workers"] == workers)
    return float(median(run[name] for run in same if run["questions"] == questions))


def warm(result: Values, workers: int) -> tuple[float, int]:
    """Returns the seconds for the questions after the first ones, and how many those are."""
    few, many = (middle(result, workers, number, "total_s") for number in (FEW, MANY))
    return many - few, MANY - FEW


def table(result: Values) -> str:
    """Returns what follows from the measurements as a Markdown table."""
    local, one, two = (warm(result, workers)[0] for workers in (0, 1, 2))
    few, most = (middle(result, 2, number, "worker_peak_bytes") for number in (FEW, MOST))
    more = f"{MANY - FEW} questions after the first {FEW}"
    return markdown(
        ("what", "figure"),
        (f"local run, one core: {more}", f"{local:.1f} s"),
        (f"one TaskManager: {more}", f"{one:.1f} s"),
        (f"two TaskManagers: {more}", f"{two:.1f} s"),
        ("two TaskManagers against one", f"{one / two:.2f}x"),
        ("one TaskManager against the local run", f"{one / local - 1:+.1%}"),
        (
            f"peak memory of a worker, {FEW} / {MOST} questions",
            f"{few / 2**20:.0f} / {most / 2**20:.0f} MiB ({most / few:.2f}x)",
        ),
    )


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data",
        nargs="+",
        required=True,
        metavar="FILE",
        help="questions",
    )
    command.add_one_model(parser)
    parser.add_argument(
        "--profile", default="buckets+openvino", help="default: buckets+openvino", metavar="P"
    )
    command.add_option(parser, "rounds", 2, "rounds")


main = command.main(study, _options)
