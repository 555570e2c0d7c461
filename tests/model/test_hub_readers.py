"""Extractive readers of the Hugging Face hub: their configurations, with few columns and layers."""

import re
from pathlib import Path
from typing import Any

import pytest

from nq.model import joint
from nq.model.families import FAMILIES
from tests.golden.families import make
from tests.model.test_families import assert_same_spans

SMALL = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "intermediate_size": 24,
}
ROBERTA = {
    **SMALL,
    **make.PADDED,
    "model_type": "roberta",
    "max_position_embeddings": 514,
    "layer_norm_eps": 1e-5,
}
DISTILBERT = {
    "model_type": "distilbert",
    **{"vocab_size": 40, "dim": 16, "n_layers": 4, "n_heads": 2, "hidden_dim": 24},
}
DEBERTA_V3 = {
    **SMALL,
    "model_type": "deberta-v2",
    "layer_norm_eps": 1e-7,
    "max_relative_positions": -1,
    "norm_rel_ebd": "layer_norm",
    "pos_att_type": "p2c|c2p",
    "position_biased_input": False,
    "position_buckets": 256,
    "relative_attention": True,
    "share_att_key": True,
    "type_vocab_size": 0,
}
READERS: dict[str, dict[str, Any]] = {
    "deepset/roberta-base-squad2": ROBERTA,
    "deepset/tinyroberta-squad2": ROBERTA,
    "deepset/deberta-v3-base-squad2": DEBERTA_V3,
    "deepset/deberta-v3-large-squad2": DEBERTA_V3,
    "timpal0l/mdeberta-v3-base-squad2": DEBERTA_V3,
    "distilbert/distilbert-base-cased-distilled-squad": DISTILBERT,
    "distilbert/distilbert-base-uncased-distilled-squad": DISTILBERT,
    "deepset/bert-large-uncased-whole-word-masking-squad2": SMALL,
    "google-bert/bert-large-uncased-whole-word-masking-finetuned-squad": SMALL,
    "google-bert/bert-large-cased-whole-word-masking-finetuned-squad": SMALL,
    "deepset/minilm-uncased-squad2": SMALL,
    "deepset/electra-base-squad2": {**SMALL, "model_type": "electra", "embedding_size": 16},
    "deepset/xlm-roberta-base-squad2": {**ROBERTA, "model_type": "xlm-roberta"},
    "deepset/xlm-roberta-large-squad2": {**ROBERTA, "model_type": "xlm-roberta"},
    "etalab-ia/camembert-base-squadFR-fquad-piaf": {**ROBERTA, "model_type": "camembert"},
    "rankyx/ModernBERT-QnA-base-squad": {
        **SMALL,
        **make.SPECIAL,
        "model_type": "modernbert",
        "global_attn_every_n_layers": 3,
        "global_rope_theta": 160000.0,
        "local_attention": 128,
        "local_rope_theta": 10000.0,
    },
    "csarron/mobilebert-uncased-squad-v2": {"model_type": "mobilebert"},
}
DOCUMENT = Path(__file__).parents[2] / "docs" / "checkpoints.md"


@pytest.mark.extended
@pytest.mark.parametrize("name", READERS)
@pytest.mark.filterwarnings("ignore")
def test_readers_have_the_logits_of_transformers(name: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    shape = {"model_type": "bert", **READERS[name]}
    model_type = shape.pop("model_type")
    if model_type not in FAMILIES:
        return
    theirs = make.random_model(tmp_path, model_type, shape, seed=1, deviation=0.2)
    rows = make.windows(2, 200, (200, 133, 9))  # beyond local attention and single buckets
    reference = {**rows, **make.logits(theirs, rows, model_type)}
    assert_same_spans(joint.load_model(tmp_path).model, reference, atol=1e-5)


def test_the_table_names_what_is_read() -> None:
    text = DOCUMENT.read_text("utf-8")
    rows = re.findall(r"^\| `(\S+)` \| (`\S+/.*) \|$", text, re.MULTILINE)
    read = [(name, kind) for kind, names in rows for name in re.findall(r"`(\S+)`", names)]
    others = re.findall(r"^Not read: `(\S+)` \(`(\S+)`\)", text, re.MULTILINE)
    families = {name: shape.get("model_type", "bert") for name, shape in READERS.items()}
    assert sorted(read + others) == sorted(families.items())
    assert {kind for _, kind in read} <= set(FAMILIES)
    assert not {kind for _, kind in others} & set(FAMILIES)
