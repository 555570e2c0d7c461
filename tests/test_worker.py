"""Tests the processes that serve calls: their start, their calls, and their end."""

import logging
import math
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from nq.errors import Error
from nq.worker import Limits, Worker, WorkerDiedError, python
from tests.support.child_processes import ROOT, wait_until

NAMES = ("html", "json", "mlflow", "nq", "sitecustomize")


def test_a_child_and_its_own_child_run_no_file_of_the_working_folder(tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text("open('ran', 'w')", encoding="utf-8")
    imports = "import html, importlib.util, json; importlib.util.find_spec('mlflow'); import nq"
    code = f"{imports}\nimport subprocess, sys\nprint(nq.__file__, flush=True)\n"
    code += f"subprocess.run([sys.executable, '-c', {imports + '; print(nq.__file__)'!r}])"
    done = subprocess.run(
        **python("-c", code), cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [str(ROOT / "nq" / "__init__.py")] * 2
    assert not (tmp_path / "ran").exists()


def squares(count: int) -> Iterator[int]:
    for number in range(count):
        logging.getLogger("nq.test").warning("%d", number)
        yield number * number
    if count == 3:
        raise Error("three")


def test_values_logs_and_errors_arrive_in_order() -> None:
    logged = list[logging.LogRecord]()
    worker = Worker(squares, name="squares", on_log=logged.append)
    assert list(worker.stream(2)) == [0, 1]
    assert [record.getMessage() for record in logged] == ["0", "1"]
    stream = worker.stream(3)
    assert [next(stream) for _ in range(3)] == [0, 1, 4]
    with pytest.raises(Error, match="three"):
        next(stream)
    assert list(worker.stream(1)) == [0]
    worker.end()
    assert not worker.is_alive


def test_calls_end_at_their_limits_and_errors_keep_what_they_carry(tmp_path: Path) -> None:
    reader = Worker(os.stat, name="reads")
    with pytest.raises(FileNotFoundError) as error:
        reader.call(str(tmp_path / "none"))
    assert error.value.filename == str(tmp_path / "none")
    assert reader.call(str(tmp_path)).st_ino == tmp_path.stat().st_ino
    reader.end()
    sleeper = Worker(time.sleep, name="sleeps")
    sleeper.wait()
    with pytest.raises(WorkerDiedError, match="SIGKILL"):
        sleeper.call(600, timeout_s=0.2)
    busy = Worker(math.factorial, name="computes", limits=Limits(0.5, 1 << 30))
    with pytest.raises(WorkerDiedError, match="SIGXCPU"):
        busy.call(1 << 30)


@pytest.mark.parametrize("value", ["600", "None"])
def test_a_worker_ends_with_its_parent(value: str) -> None:
    """Also where it waits for a call."""
    parent = (
        "import os, time; from nq.worker import Worker\n"
        f"own = Worker(time.sleep, name='sleeps'); own.wait(); value = {value}\n"
        "if value: own.send(value)\n"
        "print(own.process.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run(**python("-c", parent), capture_output=True, check=False)
    wait_until(lambda: not psutil.pid_exists(int(done.stdout)))
