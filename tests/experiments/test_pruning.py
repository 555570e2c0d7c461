"""The command that prunes a folder, and prunes it again."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from tests.experiments.test_pruning_structure import WIDE

from experiments.compression import pruning
from experiments.compression.pruning import prune
from experiments.compression.structure import parse_counts
from nq.bundle import bundled_sample
from nq.config import DecisionConfig, WindowConfig
from nq.model import checkpoint, joint
from nq.model.folder import ModelSettings, load_config, load_settings
from nq.preprocess.tokenizers.base import Tokenizer
from nq.preprocess.tokenizers.wordpiece import WordPieceTokenizer
from tests import tiny_models

pytestmark = pytest.mark.extended

SAMPLE = str(bundled_sample())
SHAPE = dataclasses.replace(WIDE, hidden_act="gelu_new")
SETTINGS = ModelSettings(
    WindowConfig(max_seq_length=32, doc_stride=8, max_query_length=8),
    DecisionConfig(long_threshold=0.25),
)
COUNTS = "heads=3,ffn=64,layers=2"


@pytest.fixture(scope="module")
def tokenizer(tiny_vocab: Path) -> Tokenizer:
    return WordPieceTokenizer(tiny_vocab)


@pytest.fixture(scope="module")
def source(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder with enough of everything."""
    folder = tmp_path_factory.mktemp("models") / "source"
    model = tiny_models.model(shape=SHAPE)
    checkpoint.save(folder, model, SHAPE, tokenizer, SETTINGS, "# A tiny model\n")
    return folder


@pytest.fixture(scope="module")
def pruned(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the pruned model; read it, do not write into it."""
    folder = tmp_path_factory.mktemp("pruned") / "pruned"
    prune(source, folder, parse_counts(COUNTS), [SAMPLE])
    return folder


def run(*arguments: object) -> int:
    return pruning.main(list(map(str, arguments)))


def settings_of(folder: Path) -> Any:
    return json.loads((folder / "nq.json").read_bytes())


def test_a_pruned_folder_says_what_was_removed(source: Path, pruned: Path) -> None:
    config = json.loads((pruned / "config.json").read_bytes())
    before = json.loads((source / "config.json").read_bytes())
    after = {"num_attention_heads": 3, "intermediate_size": 64, "num_hidden_layers": 2}
    assert config == before | after | {"head_size": 2}
    (record,) = settings_of(pruned)["removed_parts"]
    assert (record["source"], record["data"]) == ("source", [bundled_sample().name])
    assert record["num_attention_heads"] == [4, 3] and len(record["removed_layers"]) == 1
    assert [len(heads) for heads in record["removed_heads"]] == [1, 1]
    assert "removed_parts" not in settings_of(source)
    loaded = load_settings(pruned)
    assert (loaded.windows, loaded.decision) == (SETTINGS.windows, SETTINGS.decision)
    card = (pruned / "README.md").read_text(encoding="utf-8")
    assert "2 of 3 layers with 3 of 4 heads and 64 of 128 feed-forward units" in card
    assert "`nq tune` fits it again" in card
    names = {path.name for path in source.iterdir()}
    assert {path.name for path in pruned.iterdir()} == names


def test_a_pruned_folder_is_pruned_again(
    pruned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again, data = tmp_path / "again", ["--data", SAMPLE]
    assert run(pruned, again, "--prune", "heads=2,layers=1", *data, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["pruning"]["num_attention_heads"] == [3, 2]
    config = load_config(again)
    assert (config.num_attention_heads, config.head_width, config.num_hidden_layers) == (2, 2, 1)
    assert [record["source"] for record in settings_of(again)["removed_parts"]] == [
        "source",
        "pruned",
    ]
    assert settings_of(again)["removed_parts"][1] == result["pruning"]
    joint.load_model(again)
    assert run(again, tmp_path / "more", "--prune", "heads=3", *data) == 1
    assert "heads is 3, the model has 2: choose 2 or less" in capsys.readouterr().err
