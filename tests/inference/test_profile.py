"""Tests of profiles: their names, their combinations and the settings that they change."""

from __future__ import annotations

from itertools import chain, combinations, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.inference import profile as profiles
from nq.inference.profile import (
    ALIASES,
    GRAPPLER_OFF,
    GRAPPLER_ON,
    OPTIMIZATIONS,
    THESIS,
    Profile,
)

NAMES = tuple(OPTIMIZATIONS)
SPELLINGS = [
    "+".join(order)
    for some in chain.from_iterable(combinations(THESIS, n) for n in range(1, len(THESIS) + 1))
    for order in permutations(some)
]
each_profile = pytest.mark.parametrize("profile", profiles.profiles(), ids=str)


@pytest.mark.parametrize("text", SPELLINGS)
def test_names_in_any_order_print_in_one_order(text: str) -> None:
    profile = Profile.parse(text)
    assert profile.names == set(text.split("+"))
    assert str(profile) == "+".join(name for name in NAMES if name in text.split("+"))
    assert Profile.parse(str(profile)) == profile


def test_three_optimizations_have_eight_profiles() -> None:
    eight = profiles.profiles(THESIS)
    assert len(eight) == len(set(eight)) == len(set(map(str, eight))) == 8
    assert str(eight[0]) == "baseline" and eight[0] == Profile.parse("baseline") == Profile()
    assert {str(Profile.parse(text)) for text in SPELLINGS} | {"baseline"} == set(map(str, eight))


@each_profile
def test_the_text_of_a_profile_parses_back_to_it(profile: Profile) -> None:
    assert Profile.parse(str(profile)) == profile


def test_a_profile_is_given_as_such_or_as_text() -> None:
    profile = Profile.parse("xla+mixed")
    assert Profile.of(profile) is profile and Profile.of("xla+mixed") == profile
    with pytest.raises(ValueError, match="profile is 3: expected a text such as 'mixed"):
        Profile.of(3)  # type: ignore[arg-type]


def test_earlier_names_of_optimizations_are_accepted() -> None:
    assert ALIASES == {"refine": "prune", "recheck": "rescore"}
    for old, new in ALIASES.items():
        assert Profile.parse(f"mixed+{old}") == Profile.parse(f"mixed+{new}")
        assert str(Profile.parse(f"mixed+{old}")) == str(Profile.parse(f"mixed+{new}"))
        with pytest.raises(ValueError, match=f"'{new}' is named twice"):
            Profile.parse(f"mixed+{old}+{new}")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "xla+openvino",
            "xla and openvino cannot be combined: OpenVINO runs the model, so that TensorFlow's "
            "compiler would have no effect",
        ),
        (
            "onnx+frozen",
            "frozen and onnx cannot be combined: ONNX Runtime runs the model, so that TensorFlow's "
            "freezing would have no effect",
        ),
        ("onnx+openvino", "only one engine can run the model"),
        ("mixed+onnx", "ONNX Runtime has no bfloat16 for a CPU"),
        ("int8", "int8 needs openvino or onnx: TensorFlow has no fast 8-bit products"),
        ("grappler+int8+mixed", "int8 needs openvino or onnx"),
        ("rescore+xla", "rescore needs mixed or int8: otherwise everything is computed in float32"),
        ("recheck+xla", "rescore needs mixed or int8"),
    ],
)
def test_an_impossible_combination_is_an_error_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError) as error:
        Profile.parse(text)
    assert reason in str(error.value) and repr(text) in str(error.value)


def test_profiles_are_all_possible_combinations() -> None:
    possible = profiles.profiles()
    plain = [profile for profile in possible if "rescore" not in profile.names]
    assert len(plain) == len(set(plain)) == 4 * (2**4 + 4 + 2)
    inexact = [profile for profile in plain if profile.names & {"mixed", "int8"}]
    assert set(possible) == {*plain, *(Profile(p.names | {"rescore"}) for p in inexact)}
    for text in map(str, possible):
        names = set(text.split("+"))
        if names & {"openvino", "onnx"}:
            assert (
                not names & {"xla", "grappler", "frozen"} and len(names & {"onnx", "openvino"}) == 1
            )
        else:
            assert "int8" not in names


def test_blanks_around_names_are_ignored() -> None:
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
def test_an_invalid_name_is_an_error_with_the_valid_names(text: str, problem: str) -> None:
    with pytest.raises(ValueError) as error:
        Profile.parse(text)
    assert problem in str(error.value) and repr(text) in str(error.value)
    assert all(name in str(error.value) for name in ("baseline", *NAMES))


@given(st.text(max_size=12))
def test_any_text_is_a_profile_or_a_value_error(text: str) -> None:
    try:
        assert str(Profile.parse(text)) in map(str, profiles.profiles())
    except ValueError as error:
        assert "valid are baseline" in str(error) or f"{text.strip()} needs" in str(error)


def test_the_help_has_a_line_for_each_name() -> None:
    lines = profiles.describe().splitlines()
    assert [line.split()[0] for line in lines] == ["baseline", *NAMES]
    assert all(len(line.split()) > 4 for line in lines)


@pytest.mark.parametrize(("device", "half"), [("CPU", "bfloat16"), ("GPU", "float16")])
@each_profile
def test_only_mixed_changes_the_precision_and_the_policy(
    profile: Profile, device: str, half: str
) -> None:
    assert profile.precision(device) == (half if "mixed" in profile.names else "float32")
    policy = profile.policy(device)
    if "mixed" not in profile.names or "openvino" in profile.names:
        assert policy == "float32"
    else:
        assert policy == (half if "frozen" in profile.names else f"mixed_{half}")


@each_profile
def test_the_changes_are_those_of_the_names(profile: Profile) -> None:
    changes = profile.changes
    assert changes.mixed == ("mixed" in profile.names)
    assert changes.jit_compile == ("xla" in profile.names)
    assert changes.grappler == (GRAPPLER_ON if "grappler" in profile.names else GRAPPLER_OFF)
    for name in ("frozen", "buckets", "prune", "rescore", "int8"):
        assert getattr(changes, name) == (name in profile.names)
    engine = "".join(profile.names & {"openvino", "onnx"})
    assert changes.engine == (engine or "tensorflow")
    assert profile.needs_margin == tuple(n for n in ("prune", "rescore") if n in profile.names)
