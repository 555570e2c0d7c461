"""Runs by several instances: the bytes of one, whatever dies, and a resumed run fills every gap."""

import json
import logging
import re
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from nq import storage
from nq.bundle import bundled_sample
from nq.evaluation.answer_files import PREDICTIONS
from nq.runs.config import Compute
from nq.runs.folder import KEPT_SCORES, METRICS
from nq.runs.job import Job
from nq.runs.measure import BESIDE
from nq.runs.result import Result
from nq.runs.run import run
from nq.runs.scoring import RunProgress
from nq.worker import WorkerDiedError
from tests.runs.test_resume import run_killed, until_killed
from tests.support.child_processes import children, python, wait_until
from tests.support.jobs import request_of

IN_PROCESS = """
import sys
from collections import Counter
from pathlib import Path
import nq
files, model, folder = [nq.bundled_sample()], sys.argv[1], Path(sys.argv[2])
one, two = (
    nq.Job(files, model, "grappler", output=folder / str(n), limit=1, compute=nq.Compute(threads=n))
    for n in (1, 2)
)
nq.run(one)
names = Counter(path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm"))
print(names["tf_Compute"])
try:
    nq.run(two)
except nq.Error as error:
    print(error)
"""


def make_job(model: Path, output: Path, instances: int | None) -> Job:
    """Returns a job whose parts are pages, each in many batches."""
    files = [bundled_sample()]
    return Job(
        files,
        model,
        "openvino",
        output=output,
        limit=8,
        compute=Compute(batch_size=1, instances=instances, threads=1),
    )


def instances() -> list[psutil.Process]:
    """The instances of this process."""
    return children("instance ")


def killing(deaths: int) -> RunProgress:
    """Returns a progress that kills so many instances, each when windows are completed."""
    killed: set[int] = set()

    def progress(windows: int, total: int) -> None:
        for process in instances():
            if len(killed) < deaths and process.pid not in killed:
                killed.add(process.pid)
                process.kill()
                return

    return progress


def parts(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.npz"))}


@pytest.fixture(scope="module")
def undisturbed(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Result:
    """The run of one instance."""
    output = tmp_path_factory.mktemp("undisturbed")
    return run(replace(make_job(tiny_model, output, 1), keep_scores=True))


@pytest.mark.slow
def test_a_dead_instance_is_started_again_and_nothing_changes(
    tiny_model: Path, tmp_path: Path, undisturbed: Result, caplog: pytest.LogCaptureFixture
) -> None:
    job = replace(make_job(tiny_model, tmp_path / "run", 2), keep_scores=True)
    completed: list[int] = []
    kill = killing(1)

    def progress(windows: int, total: int) -> None:
        completed.append(windows)
        kill(windows, total)

    result = run(job, progress=progress)
    (record,) = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert re.fullmatch(r"instance [12] of 2 \(core \d\) was .* again", record.getMessage())
    assert not instances()
    expected = undisturbed.folder
    assert (result.folder / PREDICTIONS).read_bytes() == (expected / PREDICTIONS).read_bytes()
    assert parts(result.folder / KEPT_SCORES) == parts(expected / KEPT_SCORES) != {}
    assert sum(completed) == result.totals.windows == undisturbed.totals.windows
    assert result.totals.counters.computed_windows == undisturbed.totals.counters.computed_windows
    phases = {n: s for n, s in result.measured.time.items() if n not in BESIDE}
    assert sum(phases.values()) == pytest.approx(result.measured.time["total_s"], rel=0.02)
    assert min(phases.values()) >= 0
    metrics = json.loads((result.folder / METRICS).read_text(encoding="utf-8"))
    assert (metrics["instances"], metrics["threads"]) == (2, 1)


def run_until_killed(model: Path, output: Path) -> None:
    """Answers by two instances until SIGKILL; writes their processes; runs in a process."""

    def before() -> None:
        Path(f"{output}.pids").write_text(" ".join(str(p.pid) for p in instances()))
        assert "tensorflow" not in sys.modules

    run(make_job(model, output, 2), progress=until_killed(before))


@pytest.mark.slow
def test_runs_that_die_resume_with_any_number_of_instances(
    tiny_model: Path, tmp_path: Path, undisturbed: Result
) -> None:
    """An instance dies twice, then the run itself, and a part in the middle is lost."""
    output = tmp_path / "run"
    with pytest.raises(WorkerDiedError, match=r"1 of 1 .*SIGKILL.* again to resume"):
        run(make_job(tiny_model, output, 1), progress=killing(2))
    assert not instances()
    run_killed("tests.runs.test_pipeline", "run_until_killed", tiny_model, output)
    pids = [int(pid) for pid in Path(f"{output}.pids").read_text().split()]
    wait_until(lambda: not any(map(psutil.pid_exists, pids)))
    stored = parts(output / storage.WORK)
    assert len(pids) == 2 and len(stored) > 2
    (output / storage.WORK / list(stored)[1]).unlink()
    resumed = run(make_job(tiny_model, output, None)).totals.resumed_windows
    assert 0 < resumed < undisturbed.totals.windows
    expected = (undisturbed.folder / PREDICTIONS).read_bytes()
    assert (output / PREDICTIONS).read_bytes() == expected


@pytest.mark.slow
def test_tensorflow_keeps_the_threads_of_the_first_run(tiny_model: Path, tmp_path: Path) -> None:
    done = python("-c", IN_PROCESS, tiny_model, tmp_path)
    assert done.returncode == 0, done.stderr
    threads, error = done.stdout.splitlines()
    assert threads == "1"
    assert "with 1 threads already and cannot change to 2" in error


def test_scores_depend_on_threads_and_not_on_instances(tiny_model: Path, tmp_path: Path) -> None:
    plain = Job([bundled_sample()], tiny_model, root=tmp_path)
    one, two, four = (
        replace(plain, compute=Compute(instances=n, threads=t)) for n, t in ((1, 1), (2, 1), (1, 4))
    )
    request = request_of(plain)
    assert one.scores(request) == two.scores(request)
    assert one.folder(request) == two.folder(request)
    assert len({job.folder(request) for job in (plain, one, four)}) == 3
    assert Job.from_dict(one.to_dict()).compute.threads == 1
    assert "threads" not in plain.to_dict()
