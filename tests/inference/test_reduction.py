"""Tests of the reductions: all logits, under profiles that batch and compute in different ways."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from nq.inference.batches import Shape
from nq.inference.engine import Computation
from nq.inference.network import Network
from nq.inference.predictor import Predictor
from nq.inference.profile import Profile
from nq.inference.reduction import LOGITS, AllLogits
from nq.model.joint import INPUTS
from tests import tiny_models
from tests.inference.tiny_predictors import item_rows, items

LENGTH = 256
SHAPE = dataclasses.replace(tiny_models.SHAPE, max_position_embeddings=LENGTH)
ROWS = item_rows(
    [
        (source, tiny_models.features(i, 6, LENGTH, pieces=pieces))
        for i, ((source, _), pieces) in enumerate(
            zip(items(1, 1, 1), (LENGTH, 200, 30), strict=True)
        )
    ]
)


@pytest.mark.parametrize(
    "profile",
    [
        "baseline",
        "grappler+buckets",
        "xla+frozen",
        pytest.param("buckets+onnx", marks=pytest.mark.slow),
    ],
)
def test_all_logits_are_those_of_the_model(profile: str) -> None:
    network = Network(SHAPE, tiny_models.model(shape=SHAPE))
    computation = Computation(network, Profile.parse(profile), AllLogits(LENGTH))
    columns = Predictor(computation, Shape(4, LENGTH)).scores(ROWS)
    assert tuple(columns) == LOGITS
    expected = network.model({name: ROWS[name] for name in INPUTS})
    pieces = ROWS["input_mask"] > 0
    for name in LOGITS:
        actual, wanted = columns[name], np.asarray(expected[name])
        assert actual.shape == wanted.shape
        kept = slice(None) if name == "type_logits" else pieces
        np.testing.assert_allclose(actual[kept], wanted[kept], atol=1e-5)
