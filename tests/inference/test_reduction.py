"""Tests of what leaves the device: the top k positions against a stable sort, and all logits."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from nq.inference.batches import Shape
from nq.inference.engine import Computation, Network
from nq.inference.predictor import Predictor
from nq.inference.profile import Profile
from nq.inference.reduction import LOGITS, AllLogits, top_positions
from nq.records import MODEL_INPUTS
from tests.inference.tiny_predictors import item_rows, items
from tests.support import tiny_models

K = 5


@st.composite
def tables(draw: st.DrawFn) -> tuple[Any, Any, Any]:
    """Logits with many ties, which positions are allowed, and their document tokens."""
    seed = draw(st.integers(0, 2**32 - 1))
    values = np.random.default_rng(seed)
    logits = values.integers(-3, 3, (3, 12)).astype(np.float32) * draw(st.sampled_from([1, 0.1]))
    allowed = values.random((3, 12)) < draw(st.floats(0, 1))
    return logits + 0, allowed, values.integers(0, 99, (3, 12)).astype(np.int32)


SIGNATURE = [tf.TensorSpec((3, 12), kind) for kind in (tf.float32, tf.bool, tf.int32)]
COMPUTED: dict[str, Callable[..., Any]] = {"numpy": partial(top_positions, k=K)}
COMPUTED |= {
    name: tf.function(
        lambda logits, allowed, doc: top_positions(logits, allowed, doc, K),
        input_signature=SIGNATURE,
        jit_compile=jit,
    )
    for name, jit in (("graph", False), ("xla", True))
}


@pytest.mark.parametrize("how", COMPUTED)
@given(tables())
def test_top_positions_are_those_of_a_stable_sort(how: str, table: tuple[Any, Any, Any]) -> None:
    logits, allowed, token_map = table
    doc, pos, value = (np.asarray(column) for column in COMPUTED[how](*table))
    for row in range(3):
        order = np.argsort(-logits[row], kind="stable")
        top = order[allowed[row][order]][:K]
        n = len(top)
        assert pos[row, :n].tolist() == top.tolist()
        np.testing.assert_array_equal(value[row, :n], logits[row, top])
        assert doc[row].tolist() == token_map[row, top].tolist() + [-1] * (K - n)
        assert np.isfinite(value[row]).all()


LENGTH = 256
SHAPE = dataclasses.replace(tiny_models.SHAPE, max_position_embeddings=LENGTH)


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["grappler+buckets", "xla+frozen", "buckets+onnx"])
def test_all_logits_are_those_of_the_model(profile: str) -> None:
    sources = [source for source, _ in items(1, 1, 1)]
    features = [tiny_models.features(n, 6, LENGTH, pieces=p) for n, p in enumerate((256, 200, 30))]
    rows = item_rows(list(zip(sources, features, strict=True)))
    network = Network(SHAPE, tiny_models.model(shape=SHAPE))
    computation = Computation(network, Profile(profile), AllLogits(LENGTH))
    columns = Predictor(computation, Shape(4, LENGTH)).scores(rows)
    assert tuple(columns) == LOGITS
    expected = network.model({name: rows[name] for name in MODEL_INPUTS})
    pieces = rows["input_mask"] > 0
    for name in LOGITS:
        kept = slice(None) if name == "type_logits" else pieces
        np.testing.assert_allclose(columns[name][kept], np.asarray(expected[name])[kept], atol=1e-5)
