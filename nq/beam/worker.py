"""A worker process of Beam that ends when the process that started it ends, however that ends.

Beam's own worker waits a minute for a runner that is gone, and keeps its memory and files.
"""

import contextlib
import io
import os
import runpy
import sys

from nq.worker import end_with


class Output(io.TextIOBase):
    """A stream to standard error that ignores write errors, at which Beam would wait for ever."""

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            os.write(2, text.encode(errors="replace"))
        return len(text)


if __name__ == "__main__":
    sys.stdout = sys.stderr = Output()
    end_with(sys.argv.pop(1))
    runpy.run_module(
        "apache_beam.runners.worker.sdk_worker_main", run_name="__main__", alter_sys=True
    )
