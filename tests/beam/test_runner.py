"""Tests the options of Beam and the errors of its runners in one line."""

from __future__ import annotations

import pytest

from nq.beam.runner import failure, parse_options, requested_workers
from nq.errors import Error

WORKER = """Traceback (most recent call last):
  File "/venv/apache_beam/runners/worker/sdk_worker.py", line 310, in _execute
    response = task()
OSError: [Errno 28] No space left on device

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "apache_beam/runners/common.py", line 1512, in process
    raise
OSError: [Errno 28] No space left on device [while running 'Decide/Decide']
"""
CAUSE = "OSError: [Errno 28] No space left on device (in step Decide)"
FLINK = "java.lang.RuntimeException: Error received from SDK harness for instruction 4: "


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (WORKER, CAUSE),
        (f"{FLINK}{WORKER}\n\tat org.apache.beam.runners.Foo.bar(Foo.java:3)\n", CAUSE),
        (f"Pipeline job_1 failed in state FAILED: {FLINK}{WORKER}", CAUSE),
        ("Pipeline job_1 failed in state CANCELLED: unknown error", "the job was cancelled"),
        ("Pipeline job_1 failed in state FAILED: java.net.E: refused", "java.net.E: refused"),
        ("nq.errors.Error: too old [while running 'Encode-ptransform-7']", "too old (in step Enc"),
        ("Traceback (most recent call last):", "Traceback (most recent call last):"),
        ("", ""),
    ],
)
def test_the_cause_of_a_failure(text: str, expected: str) -> None:
    assert failure(text).startswith(expected)
    assert "\n" not in failure(text)


@pytest.mark.parametrize(
    ("options", "workers"),
    [
        (["--runner=DirectRunner"], None),
        (["--runner=FlinkRunner", "--parallelism=4"], 4),
        (["--runner=FlinkRunner", "--parallelism", "8", "--unknown_to_beam=2"], 8),
        (["--direct_num_workers=3"], 3),
    ],
)
def test_the_workers_that_options_request(options: list[str], workers: int | None) -> None:
    assert requested_workers(options) == workers
    assert (requested_workers(["--direct_num_workers=0"]) or 0) >= 1


def test_options_of_a_runner_elsewhere_are_passed_on() -> None:
    options = parse_options(["--runner=FlinkRunner", "--execution_mode_for_batch=BATCH_FORCED"])
    kept = options.get_all_options(retain_unknown_options=True)
    assert kept["execution_mode_for_batch"] == "BATCH_FORCED"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--runner=FlinkRunner", "stray"], "stray"),
        (["--runner=FnApiRunner", "--execution_mode_for_batch=X"], "--execution_mode_for_batch"),
        (["--direct_num_workers=x"], "--direct_num_workers"),
        (["--runner"], "argument --runner"),
        (["--runner=no.module.Runner"], "the runner no.module.Runner cannot be imported"),
        (["--runner=builtins.print"], "builtins.print is no runner of Apache Beam"),
        (["--runner=nq.records.Span"], "nq.records.Span is no runner of Apache Beam"),
    ],
)
def test_options_that_are_refused(
    options: list[str], problem: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises((ValueError, Error), match=problem):
        parse_options(options)
    assert capfd.readouterr() == ("", "")
