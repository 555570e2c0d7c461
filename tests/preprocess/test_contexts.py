"""Which blocks of a page are read, and how they become one word sequence."""

from dataclasses import replace

import pytest
from hypothesis import given

from nq.config import WindowConfig
from nq.formats.documents import page_from_text
from nq.preprocess.contexts import NULL_CONTEXT, contexts, unread_blocks
from nq.records import Candidate, Context, Example
from tests.preprocess.synthetic_examples import few, page, pages

OURS = WindowConfig()


def markers(example: Example, config: WindowConfig = OURS) -> list[str]:
    return [" ".join(context.markers) for context in contexts(example, config)]


def test_a_page_in_small() -> None:
    example = page("Ice <P> </P> <P> ice is cold </P> <Table> <Tr> 0 C </Tr> </Table> <Li> x </Li>")
    assert contexts(example, OURS) == [
        Context(-1, "[NoLongAnswer]", (), ()),
        Context(1, "[Paragraph=1]", ["ice", "is", "cold"], [4, 5, 6]),
        Context(2, "[Table=1]", ["0", "C"], [10, 11]),
        Context(4, "[Other=1]", ["x"], [15]),
    ]


def test_counters_of_blocks_stop_at_50() -> None:
    many = markers(page(" ".join(["<P> x </P>"] * 60)))
    assert many[49:53] == [
        "[ContextId=48] [Paragraph=49]",
        "[ContextId=49] [Paragraph=50]",
        "[ContextId=50] [Paragraph=50]",
        "[ContextId=51] [Paragraph=50]",
    ]


@pytest.mark.parametrize(
    ("config", "n_read"),
    [
        (OURS, 60),
        (WindowConfig(compat="squad"), 60),
        (WindowConfig(compat="bert-joint"), 47),
        (WindowConfig(compat="kisialiou", max_contexts=100), 60),
        (replace(OURS, max_contexts=48), 47),
        (replace(OURS, max_contexts=5), 4),
    ],
)
def test_all_blocks_are_read_unless_a_limit_or_the_originals_say_otherwise(
    config: WindowConfig, n_read: int
) -> None:
    document = page_from_text("\n\n".join(["x"] * 60)).example
    of_nq = page(" ".join(["<P> x </P>"] * 60))
    for example in (document, of_nq):
        assert len(contexts(example, config)) == n_read + 1
        assert unread_blocks(example, config) == 60 - n_read


@few
@given(pages())
def test_contexts_against_their_definition(example: Example) -> None:
    def text(candidate: Candidate) -> list[tuple[int, str]]:
        span = range(candidate.span.start, candidate.span.end)
        return [(i, example.tokens[i]) for i in span if not example.is_html[i]]

    kept = [
        (i, text(candidate))
        for i, candidate in enumerate(example.candidates)
        if candidate.top_level and " ".join(word for _, word in text(candidate)).strip()
    ]
    found = contexts(example, replace(OURS, max_contexts=5))
    assert found[0] == NULL_CONTEXT
    assert [(c.candidate, list(zip(c.doc, c.words, strict=True))) for c in found[1:]] == kept[:4]
    assert unread_blocks(example, replace(OURS, max_contexts=5)) == len(kept[4:])
