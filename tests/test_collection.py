"""Tests of questions about several documents: which blocks are read, and where they come from."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nq
from nq.answers import Page
from nq.collection import select_page
from nq.config import WindowConfig
from nq.postprocess.blocks import bm25
from nq.records import Span

paragraphs = st.lists(st.sampled_from(["lake", "old", "deep", "tower"]), min_size=1, max_size=6)
documents = st.lists(st.lists(paragraphs, min_size=1, max_size=5), min_size=2, max_size=5)


def page(document: list[list[str]]) -> Page:
    return nq.page_from_text("\n\n".join(map(" ".join, document)))


def unchanged(page: Page) -> Page:
    return page


@given(documents, st.integers(1, 6))
def test_the_best_blocks_are_read_in_their_order(collection: list[list[list[str]]], n: int) -> None:
    question = "how deep is the lake"
    pages = [page(document) for document in collection]
    best = select_page(question, pages, unchanged, WindowConfig(max_contexts=n + 1))
    words = [(i, block) for i, document in enumerate(collection) for block in document]
    scores = bm25(question, [block for _, block in words]).tolist()
    highest = [max(s for s, (j, _) in zip(scores, words, strict=True) if i == j) for i, _ in words]
    rows = sorted(range(len(words)), key=lambda row: (-scores[row] - highest[row], row))[:n]
    expected = [words[row] for row in sorted(rows)]
    spans = [candidate.span for candidate in best.example.candidates]
    assert [best.text(span) for span in spans] == [" ".join(block) for _, block in expected]
    assert best.selection and best.selection.unread_blocks == len(words) - len(expected)
    for span, (number, block) in zip(spans, expected, strict=True):
        last = Span(span.end - 2, span.end - 1)  # the word before the closing tag
        source, long, (short,) = best.origin(span, [last])
        assert source == pages[number] and source.name == f"document {number + 1}"
        original = source.example.original
        assert original and original.plain and long
        assert original.text(long) == source.text(long) == " ".join(block)
        assert original.text(short) == block[-1]


def test_documents_that_cannot_be_read_are_an_error_or_named(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.txt", "b.txt", "missing.txt")]
    paths[0].write_text("the lake is deep")
    paths[1].write_bytes(b"a\0b")
    progress = list[tuple[str, int, int]]()

    def count(work: str, new: int, total: int) -> None:
        progress.append((work, new, total))

    def read(skip_bad: bool, first: int = 0) -> Page:
        return select_page("lake", paths[first:], nq.read_page, WindowConfig(), skip_bad, count)

    with pytest.raises(ValueError, match=str(paths[1])):
        read(skip_bad=False)
    progress.clear()
    selection = read(skip_bad=True).selection
    assert progress == [("reading documents", 1, 3)] * 3
    assert selection
    for path, reason in zip(paths[1:], selection.skipped, strict=True):
        assert reason.startswith(str(path))
    with pytest.raises(nq.Error, match=r"\b2 documents"):
        read(skip_bad=True, first=1)


def test_a_document_that_changes_between_the_passes_is_an_error() -> None:
    reads = iter(["lake", "tower", "lake deep"])
    read: Callable[[int], Page] = lambda _: nq.page_from_text(next(reads))  # noqa: E731
    with pytest.raises(nq.Error, match="document 1"):
        select_page("lake", [1, 2], read, WindowConfig())
