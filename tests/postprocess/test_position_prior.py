"""Tests of the position features against counting one block after the other."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nq.postprocess.position_prior import MIN_BLOCKS, position_features

TYPES = ("Paragraph", "Table", "List", "Other")
pages = st.lists(st.sampled_from(TYPES), min_size=MIN_BLOCKS, max_size=MIN_BLOCKS + 20)


@given(pages)
def test_features_count_the_blocks_of_the_same_type_so_far(types: list[str]) -> None:
    expected = [
        [kind == "Table", kind == "List", math.log(types[: i + 1].count(kind))]
        for i, kind in enumerate(types)
    ]
    if len(set(types)) == 1:
        expected = [[0.0] * 3] * len(types)
    np.testing.assert_allclose(position_features(types), expected)


def test_excerpts_and_collections_of_one_type_have_no_features() -> None:
    paragraphs = ["Paragraph"] * (MIN_BLOCKS - 2)
    assert not position_features([*paragraphs, "Table"]).any()
    assert not position_features([*paragraphs, "Paragraph", "Paragraph", "Paragraph"]).any()
    features = position_features([*paragraphs, "Table", "List"])
    assert features[:, 0].tolist() == [0] * len(paragraphs) + [1, 0]
    np.testing.assert_allclose(features[:3, 2], np.log([1, 2, 3]))
    assert position_features([]).shape == (0, 3)
    assert position_features(["Paragraph", "Table"], min_blocks=2)[:, 0].tolist() == [0, 1]
    assert not position_features(["Paragraph", "Table"], min_blocks=3).any()
