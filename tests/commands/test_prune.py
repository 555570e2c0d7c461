"""``nq convert --prune``, and what becomes of the folder: other commands, engines, formats."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

from nq.bundle import bundled_sample
from nq.commands.main import console
from nq.config import DecisionConfig, PruningConfig, WindowConfig
from nq.model import checkpoint, joint
from nq.model.folder import ModelSettings, load_config, load_settings, save_settings
from nq.preprocess.tokenizers.wordpiece import WordPieceTokenizer
from nq.training.pruning import prune
from tests import tiny_models
from tests.model.test_pruning import WIDE
from tests.nq_records import simplified, write_lines

SAMPLE = str(bundled_sample())
SHAPE = dataclasses.replace(WIDE, hidden_act="gelu_new")
SETTINGS = ModelSettings(
    WindowConfig(max_seq_length=32, doc_stride=8, max_query_length=8),
    DecisionConfig(long_threshold=0.25),
)
COUNTS = "heads=3,ffn=64,layers=2"


@pytest.fixture(scope="module")
def source(tiny_vocab: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder with enough of everything."""
    folder = tmp_path_factory.mktemp("models") / "source"
    model, tokenizer = tiny_models.model(shape=SHAPE), WordPieceTokenizer(tiny_vocab)
    checkpoint.save(folder, model, SHAPE, tokenizer, SETTINGS, "# A tiny model\n")
    return folder


@pytest.fixture(scope="module")
def pruned(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the pruned model; read it, do not write into it."""
    folder = tmp_path_factory.mktemp("pruned") / "pruned"
    prune(source, folder, PruningConfig.parse(COUNTS), [SAMPLE])
    return folder


def load(folder: Path) -> Any:
    return joint.load(folder).model


def convert(*arguments: object) -> int:
    return console(["convert", *map(str, arguments)])


def settings_of(folder: Path) -> Any:
    return json.loads((folder / "nq.json").read_bytes())


def test_a_pruned_folder_says_what_was_removed(source: Path, pruned: Path) -> None:
    config = json.loads((pruned / "config.json").read_bytes())
    before = json.loads((source / "config.json").read_bytes())
    after = {"num_attention_heads": 3, "intermediate_size": 64, "num_hidden_layers": 2}
    assert config == before | after | {"head_size": 2}
    (record,) = settings_of(pruned)["pruning"]
    assert (record["source"], record["data"]) == ("source", [bundled_sample().name])
    assert record["num_attention_heads"] == [4, 3] and len(record["removed_layers"]) == 1
    assert [len(heads) for heads in record["removed_heads"]] == [1, 1]
    assert "pruning" not in settings_of(source)
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
    assert convert(pruned, again, "--prune", "heads=2,layers=1", *data, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["pruning"]["num_attention_heads"] == [3, 2]
    config = load_config(again)
    assert (config.num_attention_heads, config.head_width, config.num_hidden_layers) == (2, 2, 1)
    assert [record["source"] for record in settings_of(again)["pruning"]] == ["source", "pruned"]
    assert settings_of(again)["pruning"][1] == result["pruning"]
    load(again)
    assert convert(again, tmp_path / "more", "--prune", "heads=3", *data) == 1
    assert "heads is 3, the model has 2: choose 2 or less" in capsys.readouterr().err


def edited(source: Path, folder: Path, drop: Iterable[str] = (), **values: Any) -> Path:
    """Copies a model folder without some tensors and with other values in its config."""
    shutil.copytree(source, folder)
    tensors = load_file(folder / "model.safetensors")
    kept = {name: x for name, x in tensors.items() if not name.startswith(tuple(drop) or "?")}
    save_file(kept, folder / "model.safetensors")
    save_settings(folder, dataclasses.replace(load_settings(folder), weights={}))
    config = json.loads((folder / "config.json").read_bytes()) | values
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["source", "--prune", "heads=0", "--data", "d"], 2, "heads is 0: at least 1 must be kept"),
        (["source", "--prune", "heads=3"], 2, "--prune needs --data: annotated records"),
        (["source", "--prune", "heads=5", "--data", "d"], 1, "heads is 5, the model has 4: choose"),
        (["source", "--prune", "heads=3", "--data", "none"], 1, "no window with an answer in none"),
        (["source", "--prune", "heads=3", "--data", "bad"], 1, "the only record is bad: bad, line"),
        (["encoder", "--prune", "heads=3", "--data", "d"], 1, "encoder has no span head, so that"),
        (
            ["source", "--prune", "heads=3", "--data", "d", "--to", "hf"],
            1,
            "3 heads of 2 columns, which the format hf cannot have: it expects 8 columns in all",
        ),
        (["wrong"], 1, "wrong/nq.json: pruning is 'much': expected a list of obj"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_cannot_be_pruned_is_one_line(
    arguments: list[str],
    code: int,
    message: str,
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    record = simplified()
    write_lines(Path("d"), [record])
    del record["annotations"]
    write_lines(Path("none"), [record])
    write_lines(Path("bad"), [b"{"])
    name = arguments[0]
    if name == "encoder":
        edited(source, Path("encoder"), drop=("qa_outputs",))
    elif name == "wrong":
        folder = edited(source, Path("wrong"))
        (folder / "nq.json").write_text('{"pruning": "much"}')
    assert convert({"source": source}.get(name, name), "out", *arguments[1:]) == code
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert message in lines[-1] and not out
    assert len(lines) == 1
    assert not Path("out").exists()
