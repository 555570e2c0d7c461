"""Where blocks stand, counted one by one."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nq.postprocess.position_prior import WHOLE, place

TYPES = ("Paragraph", "Table", "List", "Other")
pages = st.lists(st.sampled_from(TYPES), min_size=WHOLE, max_size=WHOLE + 20)


@given(pages)
def test_counts_the_blocks_of_its_type_above_it(types: list[str]) -> None:
    wanted = [
        [kind == "Table", kind == "List", math.log(types[: i + 1].count(kind))]
        for i, kind in enumerate(types)
    ]
    if len(set(types)) == 1:
        wanted = [[0.0] * 3] * len(types)
    np.testing.assert_allclose(place(types), wanted)


def test_excerpts_and_collections_have_no_places() -> None:
    paragraphs = ["Paragraph"] * (WHOLE - 2)
    assert not place([*paragraphs, "Table"]).any()
    assert not place([*paragraphs, "Paragraph", "Paragraph", "Paragraph"]).any()
    found = place([*paragraphs, "Table", "List"])
    assert found[:, 0].tolist() == [0] * len(paragraphs) + [1, 0]
    np.testing.assert_allclose(found[:3, 2], np.log([1, 2, 3]))
    assert place([]).shape == (0, 3)
