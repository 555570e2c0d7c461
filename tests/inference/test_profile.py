"""Profiles: they parse and print, own Grappler's options, and are checked to be in force."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, combinations, permutations

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from nq.inference import profile as profiles
from nq.inference.profile import (
    GRAPPLER_OFF,
    GRAPPLER_ON,
    OPTIMIZATIONS,
    THESIS,
    Profile,
    grappler_options,
)

NAMES = tuple(OPTIMIZATIONS)
SPELLINGS = [
    "+".join(order)
    for some in chain.from_iterable(combinations(THESIS, n) for n in range(1, len(THESIS) + 1))
    for order in permutations(some)
]
each_profile = pytest.mark.parametrize("profile", profiles.profiles(), ids=str)
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


def test_the_thesis_had_eight_profiles() -> None:
    found = profiles.profiles(THESIS)
    assert len(found) == len(set(found)) == len(set(map(str, found))) == 8
    assert str(found[0]) == "baseline" and found[0] == Profile.parse("baseline") == Profile()
    assert {str(Profile.parse(text)) for text in SPELLINGS} | {"baseline"} == set(map(str, found))


@each_profile
def test_each_profile_prints_and_parses_back(profile: Profile) -> None:
    assert Profile.parse(str(profile)) == profile


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("xla+openvino", "OpenVINO runs the graph, so that TensorFlow's compiler never sees it"),
        ("onnx+frozen", "ONNX Runtime runs the graph, so that TensorFlow's freezing never sees it"),
        ("onnx+openvino", "one engine computes the model"),
        ("mixed+onnx", "ONNX Runtime has no bfloat16 for a CPU"),
        ("int8", "int8 needs openvino or onnx: TensorFlow has no fast 8-bit products"),
        ("grappler+int8+mixed", "int8 needs openvino or onnx"),
        ("recheck+xla", "recheck needs mixed or int8: all is computed in float32 anyway"),
    ],
)
def test_what_cannot_be_combined_is_an_error_that_says_why(text: str, reason: str) -> None:
    with pytest.raises(ValueError) as error:
        Profile.parse(text)
    assert reason in str(error.value) and repr(text) in str(error.value)


def test_no_profile_holds_what_cannot_be_combined() -> None:
    found = profiles.profiles()
    plain = [profile for profile in found if "recheck" not in profile.names]
    assert len(plain) == len(set(plain)) == 4 * (2**4 + 4 + 2)
    inexact = [profile for profile in plain if profile.names & {"mixed", "int8"}]
    assert set(found) == {*plain, *(Profile(p.names | {"recheck"}) for p in inexact)}
    for text in map(str, found):
        names = set(text.split("+"))
        if names & {"openvino", "onnx"}:
            assert (
                not names & {"xla", "grappler", "frozen"} and len(names & {"onnx", "openvino"}) == 1
            )
        else:
            assert "int8" not in names


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
        assert str(Profile.parse(text)) in map(str, profiles.profiles())
    except ValueError as error:
        assert "valid are baseline" in str(error) or f"{text.strip()} needs" in str(error)


def test_help_has_a_line_for_each_name() -> None:
    lines = profiles.describe().splitlines()
    assert [line.split()[0] for line in lines] == ["baseline", *NAMES]
    assert all(len(line.split()) > 4 for line in lines)
    for name in GRAPPLER_ON:
        assert (name in lines[NAMES.index("grappler") + 1]) == GRAPPLER_ON[name]


@pytest.mark.parametrize(("device", "half"), [("CPU", "bfloat16"), ("GPU", "float16")])
@each_profile
def test_only_mixed_changes_the_precision(profile: Profile, device: str, half: str) -> None:
    assert profile.precision(device) == (half if "mixed" in profile.names else "float32")
    policy = profile.policy(device)
    if "mixed" not in profile.names or "openvino" in profile.names:
        assert policy == "float32"
    else:
        assert policy == (half if "frozen" in profile.names else f"mixed_{half}")


@each_profile
def test_changes_are_those_of_the_names_and_nothing_else(profile: Profile) -> None:
    changes = profile.changes
    assert changes.mixed == ("mixed" in profile.names)
    assert changes.jit_compile == ("xla" in profile.names)
    assert changes.grappler == (GRAPPLER_ON if "grappler" in profile.names else GRAPPLER_OFF)
    for name in ("frozen", "buckets", "refine", "int8"):
        assert getattr(changes, name) == (name in profile.names)
    engine = "".join(profile.names & {"openvino", "onnx"})
    assert changes.engine == (engine or "tensorflow")


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
