"""Passages: their text, their marks, and which blocks of a page are shown."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from nq.formats.documents import page_from_record
from nq.records import Candidate, Example, Span
from nq.report.passages import Segment, ShownBlocks, marked
from tests.report.example_cases import FIRST, PAGE, SECOND, THIRD

TOKENS = st.sampled_from(["<P>", "</P>", "<Td>", "</Td>", "<B>", *"abc", "(", ")", ",", "'s", "-"])
SPANS = st.tuples(st.integers(0, 30), st.integers(1, 30)).map(lambda x: Span(x[0], x[0] + x[1]))


def example(tokens: list[str]) -> Example:
    html = [token[0] == "<" for token in tokens]
    return replace(PAGE, tokens=tokens, is_html=html, candidates=[Candidate(Span(0, 1), True)])


def plain(segments: list[Segment]) -> str:
    return "".join(x if isinstance(x, str) else x[0] for x in segments)


@given(st.lists(TOKENS, min_size=1, max_size=30))
def test_the_text_is_that_of_the_page(tokens: list[str]) -> None:
    page = example([*tokens, "end"])
    span = Span(0, len(page.tokens))
    lines = page_from_record(page).text(span).split("\n")
    spelled = plain(marked(page, span, {})).split("\n")
    assert [line.replace(" ", "") for line in spelled] == [line.replace(" ", "") for line in lines]


@given(st.lists(TOKENS, min_size=31, max_size=40), st.lists(SPANS, max_size=4))
def test_marks_divide_the_text_and_nothing_else(tokens: list[str], spans: list[Span]) -> None:
    page, block = example(tokens), Span(0, len(tokens))
    segments = marked(page, block, {"p": spans[:2], "g": spans[2:]})
    assert plain(segments) == plain(marked(page, block, {}))
    words = "".join(
        tokens[i]
        for i in range(len(tokens))
        if not page.is_html[i] and any(s.start <= i < s.end for s in spans if block.contains(s))
    )
    both = "".join(x[0] for x in segments if not isinstance(x, str))
    assert [c for c in both if c not in " |\n\u2013"] == [c for c in words if c not in "\u2013"]


def shown(
    blocks: ShownBlocks, longs: list[Span], shorts: list[Span], chars: int
) -> list[int | None]:
    return [p["n"] for p in blocks.passages({"P": longs}, {"p": shorts}, chars)]


def test_blocks_with_answers_come_first_and_near_ones_next() -> None:
    blocks = ShownBlocks(PAGE)
    assert blocks.spans == [FIRST, SECOND, THIRD]
    assert shown(blocks, [SECOND], [], 0) == [2]
    assert shown(blocks, [], [Span(17, 18)], 0) == [3]
    assert shown(blocks, [THIRD], [], 40) == [2, 3]
    assert shown(blocks, [THIRD], [], 1000) == [1, 2, 3]
    assert shown(blocks, [], [], 1000) == [1, 2, 3]
    assert shown(blocks, [], [], 0) == []
