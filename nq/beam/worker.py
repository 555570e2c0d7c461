"""A worker process of Beam that ends when the process that started it ends, however that ends.

Beam's own worker waits a minute for a runner that is gone, and keeps its memory and files.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
import time

BEAM_WORKER = "apache_beam.runners.worker.sdk_worker_main"
POLL_S = 0.5


def end_with(parent: int) -> None:
    """Kills this process as soon as the process ``parent`` is not its parent any more."""
    while os.getppid() == parent:
        time.sleep(POLL_S)
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Runs Beam's worker; the first argument is the id of the parent process."""
    parent = int(sys.argv.pop(1))
    threading.Thread(target=end_with, args=(parent,), daemon=True).start()
    runpy.run_module(BEAM_WORKER, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
