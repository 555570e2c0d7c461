"""Families of encoders: one encoder computes the logits of ``transformers`` from its folders."""

import dataclasses
import math
import re
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from experiments.planning.models import weight_shapes
from nq.model import checkpoint, joint
from nq.model.checkpoint import LoadReport
from nq.model.config import ModelConfig
from nq.model.families import FAMILIES, decode_config, encode_config
from nq.model.folder import ModelFolder
from nq.records import MODEL_INPUTS
from tests.golden.families import make
from tests.support import tiny_models

GOLDEN = make.HERE
HEADS = ("pooler/kernel", "pooler/bias", "type_output/kernel", "type_output/bias")
SPANS = ("start_logits", "end_logits")


def assert_same_spans(model: Any, reference: Any, atol: float = 1e-4) -> None:
    logits = model({name: reference[name] for name in MODEL_INPUTS})
    real = reference["input_mask"] > 0
    for name in SPANS:
        expected = reference[name][real]
        assert np.ptp(expected) > 100 * atol
        np.testing.assert_allclose(np.asarray(logits[name])[real], expected, atol=atol, rtol=0)
    assert not np.asarray(logits["type_logits"]).any()


@pytest.mark.parametrize("name", make.FAMILIES)
def test_logits_equal_those_of_transformers_and_weights_are_saved_as_loaded(
    name: str, tmp_path: Path
) -> None:
    golden = GOLDEN / name
    loaded = joint.load_model(ModelFolder(golden))
    before = loaded.report.warning()
    assert loaded.report == LoadReport(HEADS) and before
    assert_same_spans(loaded.model, np.load(golden / "reference.npz"), atol=1e-5)
    checkpoint.save_weights(tmp_path, loaded.model, loaded.config)
    assert ModelFolder(tmp_path).config == loaded.config
    theirs, ours = (load_file(folder / "model.safetensors") for folder in (golden, tmp_path))
    extra = {name for name in ours if name not in theirs}
    assert all("pooler" in name or "type_outputs" in name for name in extra)
    np.testing.assert_equal({name: ours[name] for name in theirs}, theirs)
    heads = ("qa_outputs.", "head.", "classifier.")
    bare = {n.split(".", 1)[1]: v for n, v in theirs.items() if not n.startswith(heads)}
    save_file(bare, tmp_path / "model.safetensors")
    report = joint.load_model(ModelFolder(tmp_path)).report  # an encoder without prefix and heads
    span_head = [path for path in weight_shapes(loaded.config) if path.startswith("span_")]
    assert report == LoadReport((*span_head, *HEADS))
    for path in span_head:
        assert path in report.warning() and path not in before


@pytest.mark.parametrize("model_type", sorted(FAMILIES))
def test_configs_are_decoded_as_encoded(model_type: str) -> None:
    plain = decode_config({"model_type": model_type})
    assert decode_config(encode_config(plain)) == plain
    other = dataclasses.replace(plain, hidden_size=24, num_attention_heads=3, num_hidden_layers=4)
    assert decode_config(encode_config(other)) == other
    assert "head_size" not in encode_config(other)
    fewer = dataclasses.replace(other, num_attention_heads=2, head_size=8)
    assert decode_config(encode_config(fewer)) == fewer != other
    assert encode_config(fewer)["head_size"] == 8


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"model_type": "deberta"}, "model_type.*'deberta'"),
        ({"model_type": "albert", "inner_group_num": 2}, "inner_group_num.* 2"),
        ({"model_type": "deberta-v2", "conv_kernel_size": 3}, "conv_kernel_size.* 3"),
        ({"model_type": "deberta-v2", "embedding_size": 128}, "embedding_size.* 128.* 1536"),
        ({"model_type": "deberta-v2", "attention_head_size": 32}, "attention_head_size.* 32.* 64"),
        ({"model_type": "deberta-v2", "pos_att_type": ["p2p"]}, "pos_att_type.*'p2p'"),
        ({"model_type": "modernbert", "norm_bias": True}, "norm_bias.* True"),
        ({"model_type": "modernbert", "rope_scaling": {"factor": 2}}, "rope_type"),
        ({"hidden_act": "silu"}, "hidden_act.*'silu'"),
        ({"hidden_size": 0}, "hidden_size.* 0"),
    ],
)
def test_an_unsupported_config_is_an_error(values: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        decode_config(values)


@pytest.mark.parametrize("model_type", sorted(FAMILIES))
def test_a_number_that_is_absurd_is_an_error(model_type: str) -> None:
    for name, key in FAMILIES[model_type].keys.items():
        if type(getattr(ModelConfig(), name)) in (int, float):
            for number in (1e30, 10**30, -(10**40), 10**400, math.nan, math.inf):
                with pytest.raises(ValueError, match=rf"{name}\b|{key}\b"):
                    decode_config({"model_type": model_type, key: number})


def test_shapes_are_those_of_the_model() -> None:
    configs = [ModelFolder(GOLDEN / family).config for family in make.FAMILIES]
    for config in (*configs, tiny_models.FEWER_HEADS):
        built = {weight.path: tuple(weight.shape) for weight in joint.build(config).weights}
        assert weight_shapes(config) == built


@pytest.mark.slow
@pytest.mark.parametrize("shape", [tiny_models.DEBERTA, tiny_models.MODERNBERT])
def test_training_changes_all_weights_and_lowers_the_loss(shape: ModelConfig) -> None:
    model = joint.build(shape, dropout=0.1, seed=1)
    rows = tiny_models.rows((16, 11, 6, 16), 16)
    targets = {name: np.arange(4) for name in ("start_logits", "end_logits", "type_logits")}
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(0.02), loss=dict.fromkeys(targets, loss))
    before = [weight.numpy() for weight in model.weights]
    first, *others = model.fit(rows, targets, 4, epochs=30, verbose=0).history["loss"]
    assert min(others) < 0.5 * first
    for weight, value in zip(model.trainable_weights, before, strict=True):
        assert not np.array_equal(weight.numpy(), value), weight.path


