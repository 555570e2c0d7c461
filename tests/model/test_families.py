"""Families of encoders: one encoder computes the logits of ``transformers`` from its folders."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from nq.config import ModelConfig
from nq.model import checkpoint, joint
from nq.model.checkpoint import LoadReport
from nq.model.families import FAMILIES, decode_config, encode_config
from nq.model.folder import load_config
from nq.records import FloatArray
from tests.golden.families import make

GOLDEN = Path(make.__file__).parent
HEADS = ("pooler/kernel", "pooler/bias", "type_output/kernel", "type_output/bias")
SPANS = ("start_logits", "end_logits")


def load(folder: Path) -> tuple[Any, LoadReport]:
    loaded = joint.load(folder)
    return loaded.model, loaded.report


def assert_same_spans(model: Any, reference: Any, atol: float = 1e-4) -> None:
    found = model({name: reference[name] for name in joint.INPUTS})
    real = reference["input_mask"] > 0
    for name in SPANS:
        expected = reference[name][real]
        assert np.ptp(expected) > 100 * atol
        np.testing.assert_allclose(np.asarray(found[name])[real], expected, atol=atol, rtol=0)
    assert not np.asarray(found["type_logits"]).any()


@pytest.fixture(params=sorted(make.FAMILIES))
def golden(request: pytest.FixtureRequest) -> Path:
    return GOLDEN / str(request.param)


def test_logits_equal_those_of_transformers(golden: Path) -> None:
    model, report = load(golden)
    assert report == LoadReport(HEADS)
    assert report.lacks_type_head
    assert report.warning() == (
        "no head for types in the checkpoint: null is decided by [CLS] alone"
    )
    assert_same_spans(model, np.load(golden / "reference.npz"), atol=1e-5)


@pytest.mark.slow
def test_a_model_with_a_type_head_is_loaded_as_saved(golden: Path, tmp_path: Path) -> None:
    model, _ = load(golden)
    config = load_config(golden)
    for weight in model.weights:
        if weight.path in HEADS:
            weight.assign(np.ones(weight.shape))
    checkpoint.save_weights(tmp_path, model, config)
    again, report = load(tmp_path)
    assert (report, load_config(tmp_path)) == (LoadReport(), config)
    for weight, other in zip(model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(weight.numpy(), other.numpy())
    theirs = load_file(golden / "model.safetensors")
    ours = load_file(tmp_path / "model.safetensors")
    extra = {name for name in ours if name not in theirs}
    assert all("pooler" in name or "type_outputs" in name for name in extra)
    for name, value in theirs.items():
        np.testing.assert_array_equal(ours[name], value)


def test_an_encoder_without_prefix_and_heads_is_loaded(golden: Path, tmp_path: Path) -> None:
    tensors = load_file(golden / "model.safetensors")
    bare = {n.split(".", 1)[1]: v for n, v in tensors.items() if not n.startswith("qa_outputs")}
    save_file(bare, tmp_path / "model.safetensors")
    shutil.copyfile(golden / "config.json", tmp_path / "config.json")
    _, report = load(tmp_path)
    spans = ("span_output/kernel", "span_output/bias")
    assert report == LoadReport((*spans, *HEADS))
    assert "left random: span_output/kernel, span_output/bias; no head" in report.warning()


@pytest.mark.slow
def test_a_sharded_folder_gives_the_same_logits(golden: Path, tmp_path: Path) -> None:
    tensors = load_file(golden / "model.safetensors")
    shards = {f"model-{i}-of-3.safetensors": sorted(tensors)[i::3] for i in range(3)}
    for file, names in shards.items():
        save_file({name: tensors[name] for name in names}, tmp_path / file)
    index = {"weight_map": {name: file for file, names in shards.items() for name in names}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    shutil.copyfile(golden / "config.json", tmp_path / "config.json")
    assert_same_spans(load(tmp_path)[0], np.load(golden / "reference.npz"))
    (tmp_path / "model-1-of-3.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"missing: model-1-of-3"):
        load(tmp_path)


@pytest.mark.slow
def test_padding_changes_nothing(golden: Path) -> None:
    model, _ = load(golden)
    rows = make.windows(3)
    wide = {name: np.pad(row, ((0, 0), (0, 2)), constant_values=0) for name, row in rows.items()}
    real = rows["input_mask"] > 0
    for name in SPANS:
        narrow: FloatArray = np.asarray(model(rows)[name])
        np.testing.assert_allclose(
            np.asarray(model(wide)[name])[:, : make.LENGTH][real], narrow[real], atol=1e-5
        )


@pytest.mark.parametrize("name", ["roberta", "distilbert", "mpnet"])
def test_families_without_segments_ignore_them(name: str) -> None:
    model, _ = load(GOLDEN / name)
    rows = make.windows(3)
    other = {**rows, "segment_ids": 0 * rows["segment_ids"]}
    np.testing.assert_array_equal(model(rows)["start_logits"], model(other)["start_logits"])


def test_shared_layers_are_stored_once() -> None:
    model, _ = load(GOLDEN / "albert-groups")
    kernels = [weight.path for weight in model.weights if weight.path.endswith("qkv/kernel")]
    assert kernels == ["layer_0_qkv/kernel", "layer_1_qkv/kernel"]


def test_the_position_offset_limits_the_window_length() -> None:
    config = load_config(GOLDEN / "roberta")
    assert (config.max_position_embeddings, config.positions) == (16, 14)
    with pytest.raises(ValueError, match="max_seq_length 15 is beyond the model's 14 positions"):
        joint.build(config, 15)


@pytest.mark.parametrize("model_type", sorted(FAMILIES))
def test_configs_are_decoded_as_encoded(model_type: str) -> None:
    plain = decode_config({"model_type": model_type})
    assert decode_config(encode_config(plain)) == plain
    other = dataclasses.replace(plain, hidden_size=24, num_attention_heads=3, num_hidden_layers=4)
    assert decode_config(encode_config(other)) == other
    assert "head_size" not in encode_config(other)
    pruned = dataclasses.replace(other, num_attention_heads=2, head_size=8)
    assert decode_config(encode_config(pruned)) == pruned != other
    assert encode_config(pruned)["head_size"] == 8


def test_the_width_of_a_head_is_a_setting_only_where_it_is_not_the_usual_one() -> None:
    usual = ModelConfig(hidden_size=24, num_attention_heads=3)
    assert dataclasses.replace(usual, head_size=8) == usual
    assert (usual.head_size, usual.head_width, usual.attention_width) == (0, 8, 24)
    pruned = dataclasses.replace(usual, num_attention_heads=5, head_size=8)
    assert (pruned.head_size, pruned.head_width, pruned.attention_width) == (8, 8, 40)
    assert dataclasses.replace(pruned, num_attention_heads=3) == usual
    assert "head_size" not in usual.to_dict() and pruned.to_dict()["head_size"] == 8


def test_the_keys_of_a_bert_config() -> None:
    assert list(encode_config(ModelConfig())) == [
        *("model_type", "architectures", "vocab_size", "hidden_size", "num_hidden_layers"),
        *("num_attention_heads", "intermediate_size", "max_position_embeddings"),
        *("type_vocab_size", "hidden_act", "layer_norm_eps", "initializer_range"),
    ]


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"model_type": "deberta"}, "model_type 'deberta' is not supported; known are bert, rob"),
        ({"model_type": ["bert"]}, "is not supported"),
        ({"model_type": "albert", "inner_group_num": 2}, "inner_group_num 2 is not supported"),
        ({"model_type": "distilbert", "dim": 0}, "dim is 0, expected a positive number"),
        ({"model_type": "roberta", "pad_token_id": -1}, "pad_token_id is -1, expected 0 or more"),
        ({"model_type": "roberta", "max_position_embeddings": 2}, "leaves no position"),
        ({"model_type": "mpnet", "relative_attention_num_buckets": 64}, "64 is not supported; exp"),
        ({"model_type": "albert", "num_hidden_groups": 13}, "num_hidden_groups 13 is more than"),
        ({"hidden_act": "silu"}, "unknown hidden_act 'silu'"),
        ({"head_size": 0}, "head_size is 0, expected a positive number"),
        ({"head_size": None}, "head_size is None, expected a positive number"),
    ],
)
def test_an_unsupported_config_is_an_error(values: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        decode_config(values)


def test_weights_of_another_family_are_an_error(tmp_path: Path) -> None:
    shutil.copyfile(GOLDEN / "bert" / "model.safetensors", tmp_path / "model.safetensors")
    shutil.copyfile(GOLDEN / "roberta" / "config.json", tmp_path / "config.json")
    with pytest.raises(ValueError, match=r"lacks 37 of the 37 tensors .* roberta\.embeddings"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("name", "key", "layers", "problem"),
    [
        ("bert", "num_hidden_layers", 3, "lacks 16 of the 53 tensors"),
        (
            "bert",
            "num_hidden_layers",
            1,
            r"holds bert\.encoder\.layer\.1\..* beyond the 1",
        ),
        ("distilbert", "n_layers", 1, "of a layer beyond the 1"),
        ("albert-groups", "num_hidden_groups", 1, "of a layer beyond the 1"),
    ],
)
def test_a_config_with_another_number_of_layers_is_an_error(
    tmp_path: Path, name: str, key: str, layers: int, problem: str
) -> None:
    shutil.copyfile(GOLDEN / name / "model.safetensors", tmp_path / "model.safetensors")
    values = json.loads((GOLDEN / name / "config.json").read_bytes()) | {key: layers}
    (tmp_path / "config.json").write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(ValueError, match=problem) as error:
        load(tmp_path)
    assert "\n" not in str(error.value)


# --- live, where transformers is installed


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(make.FAMILIES))
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.filterwarnings("ignore")
def test_live_logits_equal_those_of_transformers(name: str, seed: int, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    reference = make.make(tmp_path, name, seed)
    model, report = load(tmp_path)
    assert report == LoadReport(HEADS)
    assert_same_spans(model, reference, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(make.FAMILIES))
@pytest.mark.filterwarnings("ignore")
def test_live_transformers_loads_saved_weights(name: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model, report = load(GOLDEN / name)
    config = load_config(GOLDEN / name)
    checkpoint.save_weights(tmp_path, model, config, skip=report.missing)
    theirs, told = transformers.AutoModelForQuestionAnswering.from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert not any(told.values()), told
    reference = np.load(GOLDEN / name / "reference.npz")
    found = make.logits(theirs.eval(), dict(reference), config.model_type)
    for span in SPANS:
        real = reference["input_mask"] > 0
        np.testing.assert_allclose(found[span][real], reference[span][real], atol=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_live_relative_biases_equal_those_of_transformers_at_all_lengths(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    model_type, shape = make.FAMILIES["mpnet"]
    shape = {**shape, "max_position_embeddings": 514, "num_hidden_layers": 1}
    theirs = make.random_model(tmp_path, model_type, shape, 3)
    ours, _ = load(tmp_path)
    for length in (*range(2, 40), 63, 64, 65, 128, 129, 130, 200, 256, 384, 511, 512):
        rows = make.windows(length, length, (length, length // 2, 1))
        assert_same_spans(ours, {**rows, **make.logits(theirs, rows, model_type)}, atol=1e-5)
