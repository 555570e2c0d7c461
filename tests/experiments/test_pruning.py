"""The command that prunes a folder, and the windows that it measures importance on."""

from __future__ import annotations

import dataclasses
import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

from experiments.compression import pruning
from experiments.compression.pruning import prune, training_windows
from experiments.compression.structure import parse_counts
from nq.bundle import bundled_sample
from nq.config import DecisionConfig, WindowConfig
from nq.model import checkpoint, joint
from nq.model.folder import ModelSettings, load_config, load_settings, save_settings
from nq.preprocess.tokenizers.base import Tokenizer
from nq.preprocess.tokenizers.wordpiece import WordPieceTokenizer
from tests import tiny_models
from tests.experiments.test_pruning_structure import WIDE
from tests.nq_records import changed, simplified, write_lines

pytestmark = pytest.mark.extended

SAMPLE = str(bundled_sample())
SHAPE = dataclasses.replace(WIDE, hidden_act="gelu_new")
SETTINGS = ModelSettings(
    WindowConfig(max_seq_length=32, doc_stride=8, max_query_length=8),
    DecisionConfig(long_threshold=0.25),
)
COUNTS = "heads=3,ffn=64,layers=2"
WINDOWS = WindowConfig(max_seq_length=24, max_query_length=8, doc_stride=4)
QUESTIONS = ("who", "moon")


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


def without_span_head(source: Path, folder: Path) -> None:
    """Copies a model folder as an encoder that was never trained on questions."""
    shutil.copytree(source, folder)
    tensors = load_file(folder / "model.safetensors")
    kept = {name: x for name, x in tensors.items() if not name.startswith("qa_outputs")}
    save_file(kept, folder / "model.safetensors")
    save_settings(folder, dataclasses.replace(load_settings(folder), weights={}))


@pytest.mark.parametrize(
    ("model", "target", "counts", "data", "code", "message"),
    [
        ("source", "out", "heads=0", "good", 2, "heads is 0: at least 1 must be kept"),
        ("source", "out", "heads=5", "good", 1, "heads is 5, the model has 4: choose"),
        ("source", "out", "heads=3", "none", 1, "no window with an answer in none"),
        ("source", "out", "heads=3", "bad", 1, "the only record is bad: bad, line"),
        ("encoder", "out", "heads=3", "good", 1, "encoder has no span head, so that"),
        ("source", "encoder", "heads=3", "good", 1, "encoder is not empty: choose a new folder"),
    ],
)
def test_what_cannot_be_pruned_is_one_line(
    model: str,
    target: str,
    counts: str,
    data: str,
    code: int,
    message: str,
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "source").symlink_to(source)
    without_span_head(source, tmp_path / "encoder")
    record = simplified()
    write_lines(Path("good"), [record])
    del record["annotations"]
    write_lines(Path("none"), [record])
    write_lines(Path("bad"), [b"{"])
    assert run(model, target, "--prune", counts, "--data", data) == code
    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    assert message in line and not out
    assert not Path("out").exists()


def test_each_file_has_its_share(tmp_path: Path, tokenizer: Tokenizer) -> None:
    files = []
    for question in QUESTIONS:
        records = [changed(simplified(i), "question_text", question) for i in range(20)]
        files.append(str(write_lines(tmp_path / f"{question}.jsonl", records)))
    windows = training_windows(files, tokenizer, WINDOWS, count=20)
    assert len(windows) == 20
    starts = [tokenizer.encode([question])[0] for question in QUESTIONS]
    shares = [
        sum(ids[2 : 2 + len(start)].tolist() == list(start) for ids in windows.input_ids)
        for start in starts
    ]
    assert sum(shares) == 20 and abs(shares[0] - shares[1]) <= 5


def test_bad_records_are_counted_and_those_without_annotations_left_out(
    tokenizer: Tokenizer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    unannotated = changed(simplified(words=900), "annotations", ...)
    none = write_lines(tmp_path / "none.jsonl", [unannotated, b"{", b"{}"])
    with caplog.at_level(logging.WARNING), pytest.raises(ValueError) as error:
        training_windows([str(none)], tokenizer, WINDOWS)
    assert str(error.value).startswith(f"no window with an answer in {none}: expected records")
    (message,) = caplog.messages
    assert message.startswith(f"bad records, which are skipped: 2; the first: {none}, line 2: ")
