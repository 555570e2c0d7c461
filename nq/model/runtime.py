"""Imports TensorFlow late and without the lines that it prints."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import tempfile
from collections.abc import Iterator
from types import ModuleType

from nq.errors import Error
from nq.extras import DISTRIBUTION, install

INSTALL = f"{install('cpu')} (or '{DISTRIBUTION}[gpu]' for an NVIDIA GPU)"


def import_tensorflow() -> ModuleType:
    """Imports TensorFlow without the lines that it prints at start-up.

    Raises:
        Error: TensorFlow is not installed, or broken; the message says what to run.
    """
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
    module: ModuleType = tensorflow
    return module


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

    After an exception other than an interrupt the output is written to stderr.
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
                while chunk := output.read(1 << 16):
                    os.write(2, chunk)
