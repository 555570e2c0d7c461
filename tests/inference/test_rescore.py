"""Tests that close decisions are computed again, and become those of float32."""

import math
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from nq.bundle import bundled_sample
from nq.inference import rescore
from nq.inference.load import ScorerSpec, load_scorer
from nq.inference.profile import TENSORFLOW, Profile
from nq.inference.scorer import Part, windowed
from nq.model.model import Model
from nq.questions import read_examples
from nq.records import RESCORED


@pytest.mark.slow
def test_what_is_rescored_has_the_scores_of_float32(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(rescore.CLOSE, (TENSORFLOW, "bfloat16"), math.inf)
    model = Model.open(tiny_model)
    examples = islice(read_examples(bundled_sample()), 6)
    part = Part([windowed(one, model.tokenizer, model.windows) for one in examples])
    exact, rescored = (
        load_scorer(ScorerSpec(model, Profile(name), 4)).scores(part.rows, part.examples)
        for name in ("baseline", "mixed+rescore")
    )
    assert rescored.pop(RESCORED).all()
    for name, column in exact.items():
        np.testing.assert_allclose(rescored[name], column, atol=1e-5)
