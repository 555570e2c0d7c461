"""A question about several documents: the blocks that are read are selected from all of them.

A first pass ranks all blocks. Only the best are read, together, as if they were one page, so that
their probabilities compare. No index is kept: each question reads the documents again, one at a
time, and between the passes only the counts of the question's words remain.

The score of a block is its BM25 score in the collection plus that of the best block of its
document, an interpolation of passage and document (Callan 1994, Passage-Level Evidence in Document
Retrieval), since a good document names its subject once and not in each paragraph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, groupby
from typing import TypeVar

import numpy as np

from nq.config import ALL_CONTEXTS, WindowConfig
from nq.errors import Error
from nq.postprocess.blocks import BM25, block_of_token, lower_words
from nq.records import Candidate, Example, FloatArray, IntArray, Page, Selection, Span

T = TypeVar("T")


def select(
    question: str,
    sources: Sequence[T],
    read: Callable[[T], Page],
    windows: WindowConfig,
    skip_bad: bool = False,
    progress: Callable[[int, int], None] = lambda new, total: None,
) -> Page:
    """Returns a page of the best blocks of several documents; of a single one the page itself.

    Args:
        question: what the blocks should answer.
        sources: the documents.
        read: returns the page of a source; it is called again for the best ones.
        windows: whose ``max_contexts`` limits the blocks, to 47 where it is ``ALL_CONTEXTS``.
        skip_bad: whether documents that cannot be read are left out, and named in the selection.
        progress: is called with 1 and their number after each document.

    Raises:
        Error: none can be read, or one has changed between the passes.
        OSError, ValueError: one cannot be read, without ``skip_bad``.
    """
    if len(sources) == 1:
        return read(sources[0])
    bm25, blocks = BM25(question), list[tuple[int, int]]()
    sizes, skipped = dict[int, int](), list[str]()
    for number, source in enumerate(sources):
        try:
            example = read(source).example
            sizes[number] = len(example.tokens)
            for candidate in _candidates(example):
                bm25.add(lower_words(example, example.candidates[candidate].span))
                blocks.append((number, candidate))
        except (OSError, ValueError, Error) as error:
            if not skip_bad:
                raise
            name = getattr(error, "filename", None)
            text = (
                f"{name}: {error.strerror}" if isinstance(error, OSError) and name else f"{error}"
            )
            skipped.append(" ".join(text.split()))
        progress(1, len(sources))
    if not blocks:
        first = f"; the first: {skipped[0]}" if skipped else ""
        raise Error(f"none of the {len(sources)} documents has a text that can be read{first}")
    best = _best(bm25.scores(), np.array([number for number, _ in blocks]), _limit(windows))
    parts = list[tuple[Page, Span]]()
    for number, group in groupby((blocks[row] for row in best), key=lambda block: block[0]):
        page = read(sources[number])
        page = replace(page, name=page.name or f"document {number + 1}")
        if len(page.example.tokens) != sizes[number]:
            raise Error(f"{page.name} has changed while it was read: ask again")
        parts += [(page, page.example.candidates[candidate].span) for _, candidate in group]
    return _joined(parts, len(blocks) - len(parts), tuple(skipped))


def _limit(windows: WindowConfig) -> int:
    whole = windows.max_contexts == ALL_CONTEXTS
    return WindowConfig().max_blocks if whole else windows.max_blocks


def _candidates(example: Example) -> list[int]:
    """Returns the indices of the blocks with words, as the decision has them."""
    of_token = block_of_token(example)
    with_words = of_token[(of_token >= 0) & ~np.array(example.is_html, np.bool_)]
    return [int(candidate) for candidate in np.unique(with_words)]


def _best(scores: FloatArray, documents: IntArray, limit: int) -> list[int]:
    """Returns the rows of the best blocks, in ascending order."""
    _, document = np.unique(documents, return_inverse=True)
    of_document = np.zeros(document.max() + 1)
    np.maximum.at(of_document, document, scores)
    order = np.argsort(-(scores + of_document[document]), kind="stable")
    return sorted(order[:limit].tolist())


def _joined(
    parts: Sequence[tuple[Page, Span]], unread_blocks: int, skipped: tuple[str, ...]
) -> Page:
    """Returns the page of blocks, each of which is given by its document and its span there."""
    lengths = [span.end - span.start for _, span in parts]
    starts = list(accumulate(lengths, initial=0))[:-1]

    def joined(column: Callable[[Page], Sequence[T]]) -> list[T]:
        return [item for page, s in parts for item in column(page)[s.start : s.end]]

    example = Example(
        0,
        "",
        joined(lambda page: page.example.tokens),
        joined(lambda page: page.example.is_html),
        [Candidate(Span(a, a + n), True) for a, n in zip(starts, lengths, strict=True)],
        is_excerpt=True,
    )
    sources = [(page, span.start) for page, span in parts]
    selection = Selection(starts, sources, unread_blocks, skipped)
    return Page(example, joined(lambda page: page.spelling), selection=selection)
