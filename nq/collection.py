"""A question about several documents: the blocks that are read are selected from all of them.

A first pass ranks all blocks. Only the best are read, together, as if they were one page, so that
their probabilities compare. Documents are read one at a time; with an index (``nq.index``) only
those that it does not know.

The score of a block is its BM25 score in the collection, with an index plus ``COSINE`` times its
cosine, and besides the score of the best block of its document. That is an interpolation of passage
and document (Callan 1994, Passage-Level Evidence in Document Retrieval), since a good document
names its subject once and not in each paragraph.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, groupby
from operator import itemgetter
from typing import TypeVar

import numpy as np

from nq.answers import Page, Selection
from nq.config import WindowConfig
from nq.errors import Error
from nq.index import BlockIndex, Document
from nq.inference.scorer import no_progress
from nq.postprocess.blocks import bm25
from nq.records import Candidate, Example, FloatArray, IntArray, Span

T = TypeVar("T")
Progress = Callable[[str, int, int], None]
COSINE = 400.0
"""Weight of the cosine beside BM25, chosen on even ids by ``experiments.collection``."""
BLOCKS = 47
"""Blocks of several documents that are read where ``max_contexts`` gives no other number."""


def select_page(
    question: str,
    sources: Sequence[T],
    read: Callable[[T], Page],
    windows: WindowConfig,
    skip_bad: bool = False,
    progress: Progress = no_progress,
    index: BlockIndex | None = None,
) -> Page:
    """Returns a page of the best blocks of several documents; of a single one the page itself.

    Args:
        question: what the blocks should answer.
        sources: the documents, of which ``read`` returns the page; that of the best ones twice.
        windows: whose ``max_contexts`` limits the blocks, to ``BLOCKS`` where it is 0.
        skip_bad: whether documents that cannot be read are left out, and named in the selection;
            otherwise, and if none can be read, they are an error.
        progress: is called with what is being done, the documents or blocks that are done since the
            last call, and their number.
        index: ranks by vectors too, and knows documents by their content.
    """
    if len(sources) == 1:
        return read(sources[0])
    documents = dict[int, Document]()
    skipped = list[str]()
    for number, source in enumerate(sources):
        try:
            if index is None:
                documents[number] = Document.of(read(source).example, None)
            else:
                documents[number] = index.document(source, partial(read, source))
        except (OSError, ValueError, Error) as error:
            if not skip_bad:
                raise
            reason = f"{source}: {error.strerror}" if isinstance(error, OSError) else str(error)
            skipped.append(" ".join(reason.split()))
        progress("reading documents", 1, len(sources))
    blocks = [(number, span) for number, one in documents.items() for span in one.blocks]
    if not blocks:
        first = f"; the first: {skipped[0]}" if skipped else ""
        raise Error(f"none of the {len(sources)} documents has a text that can be read{first}")
    words = (text.split(" ") for one in documents.values() for text in one.words)
    scores = bm25(question, words)
    if index is not None:
        known = list(documents.values())
        cosines = index.cosines(question, known, partial(progress, "encoding blocks"))
        if cosines is not None:
            scores = scores + COSINE * cosines
    limit = windows.max_blocks if windows.max_contexts else BLOCKS
    best = sorted(ranking(scores, np.array([number for number, _ in blocks]))[:limit])
    parts = list[tuple[Page, Span]]()
    for number, group in groupby((blocks[row] for row in best), key=itemgetter(0)):
        page = read(sources[number])
        page = replace(page, name=page.name or f"document {number + 1}")
        if len(page.example.tokens) != documents[number].size:
            raise Error(f"{page.name} has changed while it was read: ask again")
        parts += [(page, span) for _, span in group]
    return _joined(parts, len(blocks) - len(parts), tuple(skipped))


def ranking(scores: FloatArray, documents: IntArray) -> list[int]:
    """Returns the rows of all blocks, the best first."""
    of_document = np.zeros(documents.max() + 1)
    np.maximum.at(of_document, documents, scores)
    return np.argsort(-(scores + of_document[documents]), kind="stable").tolist()  # type: ignore[no-any-return]


def _joined(
    parts: Sequence[tuple[Page, Span]], unread_blocks: int, skipped: tuple[str, ...]
) -> Page:
    """Returns the page of blocks, each of which is given by its document and its span there."""
    lengths = [span.end - span.start for _, span in parts]
    starts = list(accumulate(lengths, initial=0))[:-1]

    def joined(column: Callable[[Page], Sequence[T]]) -> list[T]:
        return [item for page, s in parts for item in column(page)[s.start : s.end]]

    tokens = joined(lambda page: page.example.tokens)
    is_html = joined(lambda p: p.example.is_html)
    blocks = [Candidate(Span(a, a + n), True) for a, n in zip(starts, lengths, strict=True)]
    example = Example(0, "", tokens, is_html, blocks, is_wiki=False)
    sources = [(page, span.start) for page, span in parts]
    selection = Selection(starts, sources, unread_blocks, skipped)
    return Page(example, joined(lambda page: page.spelling), selection=selection)
