"""The process of an instance: it loads a model and scores what it is sent.

``nq.inference.instances`` starts it as ``python -m nq.inference.instance FILE CORE …`` with the
number of an open socket. It ends with the process that started it, however that ends.
"""

# Libraries start threads when they are imported, and a thread keeps the cores that its process has
# then. So the modules of nq are imported after the cores are set.
from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

CLEANUP_S = 2.0

if TYPE_CHECKING:
    from nq.inference.messages import Answer, Failure, Score, Start
    from nq.inference.scorer import Scorer


def main(arguments: list[str]) -> None:
    """Scores until the process that started this one closes the socket or ends."""
    number, *cores = map(int, arguments)
    os.sched_setaffinity(0, cores)
    for signals in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signals, signal.default_int_handler)
    from nq.inference.messages import Ready

    channel = _Channel(number)
    start: Start = channel.receive()
    ours = logging.getLogger("nq")
    ours.setLevel(start.log_level)
    ours.propagate = False
    ours.addHandler(_Handler(channel))
    try:
        scorer = _load(start)
    except Exception as error:
        channel.send(_failure(error))
        return
    channel.send(Ready(scorer.device, scorer.precision, scorer.batch_size, scorer.part_batches))
    while True:
        channel.send(_answer(scorer, channel.receive(), channel, tuple(cores)))


class _Channel:
    """The socket, read by a thread, so that its end ends the process even while it computes."""

    def __init__(self, number: int) -> None:
        self._connection: Connection[Any, Any] = Connection(number)
        self._received: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._sending = threading.Lock()
        threading.Thread(target=self._read, name="nq-messages", daemon=True).start()

    def _read(self) -> None:
        try:
            with contextlib.suppress(EOFError, OSError):
                while True:
                    self._received.put(self._connection.recv())
        finally:
            _end()

    def receive(self) -> Any:
        """Returns the next message, as soon as there is one."""
        return self._received.get()

    def send(self, message: Answer) -> None:
        """Sends a message; ends the process if nobody reads it."""
        try:
            with self._sending:
                self._connection.send(message)
        except OSError:
            os._exit(0)


def _end() -> None:
    """Interrupts this process, and ends it if it has not cleaned up in time."""
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(CLEANUP_S)
    os._exit(0)


class _Handler(logging.Handler):
    """Sends log lines to the process of the pool."""

    def __init__(self, channel: _Channel) -> None:
        super().__init__()
        self._channel = channel

    def emit(self, record: logging.LogRecord) -> None:
        from nq.inference.messages import LogLine

        self._channel.send(LogLine(record.name, record.levelno, record.getMessage()))


def _load(start: Start) -> Scorer:
    from nq.inference.load import load_scorer
    from nq.model.runtime import import_tensorflow

    import_tensorflow(start.spec.threads)
    return load_scorer(start.spec)


def _answer(scorer: Scorer, part: Score, channel: _Channel, cores: tuple[int, ...]) -> Answer:
    """Returns the scores of a part, or why there are none."""
    from dataclasses import replace

    from nq.inference.cores import threads_elsewhere
    from nq.inference.messages import Scored, Windows

    before, completed = replace(scorer.counters), 0

    def progress(windows: int) -> None:
        nonlocal completed
        completed += windows
        channel.send(Windows(completed))

    try:
        columns = scorer.scores(part.rows, part.examples, progress)
    except Exception as error:
        return _failure(error)
    return Scored(columns, scorer.counters - before, threads_elsewhere(cores))


def _failure(error: Exception) -> Failure:
    """Returns an exception as a message; those of libraries become their nearest known class."""
    from nq.inference.messages import Failure

    text, trace = str(error), "".join(traceback.format_exception(error))
    for kind in type(error).__mro__:
        if kind.__module__ in ("builtins", "nq.errors"):
            try:
                kind(text)
            except TypeError:  # such as UnicodeDecodeError, which has more arguments
                continue
            return Failure(kind, text, trace)
    raise AssertionError("every exception is an Exception")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(sys.argv[1:])
    os._exit(0)  # the destruction of the interpreter would wait for the threads of libraries
