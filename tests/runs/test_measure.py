"""Tests the times of runs: phases that add up, those before an interruption too."""

import json
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq import processor, storage
from nq.evaluation.answer_files import PREDICTIONS
from nq.inference.scorer import Counters
from nq.runs import measure
from nq.runs.folder import METRICS
from nq.runs.job import Job
from nq.runs.measure import (
    BESIDE,
    BUSY,
    TIMES,
    WARM,
    Clock,
    Totals,
    own_peak_bytes,
    prediction_phases,
    tree_use,
)
from nq.runs.run import run
from tests.runs.test_resume import make_job, run_killed, until_killed
from tests.support.child_processes import wait_until

MIB = 1 << 20


@given(
    *(st.floats(0, 100) for _ in range(5)),
    st.integers(0, 100),
    st.integers(0, 100),
)
def test_the_first_batches_count_as_the_later_ones(
    compile_s: float,
    first_s: float,
    later_s: float,
    more_s: float,
    rest_s: float,
    first: int,
    later: int,
) -> None:
    """The warm-up is what they take longer, and all seconds are in one phase."""
    counters = Counters(compile_s, first_s, first, first + later, 0, more_s, rest_s)
    total = compile_s + first_s + later_s + more_s + rest_s
    phases = prediction_phases(total, counters)
    assert sum(s for n, s in phases.items() if n not in BESIDE) == pytest.approx(total)
    assert 0 <= phases["warmup_s"] <= first_s
    computing_s = phases["predict_s"] - more_s - rest_s
    if phases["warmup_s"] > 0.001:
        assert computing_s == pytest.approx(later_s * (first + later) / later, abs=1e-6)
    elif not later:
        assert computing_s == pytest.approx(first_s + later_s, abs=1e-6)


WORK = "import time\nwhile time.process_time() < 0.6: pass"
CHILD = "import time; data = b'x' * (60 << 20); print(1, flush=True); time.sleep(600)"


def test_memory_of_children_counts() -> None:
    before, _ = tree_use()
    with subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE) as child:
        assert child.stdout and child.stdout.readline()
        with_child, _ = tree_use()
        child.kill()
    assert with_child - before > 50 * MIB
    assert before > 10 * MIB < own_peak_bytes()


@pytest.mark.parametrize(
    ("others_s", "own_s", "is_busy"), [(0, 10, False), (0.5, 2, False), (5, 10, True)]
)
def test_work_of_other_programs_is_a_reason(
    others_s: float, own_s: float, is_busy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In 10 seconds of two cores."""
    own, every, now = [7.0, 7.0 + own_s], [30.0, 30.0 + own_s + others_s], [100.0, 110.0]
    monkeypatch.setattr(measure, "tree_use", lambda: (1, own[0]))
    monkeypatch.setattr(measure, "cores_work_s", lambda: every[0])
    monkeypatch.setattr(processor, "cores", lambda: (0, 1))
    monkeypatch.setattr(time, "time", lambda: now[0])
    clock = Clock()
    for values in (own, every, now):
        del values[0]
    assert (BUSY in clock.finish(Totals()).reasons) is is_busy


def run_until_timed(model: Path, output: Path) -> None:
    """Answers until SIGKILL, which waits for the times; runs in a process of its own."""
    times = output / storage.WORK / TIMES
    run(make_job(model, output), progress=until_killed(lambda: wait_until(times.exists)))


@pytest.mark.slow
def test_the_time_of_a_resumed_run_is_the_sum_of_its_parts(
    tiny_model: Path, tmp_path: Path
) -> None:
    begin, folder = time.time(), tmp_path / "run"
    run_killed("tests.runs.test_measure", "run_until_timed", tiny_model, folder)
    first = storage.read_json(folder / storage.WORK / TIMES)
    killed = time.time()
    result = run(make_job(tiny_model, folder))
    ended = time.time()
    assert 0 < first["total_s"] < killed - begin
    assert 0 < result.measured.time["total_s"] - first["total_s"] < ended - killed
    phases = [s for name, s in result.measured.time.items() if name not in BESIDE]
    assert sum(phases) == pytest.approx(result.measured.time["total_s"], rel=1e-6)
    assert min(phases) >= 0
    assert result.measured.time["load_s"] > first["load_s"]
    assert result.measured.time["preprocess_s"] >= first["preprocess_s"]
    assert result.totals.resumed_windows > 0
    assert result.speed_comparable.startswith("no: resumed")
    written = json.loads((folder / METRICS).read_bytes())
    moments = written["started_at"], written["ended_at"]
    started, end = map(datetime.fromisoformat, moments)
    assert killed <= started.timestamp() + 0.001 < end.timestamp() <= ended
    assert written["time"] == result.measured.time
    assert written["speed_comparable"] == result.speed_comparable
    assert not (folder / storage.WORK).exists()
    check_second_run(make_job(tiny_model, folder))


def check_second_run(job: Job) -> None:
    """Checks a run in a process that has run before, with windows that are prepared.

    Undisturbed, it has the predictions of the run that was killed and resumed.
    """
    assert job.output
    resumed = (job.output / PREDICTIONS).read_bytes()
    again = run(job)
    assert (job.output / PREDICTIONS).read_bytes() == resumed
    assert set(again.not_comparable) - {BUSY} == {WARM}
    assert again.speed_comparable.startswith(f"no: {WARM}")
    assert not again.totals.resumed_windows
    assert again.measured.time["preprocess_s"] == 0 < again.measured.time["predict_s"]
