"""Beam's manners: which runner, which options, how loud, and what a failure says.

The default is ``FnApiRunner``: in this process for one worker, with worker processes for
more. Those are started by a command of our own, which keeps their chatter in a file and
leaves an interrupt to the process that the person sees.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from pathlib import Path
from typing import Any, NoReturn

from nq.errors import Error
from nq.preprocess.processes import python_path


@contextlib.contextmanager
def _own_logging() -> Iterator[None]:
    """Beam sets up logging when it is imported and asked for options; undone here."""
    handlers = list(logging.getLogger().handlers)
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        logging.getLogger().handlers[:] = handlers


with _own_logging():
    import apache_beam as beam
    from apache_beam.options import pipeline_options
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner
    from apache_beam.transforms.environments import SubprocessSDKEnvironment

__all__ = ["asked_workers", "beam", "check_options", "execute", "failure"]

log = logging.getLogger(__name__)

DEFAULT_RUNNER = "FnApiRunner"
WORKER_MODULE = "apache_beam.runners.worker.sdk_worker_main"
WORKER_LOG, WORKER_PIDS = "workers.log", "workers.pid"
WORKER_THREAD = "run_worker"  # the name of Beam's thread that waits for a worker process
WORKER_THREADS = (WORKER_THREAD, "beam_control_read", "read_grpc_client_inputs")
THREAD_PATIENCE_S = 5.0
_STEP = re.compile(r" \[while running '([^'/]*?)(?:-ptransform-\d+)?(?:/[^']*)?'\]")
_CLASS = re.compile(
    r"^(?:RuntimeError: )?(?:nq\.errors\.Error: )?(?:(?:[a-z]\w*\.)+(?=[A-Z]\w*Error:))?"
)


class _Parser(pipeline_options._BeamArgumentParser):  # type: ignore[misc]
    """Knows every option that Beam knows, and raises where argparse would exit."""

    def __init__(self) -> None:
        super().__init__(allow_abbrev=False, add_help=False, conflict_handler="resolve")
        for cls in pipeline_options.PipelineOptions.__subclasses__():
            cls._add_argparse_args(self)

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def check_options(options: Sequence[str]) -> None:
    """Checks options that are meant for Beam.

    Raises:
        ValueError: Beam does not know an option, or refuses its value.
    """
    _, unknown = _Parser().parse_known_args(list(options))
    if unknown:
        raise ValueError(f"unrecognized arguments: {' '.join(unknown)}")


def asked_workers(options: Sequence[str]) -> int | None:
    """The processes that Beam's own ``--direct_num_workers`` asks for, if it is there."""
    asked = _Parser().parse_known_args(list(options))[0].direct_num_workers
    given = any(option.startswith("--direct_num_workers") for option in options)
    return (asked or os.cpu_count() or 1) if given else None


def execute(
    build: Callable[[Any], None], workers: int, options: Sequence[str], part: Path
) -> dict[str, int]:
    """Builds a pipeline and runs it to its end; returns its counters by name.

    Args:
        build: adds the steps to an empty pipeline.
        workers: how many processes share the work.
        options: Beam's options; they win over ``workers``.
        part: a folder for what the worker processes leave.

    Raises:
        Error: a step failed or a worker died; names the step and the cause.
    """
    try:
        with _quiet():
            pipeline, in_processes = _pipeline(workers, options, part)
            build(pipeline)
            result = _run_in_processes(pipeline, part) if in_processes else pipeline.run()
            result.wait_until_finish()
            counters = result.metrics().query()["counters"]
    except Exception as error:
        if _was_interrupted(error):
            raise KeyboardInterrupt from error
        raise Error(failure(str(error))) from error
    return {counter.key.metric.name: counter.result or 0 for counter in counters}


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether Beam wrapped an interrupt into an exception of its own."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _pipeline(workers: int, options: Sequence[str], part: Path) -> tuple[Any, bool]:
    """An empty pipeline, and whether it runs in worker processes that we start."""
    with _own_logging():
        parsed = pipeline_options.PipelineOptions([f"--runner={DEFAULT_RUNNER}", *options])
    direct = parsed.view_as(pipeline_options.DirectOptions)
    runner = parsed.view_as(pipeline_options.StandardOptions).runner
    several = workers > 1 or direct.direct_running_mode == "multi_processing"
    if runner != DEFAULT_RUNNER or not several or direct.direct_running_mode == "multi_threading":
        return beam.Pipeline(options=parsed), False
    direct.direct_num_workers = workers
    direct.direct_running_mode = "in_memory"  # else Beam takes its own command
    environment = SubprocessSDKEnvironment.from_command_string(_worker_command(part))
    return beam.Pipeline(runner=FnApiRunner(environment), options=parsed), True


