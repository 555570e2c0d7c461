"""Tests the options of Beam and the errors of its runners in one line."""

import socket

import pytest

from nq.beam.runner import check_flink, failure, parse_options
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


def test_options_of_a_runner_elsewhere_are_passed_on() -> None:
    options = parse_options(["--runner=FlinkRunner", "--execution_mode_for_batch=BATCH_FORCED"])
    kept = options.get_all_options(retain_unknown_options=True)
    assert kept["execution_mode_for_batch"] == "BATCH_FORCED"


def test_a_cluster_must_answer_at_its_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for master in (f"127.0.0.1:{port}", f"http://me:secret@127.0.0.1:{port}", "[auto]"):
            check_flink(["--runner=FlinkRunner", f"--flink_master={master}"])
    for master in (f"127.0.0.1:{port}", f"http://me:secret@127.0.0.1:{port}", "me:secret@host:x"):
        with pytest.raises(Error, match="--flink_master") as caught:
            check_flink(["--runner=FlinkRunner", f"--flink_master={master}"])
        assert "secret" not in str(caught.value)
