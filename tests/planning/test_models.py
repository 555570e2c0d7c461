"""Models by the name of a shape, besides folders and installed models."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from nq.bundle import bundled_model
from nq.config import ModelConfig
from nq.errors import Error
from nq.model.folder import load_config
from nq.model.shapes import weight_shapes
from nq.planning import models


def test_a_name_has_the_shape_of_its_model() -> None:
    assert models.find("small") == load_config(bundled_model())


@pytest.mark.parametrize(
    ("name", "millions"), [("bert-base", 109), ("bert-large", 335), ("rembert", 574)]
)
def test_shapes_have_the_weights_of_their_publications(name: str, millions: int) -> None:
    weights = sum(map(math.prod, weight_shapes(models.find(name)).values()))
    assert weights / 1e6 == pytest.approx(millions, rel=0.01)


def test_a_folder_needs_no_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"num_hidden_layers": 3}', encoding="utf-8")
    assert models.find(str(tmp_path)) == ModelConfig(num_hidden_layers=3)


def test_unknown_models_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Error, match=r"no model 'bert-bas'.* or a shape: bert-base, bert-large"):
        models.find("bert-bas")
    with pytest.raises(FileNotFoundError, match=r"expected config.json"):
        models.find(str(tmp_path))
