"""Imports TensorFlow late and without the lines that it prints."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from nq.errors import Error
from nq.extras import DISTRIBUTION, install

NOT_A_REASON = re.compile(rb"I\d{4} |WARNING: All log messages before absl::InitializeLog\(\)")
"""The beginnings of lines that TensorFlow prints at every start."""
INSTALL = f"{install('cpu')} (or '{DISTRIBUTION}[gpu]' for an NVIDIA GPU)"


def import_tensorflow(threads: int | None = None) -> ModuleType:
    """Imports TensorFlow without the lines that it prints at start-up.

    Args:
        threads: that compute one operation, in TensorFlow and OpenMP; by default as many as there
            are cores, or as were set before.

    Raises:
        Error: TensorFlow is not installed, or broken; the message says what to run. Or it runs
            already with another number of threads.
    """
    if threads is not None and "tensorflow" not in sys.modules:
        os.environ.update(thread_environment(threads))
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    try:
        with suppressed_stderr(), _excluded_from_garbage_collection():
            import tensorflow
    except ModuleNotFoundError as error:
        if error.name != "tensorflow":
            raise
        raise Error(f"TensorFlow is not installed: {INSTALL}") from error
    except ImportError as error:
        raise Error(f"TensorFlow is broken ({error}): {INSTALL}") from error
    if not hasattr(tensorflow, "__version__"):  # an uninstallation can leave an empty folder
        raise Error(f"TensorFlow is not installed: {INSTALL}")
    if threads is not None:
        _set_threads(tensorflow, threads)
    module: ModuleType = tensorflow
    return module


def thread_environment(threads: int) -> dict[str, str]:
    """Returns the environment variables that libraries read for their threads when they start.

    Args:
        threads: that compute one operation; operations do not run beside each other.
    """
    return {
        "TF_NUM_INTRAOP_THREADS": str(threads),
        "TF_NUM_INTEROP_THREADS": "1",
        "OMP_NUM_THREADS": str(threads),
    }


def _set_threads(tensorflow: Any, threads: int) -> None:
    """Sets TensorFlow's threads and reads them back.

    Raises:
        Error: it has computed with another number already.
    """
    config = tensorflow.config.threading
    with contextlib.suppress(RuntimeError):  # it has started
        config.set_intra_op_parallelism_threads(threads)
        config.set_inter_op_parallelism_threads(1)
    actual = config.get_intra_op_parallelism_threads()
    if actual != threads:
        raise Error(
            f"TensorFlow runs in this process with {actual or 'its own number of'} threads already "
            f"and cannot change to {threads}: start a new process, or give instances=1"
        )


@contextlib.contextmanager
def _excluded_from_garbage_collection() -> Iterator[None]:
    """Excludes all objects that exist at the end of the block from garbage collection.

    TensorFlow's many objects exist until the process ends. To examine them again and again takes a
    second of the import and another one at the exit.
    """
    if "tensorflow" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@contextlib.contextmanager
def suppressed_stderr() -> Iterator[None]:
    """Discards what the block writes to stderr, from C++ too, unless it fails.

    After an exception other than an interrupt the output is written to stderr, without the lines in
    which TensorFlow describes its start.
    """
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as output:
        os.dup2(output.fileno(), 2)
        failed = False
        try:
            yield
        except KeyboardInterrupt:
            raise
        except BaseException:
            failed = True
            raise
        finally:
            sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)
            if failed:
                output.seek(0)
                for line in output:
                    if not NOT_A_REASON.match(line):
                        os.write(2, line)
