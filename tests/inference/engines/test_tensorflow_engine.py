"""Tests that the compiled steps of TensorFlow's engine are what the profile requires."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from nq.inference.batches import Shape
from nq.inference.engine import Computation, Network
from nq.inference.engines.tensorflow import (
    Engine,
    check_in_force,
    grappler_options,
)
from nq.inference.profile import (
    GRAPPLER_OFF,
    GRAPPLER_ON,
    THESIS,
    Profile,
    ProfileNotInForceError,
    profiles,
)
from nq.inference.reduction import TopK
from nq.records import WINDOW_COLUMNS
from tests.support import tiny_models

OPTIONS = tf.config.optimizer


@pytest.fixture(autouse=True)
def unchanged_options() -> Iterator[None]:
    """Asserts that a test restores the options of Grappler."""
    before = OPTIONS.get_experimental_options()
    yield
    assert OPTIONS.get_experimental_options() == before


def traced_step(half: str, jit: bool) -> Any:
    """Returns a traced function with a product in ``half`` and one in float32."""
    weight = tf.Variable(np.ones((2, 2), np.float32))

    def products(x: Any) -> Any:
        y = tf.cast(x, half)
        return tf.cast(y @ y, tf.float32) @ weight

    signature = [tf.TensorSpec((2, 2), tf.float32)]
    traced = tf.function(products, input_signature=signature, jit_compile=jit)
    return traced.get_concrete_function()


@pytest.mark.parametrize("profile", profiles(THESIS), ids=str)
def test_only_a_step_that_is_what_the_profile_requires_is_in_force(profile: Profile) -> None:
    precision, jit = profile.precision("CPU"), profile.changes.jit_compile
    step = traced_step(precision, jit)
    with grappler_options(profile.changes.grappler):
        check_in_force(profile, step, precision)
        for other in {"float32", "bfloat16", "float16"} - {precision}:
            with pytest.raises(ProfileNotInForceError, match="types"):
                check_in_force(profile, traced_step(other, jit), precision)
        with pytest.raises(ProfileNotInForceError, match=f"XLA: {not jit}.* {jit}"):
            check_in_force(profile, traced_step(precision, not jit), precision)
    with pytest.raises(ProfileNotInForceError, match="Grappler"):
        check_in_force(profile, step, precision)


@pytest.mark.slow
@pytest.mark.parametrize("names", ["mixed+frozen", "frozen+xla", "mixed+grappler+frozen"])
def test_weights_are_constants_only_under_frozen(names: str) -> None:
    frozen = Profile(names)
    variable = Profile(frozen.names - {"frozen"})
    for profile, other in ((frozen, variable), (variable, frozen)):
        network = Network(tiny_models.SHAPE, tiny_models.model(dtype=profile.policy("CPU")))
        engine = Engine(Computation(network, profile, TopK(5, True)))
        with grappler_options(profile.changes.grappler):
            traced = engine._traced(Shape(2, 16), WINDOW_COLUMNS)
            check_in_force(profile, traced, engine.precision)
            with pytest.raises(ProfileNotInForceError, match="frozen"):
                check_in_force(other, traced, engine.precision)


def test_options_are_set_in_the_block_and_restored_after_it() -> None:
    OPTIONS.set_experimental_options({"remapping": False, "debug_stripper": True})
    try:
        before = OPTIONS.get_experimental_options()
        with pytest.raises(KeyError), grappler_options(GRAPPLER_ON):
            assert GRAPPLER_ON.items() <= OPTIONS.get_experimental_options().items()
            with grappler_options(GRAPPLER_OFF):
                assert GRAPPLER_OFF.items() <= OPTIONS.get_experimental_options().items()
            assert OPTIONS.get_experimental_options()["disable_meta_optimizer"] is False
            raise KeyError
        assert OPTIONS.get_experimental_options() == before
    finally:
        OPTIONS.set_experimental_options({"remapping": None, "debug_stripper": None})
