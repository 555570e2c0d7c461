"""Runs a Beam pipeline: options, worker processes on this machine, errors in one line.

The default runner is ``FnApiRunner``: in this process for one worker, with worker processes for
more. These are our own (``nq.beam.worker``): they keep their output in a file and ignore Ctrl-C.
Beam's own mode ``multi_processing`` waits for ever for a worker that was killed (tried with 2.77;
issue 19674 of apache/beam); here the pipeline runs in a thread that is given up then.
"""

import argparse
import contextlib
import logging
import os
import re
import shlex
import signal
import socket
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nq.errors import Error
from nq.extras import requirement
from nq.text import without_password
from nq.worker import python


@contextlib.contextmanager
def _own_logging() -> Iterator[None]:
    """Undoes the set-up of logging that importing Beam and parsing its options cause."""
    handlers = list(logging.getLogger().handlers)
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        logging.getLogger().handlers[:] = handlers


# gRPC would look for the workers of this machine behind the user's proxy
os.environ.setdefault("no_grpc_proxy", f"localhost,127.0.0.1,{os.environ.get('no_proxy', '')}")
with _own_logging():
    import apache_beam as beam
    import grpc
    from apache_beam.io.filesystem import CompressionTypes, FileSystem
    from apache_beam.io.filesystems import FileSystems
    from apache_beam.options.pipeline_options import (
        DirectOptions,
        FlinkRunnerOptions,
        GoogleCloudOptions,
        PipelineOptions,
        PortableOptions,
        StandardOptions,
    )
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner
    from apache_beam.runners.runner import PipelineState, create_runner
    from apache_beam.transforms.environments import SubprocessSDKEnvironment

__all__ = ["CompressionTypes", "FileSystem", "FileSystems", "beam"]

log = logging.getLogger(__name__)

DEFAULT_RUNNER = "FnApiRunner"
LOCAL_RUNNERS = (DEFAULT_RUNNER, "DirectRunner", "BundleBasedDirectRunner")
"""Runners whose options are all those that Beam knows here."""
NO_CLUSTER = ("", "[local]", "[auto]", "[collection]")
"""Values of ``--flink_master`` by which Beam starts a Flink of its own."""
FLINK_TIMEOUT_S = 5.0
WORKER_LOG = "workers.log"
WORKER_PIPE = "workers.pipe"
"""The output of the worker processes, and a pipe: they end when nobody can write to it any more."""
WORKER_THREAD = "run_worker"  # the name of Beam's thread that waits for a worker process
WORKER_THREADS = (WORKER_THREAD, "beam_control_read", "read_grpc_client_inputs")
THREADS_TIMEOUT_S = 2.0
_STEP = re.compile(r" \[while running '([^'/]*?)(?:-ptransform-\d+)?(?:/[^']*)?'\]")
_TRACEBACK = "Traceback (most recent call last):"
_EXCEPTION = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?::|$)")
_CANCELLED = re.compile(r"Pipeline \S+ failed in state CANCELLED|\bJobCancellationException\b")
_FAILED = re.compile(r"^Pipeline \S+ failed in state \w+: ")
_CLASS = re.compile(
    r"^(?:RuntimeError: )?(?:nq\.errors\.Error: )?(?:(?:[a-z]\w*\.)+(?=[A-Z]\w*Error:))?"
)
_ADVICE = (
    (
        re.compile("No module named 'nq\\b"),
        ": a worker has no nq, or another version: there, pip install "
        f"'{requirement('beam', 'cpu')}'",
    ),
    (
        re.compile("not installed: run pip install"),
        ": that is what a worker lacks; do it there, or give another --profile",
    ),
    (
        re.compile("^FileNotFoundError"),
        ": a worker does not see it; give paths that all workers see, and --temp to copy the model",
    ),
)
"""What to do about errors that only workers have."""


