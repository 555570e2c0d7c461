"""Makes the folders beside this file: tiny random models of each family, saved by ``transformers``,
with the logits that ``transformers`` computes.

It needs transformers and PyTorch: ``python -m tests.golden.families.make``.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

WITHOUT_SEGMENTS = ("roberta", "xlm-roberta", "camembert", "distilbert", "mpnet", "modernbert")
LENGTH, N_PIECES, FIRST_OF_PAGE = 12, (12, 7), 4
COMMON = {"vocab_size": 40, "max_position_embeddings": 16}
BERT = {
    **COMMON,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
}
PADDED = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "type_vocab_size": 1}
SPECIAL = {f"{name}_token_id": 1 for name in ("pad", "bos", "eos", "cls", "sep")}
FACTORISED = {**BERT, "embedding_size": 4}
DEBERTA = {**BERT, "relative_attention": True, "layer_norm_eps": 1e-7}
V3 = {
    **DEBERTA,
    "type_vocab_size": 0,
    "position_biased_input": False,
    "pos_att_type": ["p2c", "c2p"],
    "position_buckets": 4,
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("bert", BERT),
    "bert-tanh": ("bert", {**BERT, "hidden_act": "gelu_new", "layer_norm_eps": 1e-5}),
    "roberta": ("roberta", {**BERT, **PADDED, "layer_norm_eps": 1e-5}),
    "xlm-roberta": ("xlm-roberta", {**BERT, **PADDED, "layer_norm_eps": 1e-5}),
    "distilbert": (
        "distilbert",
        {**COMMON, "dim": 8, "n_layers": 2, "n_heads": 2, "hidden_dim": 12},
    ),
    "albert": ("albert", {**FACTORISED, "num_hidden_layers": 3}),
    "albert-groups": ("albert", {**FACTORISED, "num_hidden_layers": 4, "num_hidden_groups": 2}),
    "electra": ("electra", FACTORISED),
    "electra-wide": ("electra", {**FACTORISED, "embedding_size": 8}),
    "mpnet": ("mpnet", {**BERT, "layer_norm_eps": 1e-5}),
    "camembert": ("camembert", {**BERT, **PADDED, "layer_norm_eps": 1e-5}),
    "deberta-v3": ("deberta-v2", V3),
    "deberta-v2": (
        "deberta-v2",
        {**DEBERTA, "pos_att_type": ["c2p"], "type_vocab_size": 2, "max_relative_positions": 6},
    ),
    "deberta-v2-own": (
        "deberta-v2",
        {**V3, "share_att_key": False, "norm_rel_ebd": "none", "type_vocab_size": 2},
    ),
    "deberta-v2-p2c": ("deberta-v2", {**V3, "share_att_key": False, "pos_att_type": ["p2c"]}),
    "modernbert": (
        "modernbert",
        {**BERT, **SPECIAL, "num_hidden_layers": 4, "local_attention": 4, "norm_eps": 1e-5},
    ),
    "modernbert-global": (
        "modernbert",
        {**BERT, **SPECIAL, "layer_types": ["full_attention"] * 2, "norm_eps": 1e-3},
    ),
    "rembert": ("rembert", {**BERT, "input_embedding_size": 4, "output_embedding_size": 6}),
}


def make(folder: Path, name: str, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """Writes a model folder; returns inputs, and the start and end logits of ``transformers``."""
    model_type, shape = FAMILIES[name]
    model = random_model(folder, model_type, shape, seed)
    inputs = windows(seed)
    return {**inputs, **logits(model, inputs, model_type)}


def random_model(
    folder: Path, model_type: str, shape: dict[str, Any], seed: int, deviation: float = 0.4
) -> Any:
    """Writes a model folder; returns its model of ``transformers``."""
    import torch
    from transformers import AutoConfig, AutoModelForQuestionAnswering

    model = AutoModelForQuestionAnswering.from_config(AutoConfig.for_model(model_type, **shape))
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in model.parameters():
            noise = deviation * torch.randn(value.shape, generator=draw)
            value.copy_(noise + (value == 1).float())
    model.eval()
    model.save_pretrained(folder)
    return model


def windows(
    seed: int, length: int = LENGTH, n_pieces: Sequence[int] = N_PIECES
) -> dict[str, np.ndarray[Any, Any]]:
    """Returns random inputs of a BERT-Joint model."""
    pos, n = np.arange(length)[None], np.asarray(n_pieces)[:, None]
    ids = np.random.default_rng(seed).integers(3, COMMON["vocab_size"], (len(n), length))
    mask = pos < n
    return {
        "input_ids": np.where(mask, ids, 1).astype(np.int32),
        "input_mask": mask.astype(np.int32),
        "segment_ids": (mask & (pos >= FIRST_OF_PAGE)).astype(np.int32),
    }


def logits(
    model: Any, inputs: dict[str, np.ndarray[Any, Any]], model_type: str
) -> dict[str, np.ndarray[Any, Any]]:
    """Returns the start and end logits that ``transformers`` computes."""
    import torch

    given = {
        "input_ids": torch.from_numpy(inputs["input_ids"]).long(),
        "attention_mask": torch.from_numpy(inputs["input_mask"]).long(),
    }
    if model_type not in WITHOUT_SEGMENTS:
        given["token_type_ids"] = torch.from_numpy(inputs["segment_ids"]).long()
    with torch.no_grad():
        outputs = model(**given)
    return {
        "start_logits": outputs.start_logits.numpy().astype(np.float32),
        "end_logits": outputs.end_logits.numpy().astype(np.float32),
    }


def main() -> None:
    """Makes all folders."""
    here = Path(__file__).parent
    for name in FAMILIES:
        np.savez_compressed(here / name / "reference.npz", **make(here / name, name))  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
