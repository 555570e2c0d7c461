"""A limit on the size of files, which fails as a full disk does."""

import contextlib
import os
import resource
import sys
from collections.abc import Iterator
from unittest import mock


@contextlib.contextmanager
def small_files(max_bytes: int) -> Iterator[None]:
    """Lets this process, and new ones of it, write files of so many bytes at most.

    They write no bytecode: Python keeps the first bytes of what a limit cuts, and every later
    import of the module fails.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = sys.dont_write_bytecode
    resource.setrlimit(resource.RLIMIT_FSIZE, (max_bytes, hard))
    sys.dont_write_bytecode = True
    try:
        with mock.patch.dict(os.environ, PYTHONDONTWRITEBYTECODE="1"):
            yield
    finally:
        sys.dont_write_bytecode = before
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
