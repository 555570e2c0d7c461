"""A limit of the memory that Python allocates in a test."""

import contextlib
import tracemalloc
from collections.abc import Iterator


@contextlib.contextmanager
def limited_memory(n_bytes: int) -> Iterator[None]:
    """Fails if Python has allocated more memory at once inside the block."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= n_bytes, f"{peak} bytes, the limit is {n_bytes}"
