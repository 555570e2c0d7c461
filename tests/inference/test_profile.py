"""Tests of profiles: their names, their combinations and the settings that they change."""

from __future__ import annotations

from itertools import chain, combinations, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.inference import profile as profiles
from nq.inference.profile import OPTIMIZATIONS, THESIS, Profile

NAMES = tuple(OPTIMIZATIONS)
SPELLINGS = [
    "+".join(order)
    for some in chain.from_iterable(combinations(THESIS, n) for n in range(1, len(THESIS) + 1))
    for order in permutations(some)
]


def test_names_in_any_order_print_in_one_order() -> None:
    for text in SPELLINGS:
        profile = Profile.parse(text)
        assert profile.names == set(text.split("+"))
        assert str(profile) == "+".join(name for name in NAMES if name in text.split("+"))
        assert profile == Profile.parse(text.replace("+", " + ")) == Profile.of(text)
    eight = profiles.profiles(THESIS)
    assert {str(Profile.parse(text)) for text in SPELLINGS} | {"baseline"} == set(map(str, eight))
    assert len(eight) == 8 and eight[0] == Profile.parse("baseline") == Profile()


def test_profiles_are_all_possible_combinations() -> None:
    possible = profiles.profiles()
    plain = [profile for profile in possible if "rescore" not in profile.names]
    assert len(plain) == len(set(plain)) == 4 * (2**4 + 4 + 2)
    inexact = [profile for profile in plain if profile.names & {"mixed", "int8"}]
    assert set(possible) == {*plain, *(Profile(p.names | {"rescore"}) for p in inexact)}
    for profile in possible:
        assert Profile.parse(str(profile)) == profile
        engines = profile.names & {"openvino", "onnx"}
        assert len(engines) < 2 and (engines or "int8" not in profile.names)
        assert not (engines and profile.names & {"xla", "grappler", "frozen"})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("xla+openvino", "xla and openvino cannot be combined: OpenVINO runs the model, so that"),
        ("onnx+frozen", "TensorFlow's freezing would have no effect"),
        ("onnx+openvino", "only one engine can run the model"),
        ("mixed+onnx", "ONNX Runtime has no bfloat16 for a CPU"),
        ("grappler+int8+mixed", "int8 needs openvino or onnx: TensorFlow has no fast 8-bit"),
        ("rescore+xla", "rescore needs mixed or int8: otherwise everything is computed in float32"),
        ("", "unknown optimization ''; valid are baseline, or mixed, xla"),
        ("xla+", "unknown optimization ''"),
        ("XLA", "unknown optimization 'XLA'"),
        ("mixed+xla+mixed", "'mixed' is named twice"),
        ("baseline+xla", "baseline stands alone"),
        ("baseline+baseline", "baseline stands alone"),
    ],
)
def test_what_is_no_profile_is_an_error_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError) as error:
        Profile.parse(text)
    assert reason in str(error.value) and repr(text) in str(error.value)


@given(st.text(max_size=12))
def test_any_text_is_a_profile_or_a_value_error(text: str) -> None:
    try:
        assert str(Profile.parse(text)) in map(str, profiles.profiles())
    except ValueError as error:
        assert "valid are baseline" in str(error) or f"{text.strip()} needs" in str(error)
