"""Tests of profiles: their names, their combinations and the settings that they change."""

import pickle
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.inference import profile as profiles
from nq.inference.profile import OPTIMIZATIONS, Profile


@given(st.sampled_from(profiles.profiles()[1:]), st.randoms())
def test_names_in_any_order_are_one_profile(profile: Profile, random: Random) -> None:
    names = random.sample(sorted(profile.names), len(profile.names))
    parsed = Profile(" + ".join(names))
    assert parsed == profile == Profile.of(str(profile)) == Profile(profile.names)
    assert pickle.loads(pickle.dumps(profile)) == profile
    assert str(parsed) == "+".join(name for name in OPTIMIZATIONS if name in names)


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        ("xla+openvino", "xla and openvino"),
        ("onnx+frozen", "freezing"),
        ("mixed+onnx", "bfloat16"),
        ("rescore+xla", "mixed or int8"),
        ("", "''"),
        ({"mixed", "xal"}, "'xla'"),
        (["mixed", "mixed"], "'mixed'"),
        ({"baseline", "xla"}, "baseline"),
        ([1], "[1]"),
        (None, "None"),
    ],
)
def test_what_is_no_profile_is_an_error_with_the_reason(names: Any, reason: str) -> None:
    with pytest.raises(ValueError) as error:
        Profile(names)
    assert reason in str(error.value)
    assert not isinstance(names, str) or repr(names) in str(error.value)
    assert Profile() == Profile(()) == Profile(["baseline"]) == Profile("baseline")


@given(st.text(max_size=12))
def test_any_text_is_a_profile_or_a_value_error(text: str) -> None:
    try:
        assert str(Profile(text)) in map(str, profiles.profiles())
    except ValueError as error:
        assert "baseline" in str(error) or text.strip() in str(error)
