"""A limit on the size of files, which fails as a full disk does."""

import contextlib
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def small_files(max_bytes: int) -> Iterator[None]:
    """Lets this process, and new ones of it, write files of so many bytes at most."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (max_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
