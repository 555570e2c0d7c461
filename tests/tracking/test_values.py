"""Tests of names, with MLflow's own checks, and of colors."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nq.tracking.values import color, safe_name


@given(st.text() | st.from_regex(r"[./ ab>\n-]*", fullmatch=True) | st.text("a/.", min_size=240))
@example("..").via("climbs")
@example("x" * 249 + "/y").via("cut at a slash")
def test_mlflow_accepts_every_safe_name(name: str) -> None:
    from mlflow.utils.validation import _validate_metric, _validate_param, _validate_tag

    safe = safe_name(name)
    _validate_metric(safe, 1.0, 0, 0)
    _validate_param(safe, "")
    _validate_tag(safe, "")
    assert safe_name(safe) == safe


@pytest.mark.parametrize(
    "name", ["quality/long_f1", "time/predict_s", "mlflow.note.content", "a b:c"]
)
def test_valid_name_is_unchanged(name: str) -> None:
    assert safe_name(name) == name


def test_profiles_have_different_colors() -> None:
    parts = ("grappler", "mixed", "xla")
    names = ["+".join(some) for n in (1, 2, 3) for some in combinations(parts, n)]
    assert len({color(name) for name in ["baseline", *names]}) == 8
