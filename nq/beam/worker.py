"""A worker process of Beam that ends when the process that started it ends, however that ends.

Beam's own worker waits a minute for a runner that is gone, and keeps its memory and files.
"""

import contextlib
import fcntl
import io
import os
import runpy
import signal
import sys
import threading


def end_with_lock(path: str) -> None:
    """Kills this process as soon as the process that locked a file releases the lock or ends."""
    try:
        with open(path, encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
    finally:
        os.kill(os.getpid(), signal.SIGKILL)


class Output(io.TextIOBase):
    """A stream to standard error that ignores write errors, at which Beam would wait for ever."""

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            os.write(2, text.encode(errors="replace"))
        return len(text)


if __name__ == "__main__":
    sys.stdout = sys.stderr = Output()
    threading.Thread(target=end_with_lock, args=(sys.argv.pop(1),), daemon=True).start()
    runpy.run_module(
        "apache_beam.runners.worker.sdk_worker_main", run_name="__main__", alter_sys=True
    )
