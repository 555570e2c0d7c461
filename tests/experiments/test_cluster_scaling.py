"""The figures of the study of a cluster follow from its measurements."""

from __future__ import annotations

import sys
from pathlib import Path

from experiments import cluster_scaling
from experiments.cluster_scaling import FEW, MANY, MOST, Measurement, Workers
from experiments.flink import processes
from experiments.flink.cluster import Cluster
from experiments.flink.programs import Ports, Program

HOLD = "import sys, time; block = bytearray(int(sys.argv[1])); print(flush=True); time.sleep(60)"


def run(workers: int, questions: int, total_s: float, peak_mb: int = 0) -> dict[str, object]:
    return vars(Measurement(workers, questions, total_s, 10, 1.0, 2.0, 0.1, peak_mb * 2**20))


def test_the_figures() -> None:
    runs = [run(0, FEW, 20.0), run(0, MANY, 120.0), run(1, FEW, 30.0), run(1, MANY, 140.0)]
    two = [run(2, FEW, 32.0, 1000), run(2, MANY, 92.0, 1010), run(2, MOST, 150.0, 1050)]
    later = [run(0, MANY, 118.0), run(0, MANY, 300.0)]
    result = {"runs": [*runs, *two, *later]}
    rows = dict(
        line.strip("| ").split(" | ") for line in cluster_scaling.table(result).splitlines()[2:]
    )
    count = MANY - FEW
    assert rows[f"local run, one core: {count} questions after the first {FEW}"] == "100.0 s"
    assert rows["two TaskManagers against one"] == "1.83x"
    assert rows["one TaskManager against the local run"] == "+10.0%"
    peak = rows[f"peak memory of a worker, {FEW} / {MOST} questions"]
    assert peak == "1000 / 1050 MiB (1.05x)"
    assert cluster_scaling.warm(result, 2) == (60.0, count)


def test_the_peak_memory_is_that_of_new_workers(tmp_path: Path) -> None:
    def start(size: int) -> processes.Running:
        command = [sys.executable, "-c", f"{HOLD}  # {cluster_scaling.WORKER}", str(size)]
        return processes.start(Program(f"worker-{size}", command), tmp_path)

    def prints(one: processes.Running) -> bool:
        return one.output.stat().st_size > 0

    cluster = Cluster(tmp_path, Ports(), 2, 2, {})
    started = [start(300 * 2**20)]
    try:
        processes.wait(lambda: prints(started[0]), "it has its memory", started)
        workers = Workers(cluster)
        started.append(start(100 * 2**20))
        processes.wait(lambda: prints(started[1]), "it has its memory", started)
        workers.look()
        assert 100 * 2**20 < workers.peak_bytes < 200 * 2**20
    finally:
        processes.end(tmp_path)
        for one in started:
            one.process.wait()
