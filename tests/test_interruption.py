"""Interrupted processes end, whatever their clean-up waits for."""

import contextlib
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from nq import interruption
from tests.support.child_processes import PATIENCE_S, first_line, started

START = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # tests may run where it is ignored
import hashlib, sys, threading, time
from nq import interruption
from nq.commands import arguments, terminal
parser = terminal.Parser("nq test", "A test.")
arguments.add_common(parser)
def wait():
    print("ready", flush=True)
    time.sleep(600)
def command(args):
"""
END = "sys.exit(terminal.run(command, parser, []))"
CLEANS_UP = """
    try:
        wait()
    finally:
        time.sleep(0.5)
        print("clean", flush=True)
"""
CLEAN_UP_HANGS = """
    try:
        wait()
    finally:
        threading.Event().wait()
"""
ANOTHER_SIGNAL = """
    signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        wait()
    finally:
        time.sleep(0.4)  # longer than the repetition of the first signal
        signal.raise_signal(signal.SIGUSR1)
        threading.Event().wait()
"""
EXIT_HANGS = """
    threading.Thread(target=threading.Event().wait).start()
    wait()
"""
C_CODE_DOES_NOT_RETURN = """
    print("ready", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)
"""
ANOTHER_EXCEPTION = """
    try:
        wait()
    except KeyboardInterrupt as error:
        raise RuntimeError("from a library") from error
"""
SWALLOWED = """
    try:
        wait()
    except KeyboardInterrupt:
        return 0
"""
LOST = """
    class Slow:
        def __del__(self):
            wait()
    Slow()
    threading.Event().wait()
"""


FORKS = """
    import os, warnings
    warnings.simplefilter("ignore")  # Python since 3.12 warns of forks beside threads
    for number in 9 * [signal.SIGTERM, signal.SIGINT]:
        child = os.fork()
        if not child:
            time.sleep(9)
            os._exit(0)
        os.kill(child, number)
        assert os.waitpid(child, 0)[1] == number
    print("ready", flush=True)
    time.sleep(0.5)
"""
EVENT_LOOP = """
    import asyncio, os, warnings
    warnings.simplefilter("ignore")
    async def main():
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, print, "signal")
        child = os.fork()
        if not child:
            time.sleep(9)
            os._exit(0)
        os.kill(child, signal.SIGTERM)
        assert os.waitpid(child, 0)[1] == signal.SIGTERM
        print("ready", flush=True)
        await asyncio.sleep(0.5)
    asyncio.run(main())
"""


@contextlib.contextmanager
def running(body: str, grace_s: float = interruption.GRACE_S) -> Iterator[subprocess.Popen[str]]:
    """Starts a command, with a body, in a process, and waits until it is ready."""
    grace = f"interruption.GRACE_S = {grace_s}\n"
    with started("-c", START + body + grace + END) as process:
        assert first_line(process) == "ready"
        yield process


@pytest.mark.parametrize(
    "body",
    [
        CLEAN_UP_HANGS,
        ANOTHER_SIGNAL,
        EXIT_HANGS,
        C_CODE_DOES_NOT_RETURN,
        LOST,
        ANOTHER_EXCEPTION,
        SWALLOWED,
    ],
)
def test_an_interrupted_process_ends(body: str) -> None:
    """Each process but the last two would wait for ever."""
    with running(body, 0.5) as process:
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 130
        assert stderr == "nq: interrupted\n"


@pytest.mark.parametrize("body", [FORKS, EVENT_LOOP])
def test_a_signal_to_a_forked_child_ends_the_child_alone(body: str) -> None:
    with running(f"{body}    return 0\n") as process:
        assert (*process.communicate(timeout=PATIENCE_S), process.returncode) == ("", "", 0)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_first_signal_lets_the_process_clean_up(number: signal.Signals, code: int) -> None:
    with running(CLEANS_UP) as process:
        process.send_signal(number)
        process.send_signal(number)  # as from a parent that sends on what the terminal sent to all
        stdout, stderr = process.communicate(timeout=PATIENCE_S)
        assert (stdout, stderr, process.returncode) == ("clean\n", "nq: interrupted\n", code)


def test_a_second_signal_ends_the_process_at_once() -> None:
    with running(CLEAN_UP_HANGS, 600.0) as process:
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            time.sleep(0.2)
        _, stderr = process.communicate()
        assert (process.returncode, stderr) == (130, "nq: interrupted\n")


def test_handlers_are_as_before_after_a_command_without_interruption(
    request: pytest.FixtureRequest,
) -> None:
    here = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, here))
    before = [signal.getsignal(number) for number in interruption.SIGNALS]
    with interruption.limited() as outer, interruption.limited() as inner:
        handlers = [signal.getsignal(number) for number in interruption.SIGNALS]
    assert handlers == [outer.on_signal] * len(before)
    assert (outer.number, inner.number) == (0, 0)
    assert [signal.getsignal(number) for number in interruption.SIGNALS] == before
    assert signal.set_wakeup_fd(-1) == -1
