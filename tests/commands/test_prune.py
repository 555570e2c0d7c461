"""``nq convert --prune``, and what becomes of the folder: other commands, engines, formats."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from nq.bundle import bundled_sample
from nq.commands.main import console
from nq.config import DecisionConfig, PruningConfig, WindowConfig
from nq.inference.load import ScorerSpec, load_predictor
from nq.inference.profile import Profile
from nq.inference.reduction import LOGITS, AllLogits
from nq.model import checkpoint, joint
from nq.model.folder import ModelSettings, load_config, load_settings
from nq.model.spec import ModelSpec
from nq.preprocess.tokenizers.wordpiece import WordPieceTokenizer
from nq.records import Columns
from nq.training.pruning import prune
from tests import tiny_models
from tests.commands.test_train import curve
from tests.golden.families import make
from tests.inference.tiny_predictors import item_rows, items
from tests.model.test_pruning import WIDE
from tests.nq_records import simplified, write_lines

GOLDEN = Path(make.__file__).parent
SAMPLE = str(bundled_sample())
SHAPE = dataclasses.replace(WIDE, hidden_act="gelu_new")
SETTINGS = ModelSettings(
    WindowConfig(max_seq_length=32, doc_stride=8, max_query_length=8),
    DecisionConfig(long_threshold=0.25),
)
COUNTS = "heads=3,ffn=64,layers=2"
SIZES = ["--max-seq-length", "32", "--max-query-length", "8", "--doc-stride", "16"]


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


def logits(folder: Path) -> dict[str, Any]:
    rows = tiny_models.rows((16, 11, 6), 16)
    return {name: np.asarray(value) for name, value in load(folder)(rows).items()}


def convert(*arguments: object) -> int:
    return console(["convert", *map(str, arguments)])


def settings_of(folder: Path) -> Any:
    return json.loads((folder / "nq.json").read_bytes())


# --- the folder


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
    assert "heads kept, of 4 |" in card and "`nq tune` fits it again" in card
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


# --- engines and kinds of storage


def scores(folder: Path, profile: str) -> Columns:
    """Returns all logits of random windows under a profile."""
    rows = item_rows(items(6, 3))
    length = rows["input_ids"].shape[1]
    windows = WindowConfig(max_seq_length=length, max_query_length=4)
    model = ModelSpec(folder, windows, SETTINGS.decision)
    spec = ScorerSpec(model, Profile.parse(profile), 4, calibration={folder: rows})
    inside = rows["input_mask"] > 0
    columns = load_predictor(spec, AllLogits(length)).scores(rows)
    return {n: columns[n][inside] if n in LOGITS[:2] else columns[n] for n in LOGITS}


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["xla", "grappler+frozen+buckets", "buckets+openvino", "onnx"])
def test_every_engine_gives_equal_logits(pruned: Path, profile: str) -> None:
    expected = scores(pruned, "baseline")
    for name, value in scores(pruned, profile).items():
        np.testing.assert_allclose(value, expected[name], atol=1e-5)
        assert value.std() > 0.1


# --- other commands


@pytest.mark.extended
@pytest.mark.filterwarnings("ignore")
def test_transformers_loads_a_model_without_layers_and_units(source: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    counts, target = "ffn=64,layers=2,heads=4", tmp_path / "hf"
    assert convert(source, target, "--to", "hf", "--prune", counts, "--data", SAMPLE) == 0
    theirs = transformers.AutoModelForQuestionAnswering.from_pretrained(target)
    rows = tiny_models.rows((16, 11, 6), 16)
    real, ours = rows["input_mask"] > 0, logits(target)
    for name, value in make.logits(theirs.eval(), rows, "bert").items():
        np.testing.assert_allclose(value[real], ours[name][real], atol=1e-5)


@pytest.mark.extended
def test_a_pruned_model_is_trained_by_the_model_before_then_tuned_and_answers(
    source: Path,
    pruned: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    data = ["--data", SAMPLE, "--json"]
    recipe = ["--init", str(pruned), "--teacher", str(source), "--output", "student", *SIZES]
    recipe += ["--epochs", "6", "--batch-size", "16", "--learning-rate", "3e-3", "--dropout", "0"]
    recipe += ["--teacher-weight", "0.9", "--temperature", "1.5"]
    recipe += ["--tracking-uri", "sqlite:///runs.db"]
    assert console(["train", *data, *recipe]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] > 10
    assert load_config("student") == load_config(pruned)
    record = settings_of(pruned)["pruning"]
    assert settings_of(Path("student"))["pruning"] == record
    losses = list(curve("sqlite:///runs.db", name="soft_loss").values())
    assert sum(losses[-5:]) < sum(losses[:5])  # both exceed the entropy of the teacher
    assert console(["tune", *data, "--model", "student"]) == 0
    tuned = json.loads(capsys.readouterr().out)
    assert load_settings("student").decision.long_threshold == tuned["long_threshold"]
    assert settings_of(Path("student"))["pruning"] == record
    for profile in ("prune", "mixed+rescore"):
        answer = ["answer", *data, "--model", "student", "--no-track", "--profile", profile]
        assert console([*answer, "--output", profile]) == 0
        assert json.loads(capsys.readouterr().out)["examples"] == 40


# --- what is refused


def edited(source: Path, folder: Path, drop: Iterable[str] = (), **values: Any) -> Path:
    """Copies a model folder without some tensors and with other values in its config."""
    shutil.copytree(source, folder)
    tensors = load_file(folder / "model.safetensors")
    kept = {name: x for name, x in tensors.items() if not name.startswith(tuple(drop) or "?")}
    save_file(kept, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_bytes()) | values
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["source", "--prune", "heads=0", "--data", "d"], 2, "heads is 0: at least 1 must be kept"),
        (["source", "--prune", "ffn=100", "--data", "d"], 2, "ffn is 100: expected a multiple of"),
        (["source", "--prune", "head=3", "--data", "d"], 2, "'head=3' is not a count: expected"),
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