def _worker_command(part: Path) -> str:
    """The shell command that starts a worker process; the shell becomes that process."""
    pids, chatter = (shlex.quote(str(part.resolve() / name)) for name in (WORKER_PIDS, WORKER_LOG))
    python = f"env PYTHONPATH={shlex.quote(python_path())} {shlex.quote(sys.executable)}"
    return (
        f"trap '' INT; echo $$ >> {pids}; "
        f"exec {python} -P -m {WORKER_MODULE} < /dev/null >> {chatter} 2>&1"
    )


def _run_in_processes(pipeline: Any, part: Path) -> Any:
    """Runs the pipeline; Beam itself would wait for ever for a worker that was killed."""
    outcome: Future[Any] = Future()

    def work() -> None:
        try:
            result = pipeline.run()
        except BaseException as error:
            _settle(outcome, error)
        else:
            outcome.set_result(result)

    def on_thread_error(args: threading.ExceptHookArgs) -> None:
        log.debug("in thread %s: %s", args.thread and args.thread.name, args.exc_value)
        if args.thread and args.thread.name == WORKER_THREAD:
            _settle(outcome, Error(_worker_death(str(args.exc_value), part)))

    before, threading.excepthook = threading.excepthook, on_thread_error
    try:
        threading.Thread(target=work, name="pipeline", daemon=True).start()
        return outcome.result()
    except BaseException:
        _end_workers(part)
        raise
    finally:
        threading.excepthook = before


def _settle(outcome: Future[Any], error: BaseException) -> None:
    with contextlib.suppress(InvalidStateError):  # the first error counts
        outcome.set_exception(error)


def _worker_death(text: str, part: Path) -> str:
    """Why a worker process ended, as far as its return code and its last words tell."""
    code = text.rpartition(" ")[2]
    if code == str(-signal.SIGKILL):
        return "a worker process was killed, perhaps for want of memory: give fewer --workers"
    lines = (part / WORKER_LOG).read_text("utf-8", "replace").splitlines() or [""]
    return f"a worker process ended with code {code}: {lines[-1]}"


def _end_workers(part: Path) -> None:
    """Kills the worker processes that are left, and waits for the threads that served them."""
    pids = part / WORKER_PIDS
    for pid in map(int, pids.read_text().split() if pids.exists() else ()):
        with contextlib.suppress(ChildProcessError, ProcessLookupError):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # is it ours still?
            os.kill(pid, signal.SIGKILL)
    for thread in threading.enumerate():
        if thread.name in WORKER_THREADS:
            thread.join(THREAD_PATIENCE_S)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps Beam's log out of ours, except when someone debugs; failures are raised anyway."""
    logger = logging.getLogger("apache_beam")
    before = logger.level
    if not log.isEnabledFor(logging.DEBUG):
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)


def failure(text: str) -> str:
    """The cause in what Beam raises, which may be the traceback of another process.

    >>> failure("OSError: [Errno 28] No space left on device [while running 'Write/Write/Close']")
    'OSError: [Errno 28] No space left on device (in step Write)'
    """
    if "Traceback (most recent call last)" in text:
        text = text.strip().splitlines()[-1]
    return _CLASS.sub("", _STEP.sub(r" (in step \1)", text))
