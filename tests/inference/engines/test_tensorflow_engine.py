"""TensorFlow's engine: what is compiled is checked to be what the profile asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from nq.inference.batches import Shape
from nq.inference.engine import Task
from nq.inference.engines.tensorflow import Engine, check_in_force
from nq.inference.network import Network
from nq.inference.profile import (
    GRAPPLER_ON,
    THESIS,
    Profile,
    ProfileNotInForceError,
    grappler_options,
    profiles,
)
from nq.inference.top_k import Selection
from tests import tiny_models

each_profile = pytest.mark.parametrize("profile", profiles(THESIS), ids=str)


def step(half: str, jit: bool) -> Any:
    """A traced function that reads a weight, with a product in ``half`` and one in float32."""
    weight = tf.Variable(np.ones((2, 2), np.float32))

    def products(x: Any) -> Any:
        y = tf.cast(x, half)
        return tf.cast(y @ y, tf.float32) @ weight

    signature = [tf.TensorSpec((2, 2), tf.float32)]
    traced = tf.function(products, input_signature=signature, jit_compile=jit)
    return traced.get_concrete_function()


@each_profile
def test_a_profile_that_is_in_force_passes(profile: Profile) -> None:
    precision = profile.precision("CPU")
    jit = profile.changes.jit_compile
    with grappler_options(profile.changes.grappler):
        check_in_force(profile, step(precision, jit), precision)


@each_profile
def test_a_step_of_another_precision_is_not_in_force(profile: Profile) -> None:
    precision, jit = profile.precision("CPU"), profile.changes.jit_compile
    with grappler_options(profile.changes.grappler):
        for other in {"float32", "bfloat16", "float16"} - {precision}:
            with pytest.raises(ProfileNotInForceError, match="types of the matrix products"):
                check_in_force(profile, step(other, jit), precision)


@each_profile
def test_a_step_that_is_compiled_or_not_against_the_profile_is_not_in_force(
    profile: Profile,
) -> None:
    precision, jit = profile.precision("CPU"), profile.changes.jit_compile
    traced = step(precision, not jit)
    with (
        grappler_options(profile.changes.grappler),
        pytest.raises(ProfileNotInForceError, match=f"compiled by XLA: {not jit}, expected {jit}"),
    ):
        check_in_force(profile, traced, precision)


@pytest.mark.parametrize(
    ("name", "changed"),
    [("baseline", {"disable_meta_optimizer": False})]
    + [("grappler", {option: not on}) for option, on in GRAPPLER_ON.items()],
)
def test_a_grappler_option_changed_behind_is_not_in_force(
    name: str, changed: dict[str, bool]
) -> None:
    profile = Profile.parse(name)
    traced = step("float32", False)
    with grappler_options(profile.changes.grappler):
        tf.config.optimizer.set_experimental_options(changed)
        with pytest.raises(ProfileNotInForceError, match=f"Grappler's {next(iter(changed))}"):
            check_in_force(profile, traced, "float32")


def test_without_the_context_grappler_is_not_in_force() -> None:
    for name in ("baseline", "grappler"):
        with pytest.raises(ProfileNotInForceError, match=f"profile {name} is not in force"):
            check_in_force(Profile.parse(name), step("float32", False), "float32")


@pytest.mark.parametrize("names", ["frozen", "mixed+frozen", "frozen+xla", "mixed+grappler+frozen"])
def test_frozen_weights_are_constants_and_others_are_not(names: str) -> None:
    frozen, profile = Profile.parse(names), Profile.parse(names.replace("+frozen", ""))
    if profile == frozen:
        profile = Profile(frozen.names - {"frozen"})
    for asked, traced_for in ((frozen, profile), (profile, frozen)):
        network = Network(tiny_models.SHAPE, tiny_models.model(dtype=traced_for.policy("CPU")))
        engine = Engine(Task(network, traced_for, Selection(5, True)))
        with grappler_options(asked.changes.grappler):
            traced = engine._traced(
                Shape(2, 16), ("input_ids", "input_mask", "segment_ids", "token_map")
            )
            check_in_force(traced_for, traced, engine.precision)
            with pytest.raises(ProfileNotInForceError, match="weights frozen"):
                check_in_force(asked, traced, engine.precision)
