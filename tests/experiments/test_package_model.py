"""A model is put into its distribution, or everything stays as it is."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from experiments import package_model
from nq.model import checkpoint, joint
from nq.model.folder import load_settings
from nq.preprocess.tokenizers.load import load_tokenizer
from tests import tiny_models

PROJECT = '[project.entry-points."nq.models"]\nlakes = "nq_model_lakes"\n'
WIDE = dataclasses.replace(
    tiny_models.SHAPE, hidden_size=128, intermediate_size=1024, num_hidden_layers=4
)
"""A shape whose matrices take 1.4 MB in 8 bits."""


@pytest.fixture(scope="module")
def model(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wide")
    settings = load_settings(tiny_model)
    tokenizer = load_tokenizer(tiny_model)
    checkpoint.save(folder, joint.build(WIDE), WIDE, tokenizer, settings, "# Not this card\n")
    return folder


@pytest.fixture
def distribution(tmp_path: Path) -> Path:
    """A distribution with an earlier model in another number of files."""
    package = tmp_path / "nq_model_lakes"
    package.mkdir()
    (tmp_path / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    for name in ("__init__.py", "README.md", "model-00001-of-00009.safetensors", "spiece.model"):
        (package / name).write_text("earlier", encoding="utf-8")
    return tmp_path


def run(*arguments: object) -> int:
    return package_model.main([str(argument) for argument in arguments])


def test_files_of_the_model_are_replaced(
    model: Path, distribution: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        assert run(model, distribution, "--shard-mb", 1, "--json") == 0
        result = json.loads(capsys.readouterr().out)
        package = distribution / "nq_model_lakes"
        assert result["files"] == {p.name: p.stat().st_size for p in package.iterdir()}
        assert set(result["files"]) == {
            *("__init__.py", "README.md", "config.json", "nq.json", "tokenizer_config.json"),
            *("vocab.txt", "model.safetensors.index.json"),
            *(f"model-0000{i}-of-00002.safetensors" for i in (1, 2)),
        }
        assert max(result["files"].values()) <= 10**6
        assert result["total_bytes"] == sum(result["files"].values())
        assert (package / "README.md").read_text(encoding="utf-8") == "earlier"
    assert load_settings(package) == load_settings(model)
    assert joint.load(package).report == checkpoint.LoadReport()
    assert [path.name for path in distribution.iterdir() if path.name.startswith(".")] == []
