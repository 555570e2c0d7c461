"""Profiles: they parse and print, own Grappler's options, and are checked to be in force."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, combinations, permutations
from typing import Any

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from nq.model import profile as profiles
from nq.model.profile import (
    GRAPPLER_OFF,
    GRAPPLER_ON,
    OPTIMIZATIONS,
    Profile,
    ProfileNotInForceError,
    all_profiles,
    check_in_force,
    grappler_options,
)

NAMES = tuple(OPTIMIZATIONS)
SPELLINGS = [
    "+".join(order)
    for some in chain.from_iterable(combinations(NAMES, n) for n in range(1, len(NAMES) + 1))
    for order in permutations(some)
]
each_profile = pytest.mark.parametrize("profile", all_profiles(), ids=str)
OPTIONS = tf.config.optimizer


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """No test leaves an option of Grappler behind."""
    before = OPTIONS.get_experimental_options()
    yield
    assert OPTIONS.get_experimental_options() == before


# --- names


@pytest.mark.parametrize("text", SPELLINGS)
def test_every_spelling_prints_in_one_order_and_parses_back(text: str) -> None:
    profile = Profile.parse(text)
    assert profile.names == set(text.split("+"))
    assert str(profile) == "+".join(name for name in NAMES if name in text.split("+"))
    assert Profile.parse(str(profile)) == profile


def test_there_are_eight_profiles_and_each_prints_and_parses_back() -> None:
    found = all_profiles()
    assert len(found) == len(set(found)) == len(set(map(str, found))) == 8
    assert str(found[0]) == "baseline" and found[0] == Profile.parse("baseline") == Profile()
    assert all(Profile.parse(str(profile)) == profile for profile in found)
    assert {str(Profile.parse(text)) for text in SPELLINGS} | {"baseline"} == set(map(str, found))


def test_blanks_around_names_do_not_matter() -> None:
    assert Profile.parse(" xla + mixed ") == Profile.parse("mixed+xla")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "unknown optimization ''"),
        ("xla+", "unknown optimization ''"),
        ("fast", "unknown optimization 'fast'"),
        ("XLA", "unknown optimization 'XLA'"),
        ("xla+turbo", "unknown optimization 'turbo'"),
        ("xla+xla", "'xla' is named twice"),
        ("mixed+xla+mixed", "'mixed' is named twice"),
        ("baseline+xla", "baseline stands alone"),
        ("baseline+baseline", "baseline stands alone"),
    ],
)
def test_a_wrong_name_is_an_error_that_lists_the_valid_ones(text: str, problem: str) -> None:
    with pytest.raises(ValueError) as error:
        Profile.parse(text)
    assert problem in str(error.value) and repr(text) in str(error.value)
    assert all(name in str(error.value) for name in ("baseline", *NAMES))


@given(st.text(max_size=12))
def test_any_other_text_is_a_value_error(text: str) -> None:
    try:
        assert str(Profile.parse(text)) in map(str, all_profiles())
    except ValueError as error:
        assert "valid are baseline" in str(error)


def test_help_has_a_line_for_each_name() -> None:
    lines = profiles.describe().splitlines()
    assert [line.split()[0] for line in lines] == ["baseline", *NAMES]
    assert all(len(line.split()) > 4 for line in lines)
    for name in GRAPPLER_ON:
        assert (name in lines[-1]) == GRAPPLER_ON[name]


@pytest.mark.parametrize(("device", "half"), [("CPU", "mixed_bfloat16"), ("GPU", "mixed_float16")])
@each_profile
def test_only_mixed_changes_the_precision(profile: Profile, device: str, half: str) -> None:
    assert profile.precision(device) == (half if "mixed" in profile.names else "float32")


@each_profile
def test_changes_are_those_of_the_names_and_nothing_else(profile: Profile) -> None:
    changes = profile.changes
    assert changes.mixed == ("mixed" in profile.names)
    assert changes.jit_compile == ("xla" in profile.names)
    assert changes.grappler == (GRAPPLER_ON if "grappler" in profile.names else GRAPPLER_OFF)


# --- Grappler's options


@pytest.mark.parametrize("options", [GRAPPLER_OFF, GRAPPLER_ON], ids=["off", "on"])
def test_options_hold_inside_and_are_restored(options: dict[str, bool]) -> None:
    with grappler_options(options):
        assert options.items() <= OPTIONS.get_experimental_options().items()


def test_options_set_before_are_restored_too() -> None:
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


# --- in force


def step(half: str, jit: bool) -> Any:
    """A traced function with a product in ``half`` and, as our heads, one in float32."""

    def products(x: Any) -> Any:
        y = tf.cast(x, half)
        return tf.cast(y @ y, tf.float32) @ x

    signature = [tf.TensorSpec((2, 2), tf.float32)]
    traced = tf.function(products, input_signature=signature, jit_compile=jit)
    return traced.get_concrete_function()


@each_profile
def test_a_profile_that_is_in_force_passes(profile: Profile) -> None:
    precision = profile.precision("CPU")
    half, jit = precision.removeprefix("mixed_"), profile.changes.jit_compile
    with grappler_options(profile.changes.grappler):
        check_in_force(profile, step(half, jit), precision)


@each_profile
def test_a_step_of_another_precision_is_not_in_force(profile: Profile) -> None:
    precision, jit = profile.precision("CPU"), profile.changes.jit_compile
    with grappler_options(profile.changes.grappler):
        for other in {"float32", "bfloat16", "float16"} - {precision.removeprefix("mixed_")}:
            with pytest.raises(ProfileNotInForceError, match="types of the matrix products"):
                check_in_force(profile, step(other, jit), precision)


def test_a_precision_that_the_profile_did_not_ask_for_is_not_in_force() -> None:
    for name, precision in (("baseline", "mixed_float16"), ("mixed", "float32")):
        profile = Profile.parse(name)
        with (
            grappler_options(profile.changes.grappler),
            pytest.raises(ProfileNotInForceError, match="mixed precision"),
        ):
            check_in_force(profile, step(precision.removeprefix("mixed_"), False), precision)


@each_profile
def test_a_step_that_is_compiled_or_not_against_the_profile_is_not_in_force(
    profile: Profile,
) -> None:
    precision, jit = profile.precision("CPU"), profile.changes.jit_compile
    traced = step(precision.removeprefix("mixed_"), not jit)
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
        OPTIONS.set_experimental_options(changed)
        with pytest.raises(ProfileNotInForceError, match=f"Grappler's {next(iter(changed))}"):
            check_in_force(profile, traced, "float32")


def test_without_the_context_grappler_is_not_in_force() -> None:
    for name in ("baseline", "grappler"):
        with pytest.raises(ProfileNotInForceError, match=f"profile {name} is not in force"):
            check_in_force(Profile.parse(name), step("float32", False), "float32")
