"""Tests that the compiled steps of TensorFlow's engine are what the profile requires."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from nq.inference.batches import Shape
from nq.inference.engine import Computation
from nq.inference.engines.tensorflow import Engine, check_in_force, grappler_options
from nq.inference.network import Network
from nq.inference.profile import (
    GRAPPLER_OFF,
    GRAPPLER_ON,
    THESIS,
    Profile,
    ProfileNotInForceError,
    profiles,
)
from nq.inference.scorer import COLUMNS
from nq.inference.top_k import TopK
from tests import tiny_models

each_profile = pytest.mark.parametrize("profile", profiles(THESIS), ids=str)
OPTIONS = tf.config.optimizer


@pytest.fixture(autouse=True)
def unchanged_options() -> Iterator[None]:
    """Asserts that a test restores the options of Grappler."""
    before = OPTIONS.get_experimental_options()
    yield
    assert OPTIONS.get_experimental_options() == before


# --- steps in force


def traced_step(half: str, jit: bool) -> Any:
    """Returns a traced function with a product in ``half`` and one in float32."""
    weight = tf.Variable(np.ones((2, 2), np.float32))

    def products(x: Any) -> Any:
        y = tf.cast(x, half)
        return tf.cast(y @ y, tf.float32) @ weight

    signature = [tf.TensorSpec((2, 2), tf.float32)]
    traced = tf.function(products, input_signature=signature, jit_compile=jit)
    return traced.get_concrete_function()


@each_profile
def test_a_step_that_is_what_the_profile_requires_is_in_force(profile: Profile) -> None:
    precision, jit = profile.precision("CPU"), profile.changes.jit_compile
    with grappler_options(profile.changes.grappler):
        check_in_force(profile, traced_step(precision, jit), precision)


@each_profile
def test_a_step_of_another_precision_is_not_in_force(profile: Profile) -> None:
    precision, jit = profile.precision("CPU"), profile.changes.jit_compile
    with grappler_options(profile.changes.grappler):
        for other in {"float32", "bfloat16", "float16"} - {precision}:
            with pytest.raises(ProfileNotInForceError, match="types of the matrix products"):
                check_in_force(profile, traced_step(other, jit), precision)


@each_profile
def test_a_step_compiled_otherwise_is_not_in_force(profile: Profile) -> None:
    precision, jit = profile.precision("CPU"), profile.changes.jit_compile
    traced = traced_step(precision, not jit)
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
def test_another_option_of_grappler_is_not_in_force(name: str, changed: dict[str, bool]) -> None:
    profile = Profile.parse(name)
    traced = traced_step("float32", False)
    with grappler_options(profile.changes.grappler):
        OPTIONS.set_experimental_options(changed)
        with pytest.raises(ProfileNotInForceError, match=f"Grappler's {next(iter(changed))}"):
            check_in_force(profile, traced, "float32")


def test_without_its_options_no_profile_is_in_force() -> None:
    for name in ("baseline", "grappler"):
        with pytest.raises(ProfileNotInForceError, match=f"profile {name} is not in force"):
            check_in_force(Profile.parse(name), traced_step("float32", False), "float32")


@pytest.mark.slow
@pytest.mark.parametrize("names", ["frozen", "mixed+frozen", "frozen+xla", "mixed+grappler+frozen"])
def test_weights_are_constants_only_under_frozen(names: str) -> None:
    frozen = Profile.parse(names)
    variable = Profile(frozen.names - {"frozen"})
    for profile, other in ((frozen, variable), (variable, frozen)):
        network = Network(tiny_models.SHAPE, tiny_models.model(dtype=profile.policy("CPU")))
        engine = Engine(Computation(network, profile, TopK(5, True)))
        with grappler_options(profile.changes.grappler):
            traced = engine._traced(Shape(2, 16), COLUMNS)
            check_in_force(profile, traced, engine.precision)
            with pytest.raises(ProfileNotInForceError, match="weights frozen"):
                check_in_force(other, traced, engine.precision)


# --- the options of Grappler


@pytest.mark.parametrize("options", [GRAPPLER_OFF, GRAPPLER_ON], ids=["off", "on"])
def test_options_are_set_in_the_block(options: dict[str, bool]) -> None:
    with grappler_options(options):
        assert options.items() <= OPTIONS.get_experimental_options().items()


def test_options_of_an_outer_block_are_restored() -> None:
    OPTIONS.set_experimental_options({"remapping": False, "debug_stripper": True})
    try:
        before = OPTIONS.get_experimental_options()
        with grappler_options(GRAPPLER_ON):
            assert OPTIONS.get_experimental_options()["remapping"] is True
            with grappler_options(GRAPPLER_OFF):
                assert OPTIONS.get_experimental_options()["disable_meta_optimizer"] is True
            assert OPTIONS.get_experimental_options()["disable_meta_optimizer"] is False
        assert OPTIONS.get_experimental_options() == before
    finally:
        OPTIONS.set_experimental_options({"remapping": None, "debug_stripper": None})


def test_options_are_restored_after_an_exception() -> None:
    before = OPTIONS.get_experimental_options()
    with pytest.raises(KeyError), grappler_options(GRAPPLER_ON):
        raise KeyError
    assert OPTIONS.get_experimental_options() == before


def test_another_thread_waits_until_the_block_ends() -> None:
    inside = threading.Event()

    def enter() -> None:
        with grappler_options(GRAPPLER_OFF):
            inside.set()

    thread = threading.Thread(target=enter)
    with grappler_options(GRAPPLER_ON):
        thread.start()
        assert not inside.wait(0.2)
        assert OPTIONS.get_experimental_options()["disable_meta_optimizer"] is False
    assert inside.wait(10)
    thread.join()