# --- extractive readers of the Hugging Face hub: their configurations, with few columns and layers

SMALL = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "intermediate_size": 24,
}
ROBERTA = {
    **SMALL,
    **{"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2},
    "type_vocab_size": 1,
    "max_position_embeddings": 514,
    "layer_norm_eps": 1e-5,
}
READERS: dict[str, dict[str, Any]] = {
    "bert": SMALL,
    "electra": {**SMALL, "embedding_size": 16},
    **dict.fromkeys(("roberta", "xlm-roberta", "camembert"), ROBERTA),
    "distilbert": {"vocab_size": 40, "dim": 16, "n_layers": 4, "n_heads": 2, "hidden_dim": 24},
    "deberta-v2": {
        **SMALL,
        "layer_norm_eps": 1e-7,
        "max_relative_positions": -1,
        "norm_rel_ebd": "layer_norm",
        "pos_att_type": "p2c|c2p",
        "position_biased_input": False,
        "position_buckets": 256,
        "relative_attention": True,
        "share_att_key": True,
        "type_vocab_size": 0,
    },
    "modernbert": {
        **SMALL,
        **{f"{name}_token_id": 1 for name in ("pad", "bos", "eos", "cls", "sep")},
        "global_attn_every_n_layers": 3,
        "global_rope_theta": 160000.0,
        "local_attention": 128,
        "local_rope_theta": 10000.0,
    },
}
"""Of the readers that the documentation names, by ``model_type``."""
DOCUMENT = Path(__file__).parents[2] / "docs" / "checkpoints.md"


@pytest.mark.peers
@pytest.mark.extended
@pytest.mark.parametrize("model_type", READERS)
@pytest.mark.filterwarnings("ignore")
def test_readers_have_the_logits_of_transformers(model_type: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from transformers import AutoConfig

    config = AutoConfig.for_model(model_type, **READERS[model_type])
    theirs = make.random_model(tmp_path, config, seed=1, deviation=0.2)
    rows = make.windows(2, 200, (200, 133, 9))  # beyond local attention and single buckets
    reference = {**rows, **make.logits(theirs, rows)}
    assert_same_spans(joint.load_model(ModelFolder(tmp_path)).model, reference, atol=1e-5)


def test_the_table_names_what_is_read() -> None:
    text = DOCUMENT.read_text("utf-8")
    read = set(re.findall(r"^\| `(\S+)` \| `\S+/.* \|$", text, re.MULTILINE))
    (other,) = re.findall(r"^Not read: `\S+` \(`(\S+)`\)", text, re.MULTILINE)
    assert READERS.keys() == read <= FAMILIES.keys() and other not in FAMILIES
