"""The names of weights: ours, and those of the checkpoints that fill them.

A table maps each weight of ours to the checkpoint's tensors, so that one table both reads
and writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from nq.config import ModelConfig


@dataclass(frozen=True)
class Part:
    """One checkpoint tensor that fills a weight; ``transposed`` for linear layers."""

    name: str
    transposed: bool = False


Table = dict[str, list[Part]]


def _linear(name: str, *layers: str) -> Iterator[tuple[str, list[Part]]]:
    yield f"{name}/kernel", [Part(f"{layer}.weight", transposed=True) for layer in layers]
    yield f"{name}/bias", [Part(f"{layer}.bias") for layer in layers]


def _norm(name: str, layer: str) -> Iterator[tuple[str, list[Part]]]:
    yield f"{name}/gamma", [Part(f"{layer}.weight")]
    yield f"{name}/beta", [Part(f"{layer}.bias")]


def bert_table(config: ModelConfig) -> Table:
    """Our weights -> the Hugging Face tensors that fill them, joined along the last axis."""
    table: Table = {}
    for ours, theirs in (("word", "word"), ("position", "position"), ("segment", "token_type")):
        table[f"embeddings/{ours}_embeddings"] = [
            Part(f"bert.embeddings.{theirs}_embeddings.weight")
        ]
    table.update(_norm("embeddings_norm", "bert.embeddings.LayerNorm"))
    for i in range(config.num_hidden_layers):
        theirs = f"bert.encoder.layer.{i}"
        heads = [f"{theirs}.attention.self.{part}" for part in ("query", "key", "value")]
        table.update(_linear(f"layer_{i}_qkv", *heads))
        table.update(_linear(f"layer_{i}_attention_output", f"{theirs}.attention.output.dense"))
        table.update(_norm(f"layer_{i}_attention_norm", f"{theirs}.attention.output.LayerNorm"))
        table.update(_linear(f"layer_{i}_intermediate", f"{theirs}.intermediate.dense"))
        table.update(_linear(f"layer_{i}_output", f"{theirs}.output.dense"))
        table.update(_norm(f"layer_{i}_output_norm", f"{theirs}.output.LayerNorm"))
    table.update(_linear("pooler", "bert.pooler.dense"))
    table.update(_linear("span_output", "qa_outputs"))
    table.update(_linear("type_output", "type_outputs"))
    return table


def canonical_name(name: str) -> str:
    """A tensor's name with the spellings of older and head-less checkpoints evened out.

    >>> canonical_name("embeddings.LayerNorm.gamma")
    'bert.embeddings.LayerNorm.weight'
    """
    name = name.replace("LayerNorm.gamma", "LayerNorm.weight")
    name = name.replace("LayerNorm.beta", "LayerNorm.bias")
    if re.match(r"(embeddings|encoder|pooler)\.", name):
        name = f"bert.{name}"
    return name