def parse_options(options: Sequence[str]) -> PipelineOptions:
    """Parses options for Beam, which raises ``ValueError`` for one that Beam refuses.

    Runners on other machines have options of their own, which are passed on to them.
    """

    def check(parser: argparse.ArgumentParser) -> None:  # with the options of all of Beam
        parser.exit_on_error = False
        known, unknown = parser.parse_known_args([f"--runner={DEFAULT_RUNNER}", *options])
        if unknown and (known.runner in LOCAL_RUNNERS or not unknown[0].startswith("--")):
            raise ValueError(f"unrecognized arguments: {' '.join(unknown)}")
        try:
            create_runner(known.runner)
        except (ValueError, ImportError, AttributeError, TypeError) as error:
            raise Error(f"the runner {known.runner} cannot be created: {error}") from error

    try:
        with _own_logging():
            PipelineOptions([]).get_all_options(add_extra_args_fn=check)
            return PipelineOptions([f"--runner={DEFAULT_RUNNER}", *options])
    except argparse.ArgumentError as error:
        raise ValueError(str(error)) from error


def requested_workers(options: Sequence[str]) -> int | None:
    """Returns the ``--direct_num_workers`` or Flink's ``--parallelism``, ``None`` for neither."""
    parsed = parse_options(options)
    parallelism = parsed.view_as(FlinkRunnerOptions).parallelism
    if not any(option.startswith("--direct_num_workers") for option in options):
        return int(parallelism) if parallelism and parallelism > 0 else None
    requested: int = parsed.view_as(DirectOptions).direct_num_workers
    return requested or os.cpu_count() or 1


def check_flink(options: Sequence[str]) -> None:
    """Checks that a port answers where ``--flink_master`` says that a cluster is, if anywhere."""
    master = str(parse_options(options).view_as(FlinkRunnerOptions).flink_master or "")
    if master in NO_CLUSTER:
        return
    url = master if "://" in master else f"http://{master}"
    try:
        place = urllib.parse.urlsplit(url)
        port = place.port or (443 if place.scheme == "https" else 80)
        socket.create_connection((place.hostname or "", port), FLINK_TIMEOUT_S).close()
    except (OSError, ValueError) as error:
        what = f"no Flink answers at {without_password(url)}"
        reason = without_password(str(getattr(error, "strerror", None) or error), url)
        raise Error(f"{what} ({reason}): start it, or give another --flink_master") from error


@dataclass(frozen=True)
class Finished:
    """The counters of a finished pipeline; ``distributions`` has (sum, count) by name."""

    runner: str
    job_name: str | None
    job_id: str | None
    counters: Counter[str]
    distributions: Mapping[str, tuple[int, int]]


def execute(
    build: Callable[[Any], None], workers: int, options: Sequence[str], part: Path
) -> Finished:
    """Builds a pipeline and runs it to its end; worker processes have their files in ``part``.

    Raises:
        Error: a step failed, a worker died, or the job was cancelled; names the step and the cause.
    """
    parsed = parse_options(options)
    runner = str(parsed.view_as(StandardOptions).runner)  # some runners remove it
    direct = parsed.view_as(DirectOptions)
    mode = direct.direct_running_mode
    several = mode == "multi_processing" or (workers > 1 and mode != "multi_threading")
    try:
        with _quiet():
            if runner == DEFAULT_RUNNER and several:
                direct.direct_num_workers = workers
                direct.direct_running_mode = "in_memory"  # else Beam starts its own workers
                result = _run_in_processes(build, parsed, part)
            else:
                pipeline = beam.Pipeline(options=parsed)
                build(pipeline)
                result = pipeline.run()
            _wait(result)
            metrics = result.metrics().query()
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, KeyboardInterrupt):  # Beam raised an exception of its own
                raise KeyboardInterrupt from error
            cause = cause.__cause__ or cause.__context__
        raise Error(_explained(error, parsed)) from error
    job_id = getattr(result, "_job_id", None)
    return Finished(
        runner,
        parsed.view_as(GoogleCloudOptions).job_name,
        job_id and str(job_id),
        Counter({one.key.metric.name: one.result or 0 for one in metrics["counters"]}),
        {
            one.key.metric.name: (one.result.sum, one.result.count)
            for one in metrics["distributions"]
            if one.result
        },
    )


def _wait(result: Any) -> None:
    """Waits for the end of a job, which is cancelled if this process is interrupted."""
    try:
        state = result.wait_until_finish()
    except KeyboardInterrupt:
        with contextlib.suppress(Exception):
            result.cancel()
        raise
    if state != PipelineState.DONE:
        raise Error(f"the job ended in state {state}: run the command again")


