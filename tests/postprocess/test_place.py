"""Where blocks stand, counted one by one."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nq.postprocess.place import place
from nq.records import Candidate, Example, Span

TAGS = {"<P>": "P", "<Table>": "T", "<Ul>": "L", "<Ol>": "L", "<Dl>": "L", "<Div>": "O"}
blocks = st.tuples(st.sampled_from([*TAGS]), st.integers(0, 2), st.booleans())


def page(found: list[tuple[str, int, bool]]) -> Example:
    """A page of blocks, each a tag, so many words, and whether it is nested."""
    tokens: list[str] = []
    candidates = []
    for tag, n_words, nested in found:
        start = len(tokens)
        tokens += [tag, *["word"] * n_words, tag.replace("<", "</")]
        candidates.append(Candidate(Span(start, len(tokens)), not nested))
    return Example(1, "who", tokens, [t.startswith("<") for t in tokens], candidates)


@given(st.lists(blocks, max_size=12))
def test_counts_the_blocks_of_its_type_above_it(found: list[tuple[str, int, bool]]) -> None:
    example = page(found)
    counted = [i for i, (_, n_words, nested) in enumerate(found) if n_words and not nested]
    types = [TAGS[found[i][0]] for i in counted]
    wanted = [math.log(types[: k + 1].count(kind)) for k, kind in enumerate(types)]
    if len(set(types)) < 2:
        wanted = [0.0] * len(types)
    np.testing.assert_allclose(place(example, counted), wanted)
    np.testing.assert_allclose(place(example, counted[::-1]), wanted[::-1])


def test_a_collection_of_paragraphs_has_no_places() -> None:
    paragraphs = [("<P>", 2, False)] * 3
    assert place(page(paragraphs), [0, 1, 2]).tolist() == [0, 0, 0]
    whole = page([*paragraphs, ("<Table>", 1, False)])
    np.testing.assert_allclose(place(whole, [0, 1, 2, 3]), np.log([1, 2, 3, 1]))
