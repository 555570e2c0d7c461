"""Ctrl-C and SIGTERM: the first one starts a clean-up of limited time, a second one ends at once.

The first signal raises ``KeyboardInterrupt`` in the main thread. Python does so only when that
thread returns from C code, and whatever runs afterwards may wait for ever: for a thread, a process
or a lock that the interrupted code held. A thread of its own therefore receives the signals too,
and ends the process when the time is over. An ordinary exit after an interruption skips the
destruction of the interpreter and of C++ libraries, which waits for their threads.
"""

import atexit
import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import Any

GRACE_S = 7.0
"""Seconds from the first signal to the end of the process at the latest."""
REPEAT_S = 0.3
"""Signals that follow the first one faster are the same Ctrl-C, sent on by a parent process."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)
MESSAGE = "nq: interrupted"
RESUME_MESSAGE = f"{MESSAGE}: run the same command again to resume"


class Interruption:
    """The first signal that asked this process to end, if any.

    Attributes:
        number: of the signal; 0 before there is one.
        message: what is printed, once it is ``reported``.
        writer: the file to which Python writes the number of each signal.
    """

    def __init__(self) -> None:
        self.number = 0
        self.message = MESSAGE
        self.reported = self._raised = False
        self._reader, self.writer = os.pipe()
        os.set_blocking(self.writer, False)  # a condition of signal.set_wakeup_fd

    @property
    def exit_code(self) -> int:
        """The exit code of a process that a signal has ended: 130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + (self.number or signal.SIGINT)

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        """Raises ``KeyboardInterrupt`` for the first signal; ``watch`` receives later ones."""
        if not self._raised:
            self._raised = True
            self.number = number
            raise KeyboardInterrupt

    def watch(self) -> None:
        """Ends the process ``GRACE_S`` after the first signal, or with the second one."""
        while (first := self._next(None)) not in (0, *SIGNALS):
            pass
        if not first:
            os.close(self._reader)
            return
        self.number = first
        deadline = time.monotonic() + GRACE_S
        time.sleep(REPEAT_S)
        while self._next(0.0):
            pass
        while (left := deadline - time.monotonic()) > 0:
            if self._next(left) in SIGNALS:
                break
        if not self.reported:
            with contextlib.suppress(OSError):
                os.write(2, f"{self.message}\n".encode())
        os._exit(self.exit_code)

    def _next(self, timeout_s: float | None) -> int:
        """Waits for a signal and returns its number; 0 if none comes in time, or any more."""
        ready, _, _ = select.select([self._reader], [], [], timeout_s)
        return os.read(self._reader, 1)[0] if ready else 0

    def end(self) -> None:
        os.write(self.writer, b"\0")
        os.close(self.writer)


@contextlib.contextmanager
def limited() -> Iterator[Interruption]:
    """Handles the signals in the block; if one has come, until the process ends.

    Signals that are ignored, as in the background of a shell, or that have another handler, as
    inside another such block, are left alone. Outside the main thread nothing is changed.

    Yields:
        The interruption, to be examined at the end.
    """
    interruption = Interruption()
    own = (signal.SIG_DFL, signal.default_int_handler)
    numbers = [number for number in SIGNALS if signal.getsignal(number) in own]
    if not numbers or threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    unraisable = sys.unraisablehook
    sys.unraisablehook = partial(_report_unraisable, unraisable)
    before = {number: signal.signal(number, interruption.on_signal) for number in numbers}
    wakeup = signal.set_wakeup_fd(interruption.writer, warn_on_full_buffer=False)
    atexit.register(_exit_at_once, interruption)  # the first registered function is called last
    threading.Thread(
        target=interruption.watch,
        name="nq-interruption",
        daemon=True,
    ).start()
    _handling.append(interruption)
    try:
        yield interruption
    finally:
        if _handling and not interruption.number:
            _handling.clear()
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
            interruption.end()
            sys.unraisablehook = unraisable
            atexit.unregister(_exit_at_once)


_handling = list[Interruption]()  # the one that handles the signals of this process


def _after_fork() -> None:
    """Drops the handlers of the parent or its event loop, so that a signal ends the child alone."""
    while _handling:
        _handling.pop().number = 0
        signal.set_wakeup_fd(-1)
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
    _unmask()


_mask = partial(signal.pthread_sigmask, signal.SIG_BLOCK, SIGNALS)
_unmask = partial(signal.pthread_sigmask, signal.SIG_UNBLOCK, SIGNALS)
os.register_at_fork(
    before=_mask,
    after_in_parent=_unmask,
    after_in_child=_after_fork,
)


def _report_unraisable(report: Callable[[Any], Any], lost: Any) -> None:
    """Reports an exception that Python ignores, but not a ``KeyboardInterrupt``.

    One that is raised in a destructor or a callback is lost; ``watch`` ends the process then.
    """
    if not issubclass(lost.exc_type, KeyboardInterrupt):
        report(lost)


def _exit_at_once(interruption: Interruption) -> None:
    """Ends the process without the destruction of the interpreter if it was interrupted."""
    if interruption.number:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(interruption.exit_code)
