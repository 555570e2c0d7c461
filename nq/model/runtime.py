"""TensorFlow, imported late and quietly."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import tempfile
from collections.abc import Iterator
from types import ModuleType
from typing import IO

from nq.errors import Error

INSTALL_TENSORFLOW = "pip install 'nq[cpu]', or 'nq[gpu]' for an NVIDIA GPU"


def import_tensorflow() -> ModuleType:
    """Imports TensorFlow without the lines it prints while it starts.

    Its many objects live until the end: the garbage collector is kept from walking through them
    again and again, which takes a second of the import and another one at the exit.

    Raises:
        Error: it is not installed or broken; says what to run.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    try:
        with held_stderr(), _never_collected():
            import tensorflow
    except ModuleNotFoundError as error:
        if error.name != "tensorflow":
            raise
        raise Error(f"TensorFlow is not installed: {INSTALL_TENSORFLOW}") from error
    except ImportError as error:
        raise Error(f"TensorFlow is broken ({error}): {INSTALL_TENSORFLOW}") from error
    if not hasattr(tensorflow, "__version__"):  # an empty folder that uninstalling left
        raise Error(f"TensorFlow is not installed: {INSTALL_TENSORFLOW}")
    module: ModuleType = tensorflow
    return module


@contextlib.contextmanager
def _never_collected() -> Iterator[None]:
    """What is made inside, and all that was there, is out of the garbage collector's sight."""
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
def held_stderr() -> Iterator[None]:
    """Holds back what anyone, C++ included, writes to stderr; shows it if the body fails.

    An interrupt is no failure.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        except KeyboardInterrupt:
            _give_back(kept)
            raise
        except BaseException:
            _give_back(kept)
            _replay(held)
            raise
        else:
            _give_back(kept)


def _give_back(kept: int) -> None:
    sys.stderr.flush()
    os.dup2(kept, 2)
    os.close(kept)


def _replay(held: IO[bytes]) -> None:
    held.seek(0)
    while chunk := held.read(1 << 16):
        os.write(2, chunk)
