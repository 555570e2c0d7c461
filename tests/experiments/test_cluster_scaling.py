"""The figures of the study of a cluster follow from its measurements."""

from __future__ import annotations

import sys
from pathlib import Path

from experiments import cluster_scaling
from experiments.cluster_scaling import Workers
from experiments.flink import processes
from experiments.flink.cluster import Cluster
from experiments.flink.programs import Ports, Program

HOLD = "import sys, time; block = bytearray(int(sys.argv[1])); print(flush=True); time.sleep(60)"


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
