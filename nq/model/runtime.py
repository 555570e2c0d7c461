"""Imports TensorFlow late and without the lines that it prints."""

import contextlib
import gc
import importlib
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from nq.errors import Error, check_argument
from nq.extras import has_gpu, install
from nq.text import counted

ADDRESS_MB = 2900  # with less, libraries crash
INSTALL = install("cpu")


def import_tensorflow(threads: int | None = None) -> ModuleType:
    """Imports TensorFlow without the lines that it prints at start-up.

    Garbage collection leaves TensorFlow's many objects out: to examine them again and again takes a
    second of the import and another at the exit. ``threads`` is the number of intra-op threads of
    TensorFlow and OpenMP; by default that of the cores, or the one that was set before.
    """
    is_first = "tensorflow" not in sys.modules
    limit_mb = resource.getrlimit(resource.RLIMIT_AS)[0] >> 20
    if is_first and 0 <= limit_mb < ADDRESS_MB:
        raise Error(f"too little memory: raise ulimit -v from {limit_mb} MB to {ADDRESS_MB} MB")
    if is_first:  # torch imports triton late, which crashes if TensorFlow was there before it
        with contextlib.suppress(ImportError):
            importlib.import_module("triton")
    if threads is not None and is_first:
        os.environ.update(thread_environment(threads))
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    collects = is_first and gc.isenabled()
    if collects:
        gc.disable()
    try:
        with _no_stderr():
            import tensorflow
    except ModuleNotFoundError as error:
        if error.name != "tensorflow":
            raise
        raise Error(f"TensorFlow is not installed: {INSTALL}") from error
    except ImportError as error:
        raise Error(f"TensorFlow is broken ({error}): {INSTALL}") from error
    finally:
        if collects:
            gc.freeze()
            gc.enable()
    if not hasattr(tensorflow, "__version__"):  # an uninstallation can leave an empty folder
        raise Error(f"TensorFlow is not installed: {INSTALL}")
    tensorflow.get_logger().setLevel("WARNING")  # in a notebook it tells of each model it saves
    module: ModuleType = tensorflow
    if threads is None:
        return module
    config = tensorflow.config.threading
    with contextlib.suppress(RuntimeError):  # it has started
        config.set_intra_op_parallelism_threads(threads)
        config.set_inter_op_parallelism_threads(1)
    actual = config.get_intra_op_parallelism_threads()
    if actual != threads:
        raise Error(
            f"TensorFlow runs here with {actual or 'its own number of'} threads already and cannot "
            f"change to {threads}: start a new process, or give instances=1"
        )
    return module


def use_device(device: object) -> int:
    """Makes TensorFlow compute on one device, named as transformers names it.

    Args:
        device: ``"cpu"`` or -1, or a GPU: its number, ``"cuda"`` or ``"cuda:1"``.

    Returns:
        The number of the GPU, or -1.

    Raises:
        ValueError: it is no device.
        Error: there is no such GPU, or TensorFlow has started on other devices.
    """
    name = str(device).removeprefix("cuda:")
    numbers = {"cpu": -1, "-1": -1, "cuda": 0}
    is_device = name in numbers or (name.isascii() and name.isdecimal())
    check_argument(is_device, "device", device, "'cpu', 'cuda', 'cuda:1', -1 or 0")
    number = numbers[name] if name in numbers else int(name)
    tensorflow = import_tensorflow() if has_gpu() else None
    gpus = tensorflow.config.list_physical_devices("GPU") if tensorflow else []
    if number >= len(gpus):
        found = f"TensorFlow finds {counted(len(gpus), 'GPU')} here"
        raise Error(f"device is {device!r}, but {found}: leave it out, or give 'cpu'")
    if tensorflow:
        try:
            tensorflow.config.set_visible_devices(gpus[number:][:1] if number >= 0 else [], "GPU")
        except RuntimeError as error:
            raise Error(
                "TensorFlow computes on another device in this process already: start a new process"
            ) from error
    return number


@contextlib.contextmanager
def no_generated_files() -> Iterator[None]:
    """Removes the files that AutoGraph generates in the block, as where TensorFlow saves a model.

    TensorFlow removes their source when a process ends, if nothing kills it, and bytecode never.
    """
    modules = set(sys.modules)
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before
        for name in set(sys.modules) - modules:
            if name.startswith("__autograph_generated_file"):
                Path(str(sys.modules[name].__file__)).unlink(missing_ok=True)


def thread_environment(threads: int) -> dict[str, str]:
    """Returns the variables that libraries read when they start, for threads of one operation."""
    names = ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS")
    return {**dict.fromkeys(names, str(threads)), "TF_NUM_INTEROP_THREADS": "1"}


@contextlib.contextmanager
def _no_stderr() -> Iterator[None]:
    """Discards what the block writes to stderr, from C++ too."""
    sys.stderr.flush()
    stderr = os.dup(2)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    os.close(nothing)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(stderr, 2)
        os.close(stderr)