def _run_in_processes(build: Callable[[Any], None], options: PipelineOptions, part: Path) -> Any:
    """Runs a pipeline in worker processes; returns its result, or raises when one ends early."""
    outcome: Future[Any] = Future()
    output = part.resolve() / WORKER_LOG
    pipe = part.resolve() / WORKER_PIPE
    path = shlex.quote(str(output))
    worker = python("-m", "nq.beam.worker", str(pipe))
    names = ("PYTHONPATH", "PYTHONSAFEPATH")
    variables = [f"{name}={worker['env'][name]}" for name in names]
    start = shlex.join(["env", *variables, *worker["args"]])
    command = f"trap '' INT; exec {start} < /dev/null >> {path} 2>&1"
    environment = SubprocessSDKEnvironment.from_command_string(command)
    pipeline = beam.Pipeline(runner=FnApiRunner(environment), options=options)
    build(pipeline)

    def fail(error: BaseException) -> None:
        with contextlib.suppress(InvalidStateError):  # the first error counts
            outcome.set_exception(error)

    def run() -> None:
        try:
            outcome.set_result(pipeline.run())
        except BaseException as error:
            fail(error)

    def on_thread_error(args: threading.ExceptHookArgs) -> None:
        log.debug("in thread %s: %s", args.thread and args.thread.name, args.exc_value)
        if args.thread and args.thread.name == WORKER_THREAD:
            code = str(args.exc_value).rpartition(" ")[2]
            if code == str(-signal.SIGKILL):
                why = "was killed, perhaps for want of memory: give fewer --workers"
            else:
                lines = output.read_text("utf-8", "replace").splitlines() or [""]
                why = f"ended with code {code}: {lines[-1]}"
            fail(Error(f"a worker process {why}"))

    before = threading.excepthook
    threading.excepthook = on_thread_error
    try:
        os.mkfifo(pipe)
        with open(os.open(pipe, os.O_RDWR), "rb"):  # when it is closed, the workers end
            threading.Thread(target=run, name="pipeline", daemon=True).start()
            return outcome.result()
    except BaseException:
        deadline = time.monotonic() + THREADS_TIMEOUT_S
        for thread in threading.enumerate():  # they raise errors, too, because workers end
            if thread.name in WORKER_THREADS:
                thread.join(max(0.0, deadline - time.monotonic()))
        raise
    finally:
        threading.excepthook = before


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hides Beam's log except when debugging; its failures are raised anyway."""
    logger = logging.getLogger("apache_beam")
    root = logging.getLogger()
    before = logger.level

    def is_not_of_beam(record: logging.LogRecord) -> bool:  # which repeats errors there
        return "apache_beam" not in record.pathname

    if not log.isEnabledFor(logging.DEBUG):
        logger.setLevel(logging.CRITICAL + 1)
        root.addFilter(is_not_of_beam)
    try:
        yield
    finally:
        logger.setLevel(before)
        root.removeFilter(is_not_of_beam)


def _explained(error: Exception, options: PipelineOptions) -> str:
    """Returns the cause of a pipeline's failure in one line."""
    portable = options.view_as(PortableOptions)
    if isinstance(error, grpc.FutureTimeoutError):
        return (
            f"the job server at {portable.job_endpoint} does not answer within "
            f"{portable.job_server_timeout} s: start it, or give another --job_endpoint"
        )
    if isinstance(error, grpc.RpcError):
        details = error.details() if hasattr(error, "details") else error
        return f"the job server failed: {details}"
    cause = failure(str(error))
    if options.view_as(StandardOptions).runner not in LOCAL_RUNNERS:
        for pattern, advice in _ADVICE:
            if pattern.search(cause):
                return cause + advice
    return cause


def failure(text: str) -> str:
    """Returns the cause in an error message of Beam, which may hold other processes' tracebacks.

    >>> failure("OSError: [Errno 28] No space left on device [while running 'Write/Write/Close']")
    'OSError: [Errno 28] No space left on device (in step Write)'
    """
    if _CANCELLED.search(text):
        return "the job was cancelled: the same command starts it again"
    *_, last = text.split(_TRACEBACK)
    step = _STEP.search(text)
    if last != text:
        lines = [line for line in last.splitlines() if line.strip()]
        text = next(filter(_EXCEPTION.match, lines), lines[-1] if lines else text)
    text = _FAILED.sub("", text).strip()
    text = _STEP.sub("", text)
    cause = _CLASS.sub("", text)
    return f"{cause} (in step {step[1]})" if step else cause
