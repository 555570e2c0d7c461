"""The search for the cheapest sharding against all combinations."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.config import ModelConfig
from nq.planning.collectives import Link, all_reduce
from nq.planning.sharding import (
    FEATURES,
    PARTIAL,
    WHOLE,
    WINDOWS,
    Operation,
    Way,
    convert,
    layer_operations,
    search,
)

LAYOUTS = (WHOLE, WINDOWS, FEATURES, PARTIAL)
WAYS = st.builds(
    Way,
    st.sampled_from("abcdef"),
    st.sampled_from(LAYOUTS[:3]),
    st.sampled_from(LAYOUTS),
    st.integers(0, 9).map(float),
)
OPERATIONS = st.lists(
    st.builds(
        Operation,
        st.just("operation"),
        st.lists(WAYS, min_size=1, max_size=4).map(tuple),
        st.integers(0, 9).map(float),
    ),
    min_size=1,
    max_size=4,
)


def cheapest(operations: list[Operation], devices: int, link: Link, layout: str) -> float:
    """Returns the seconds of the best of all combinations of ways."""
    best = math.inf
    for ways in itertools.product(*(operation.ways for operation in operations)):
        seconds, at, size = 0.0, layout, 0.0
        for operation, way in zip(operations, ways, strict=True):
            step = convert(at, way.takes, size, devices, link)
            seconds += way.seconds + (step[1].seconds if step else math.inf)
            at, size = way.gives, operation.output_bytes
        step = convert(at, layout, size, devices, link)
        best = min(best, seconds + (step[1].seconds if step else math.inf))
    return best


@given(OPERATIONS, st.integers(2, 4), st.sampled_from(LAYOUTS[:3]))
def test_the_search_is_as_good_as_the_best_combination(
    operations: list[Operation], devices: int, layout: str
) -> None:
    link = Link(2.0, 0.5)
    expected = cheapest(operations, devices, link, layout)
    assert search(operations, devices, link, layout).seconds == pytest.approx(expected)


@pytest.mark.parametrize("devices", [2, 4, 8, 16])
@pytest.mark.parametrize("whole_weights", [False, True])
def test_a_layer_is_split_by_columns_then_rows(devices: int, whole_weights: bool) -> None:
    config, link = ModelConfig(hidden_size=1024, num_attention_heads=16), Link(1.5e11, 1e-6)
    operations = layer_operations(
        config, 512, 1, devices, 3e13, value_bytes=2, whole_weights=whole_weights
    )
    size = 512 * 1024 * 2
    best = search(operations, devices, link, input_bytes=size)
    assert best.ways == (
        *("columns", "heads", "rows", "norm"),
        *("columns", "rows", "norm"),
    )
    assert best.collectives == (
        ("all_reduce", "attention_norm"),
        ("all_reduce", "output_norm"),
    )
    once = all_reduce(size, devices, link)
    assert best.transfer == once + once


def test_a_layer_that_fits_is_split_by_windows() -> None:
    operations = layer_operations(
        ModelConfig(), 128, 8, 4, 1e12, value_bytes=4, layout=WINDOWS, whole_weights=True
    )
    best = search(operations, 4, Link(1e9, 1e-5), layout=WINDOWS)
    assert set(best.ways) == {"data", "norm"}
    assert best.collectives == ()


def test_a_slow_link_is_left_alone() -> None:
    operations = layer_operations(ModelConfig(), 32, 1, 2, 1e13, 4, whole_weights=True)
    best = search(operations, 2, Link(1e6, 1e-3))
    assert set(best.ways) == {"replicate", "norm"}
    assert best.transfer.moved_bytes == 0


def test_nothing_leads_to_summands() -> None:
    assert convert(WHOLE, PARTIAL, 1.0, 2, Link(1.0)) is None
