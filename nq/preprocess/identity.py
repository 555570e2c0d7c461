"""The identity of an example: a digest that ties it to its windows and their scores.

The windows of a page and the page itself are read at different times. Their file and line agree
even if the file was replaced in between; their digests do not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from nq.records import Example, ExampleKey

DIGEST_BYTES = 8


def example_digest(example: Example) -> int:
    """Returns 64 bits of a digest of everything that windows and predictions depend on.

    >>> page = Example(1, "who", ["<P>", "Ada"], [True, False], ())
    >>> example_digest(page) == example_digest(Example(2, "who", page.tokens, page.is_html, ()))
    False
    """
    spans = [(c.span.start, c.span.end, c.top_level) for c in example.candidates]
    small = (example.example_id, example.question, len(example.tokens), spans)
    total = hashlib.blake2b(repr(small).encode(), digest_size=DIGEST_BYTES)
    total.update(bytes(example.is_html))
    if example.token_bytes is not None:
        total.update(example.token_bytes.astype(np.int64).tobytes())
    if example.original is not None:
        total.update(example.original.chars.astype(np.int64).tobytes())
        text = example.original.plain or "".join(example.original.spelling)
        total.update(text.encode("utf-8", "surrogatepass"))
    total.update("\0".join(example.tokens).encode("utf-8", "surrogatepass"))
    return int.from_bytes(total.digest(), "little", signed=True)


def write_digests(path: Path, digests: Sequence[tuple[ExampleKey, int]]) -> None:
    """Writes the digests of examples as rows ``[N, 3]`` of file number, line and digest."""
    rows = [(file, line, digest) for (file, line), digest in digests]
    np.save(path, np.array(rows, np.int64).reshape(-1, 3), allow_pickle=False)


def read_digests(path: Path) -> Mapping[ExampleKey, int]:
    """Returns the digests in a file of ``write_digests``."""
    return {(file, line): digest for file, line, digest in np.load(path).tolist()}
