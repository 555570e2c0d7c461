"""A slow and simple BERT, window by window and head by head, in float64, as a reference."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from nq.model.config import ModelConfig
from nq.records import IntArray

Floats = np.ndarray[Any, np.dtype[np.float64]]

ACTIVATIONS = {
    "gelu": lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))),
    "gelu_new": lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "relu": lambda x: max(0.0, x),
}


class SlowBert:
    """Computes with Hugging Face's tensors as they are stored."""

    def __init__(self, tensors: Mapping[str, Any], config: ModelConfig) -> None:
        self.tensors = {name: np.asarray(value, np.float64) for name, value in tensors.items()}
        self.config = config

    def linear(self, name: str, x: Floats) -> Floats:
        product: Floats = x @ self.tensors[f"{name}.weight"].T
        return product + self.tensors[f"{name}.bias"]

    def norm(self, name: str, x: Floats) -> Floats:
        centred = x - x.mean(axis=-1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + self.config.layer_norm_eps)
        scaled: Floats = centred / deviation * self.tensors[f"{name}.weight"]
        return scaled + self.tensors[f"{name}.bias"]

    def encode(self, ids: IntArray, segments: IntArray, n_pieces: int) -> Floats:
        """Returns ``[n_pieces, hidden]`` for one window without its padding."""
        table = "bert.embeddings.{}_embeddings.weight"
        x = (
            self.tensors[table.format("word")][ids[:n_pieces]]
            + self.tensors[table.format("position")][:n_pieces]
            + self.tensors[table.format("token_type")][segments[:n_pieces]]
        )
        x = self.norm("bert.embeddings.LayerNorm", x)
        for i in range(self.config.num_hidden_layers):
            x = self.layer(f"bert.encoder.layer.{i}", x)
        return x

    def layer(self, name: str, x: Floats) -> Floats:
        query, key, value = (
            self.linear(f"{name}.attention.self.{part}", x) for part in ("query", "key", "value")
        )
        size = query.shape[1] // self.config.num_attention_heads
        heads = []
        for head in range(self.config.num_attention_heads):
            columns = slice(head * size, (head + 1) * size)
            scores = query[:, columns] @ key[:, columns].T / math.sqrt(size)
            scores += self.relative_bias(len(x), head)
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            heads.append(weights / weights.sum(axis=-1, keepdims=True) @ value[:, columns])
        attended = self.linear(f"{name}.attention.output.dense", np.concatenate(heads, axis=-1))
        x = self.norm(f"{name}.attention.output.LayerNorm", x + attended)
        inner = self.linear(f"{name}.intermediate.dense", x)
        inner = np.vectorize(ACTIVATIONS[self.config.hidden_act])(inner)
        return self.norm(f"{name}.output.LayerNorm", x + self.linear(f"{name}.output.dense", inner))

    def relative_bias(self, n_pieces: int, head: int) -> Floats:
        """Returns the bias ``[n_pieces, n_pieces]`` of each pair of query and key."""
        buckets = self.config.relative_attention_num_buckets
        bias = np.zeros((n_pieces, n_pieces))
        if buckets:
            table = self.tensors["bert.encoder.relative_attention_bias.weight"]
            for query in range(n_pieces):
                for key in range(n_pieces):
                    bias[query, key] = table[relative_bucket(key - query, buckets), head]
        return bias

    def logits(self, ids: IntArray, segments: IntArray, n_pieces: int) -> dict[str, Floats]:
        """Returns start and end logits ``[n_pieces]`` and type logits ``[5]`` of one window."""
        x = self.encode(ids, segments, n_pieces)
        spans = self.linear("qa_outputs", x)
        pooled = np.tanh(self.linear("bert.pooler.dense", x[0]))
        return {
            "start_logits": spans[:, 0],
            "end_logits": spans[:, 1],
            "type_logits": self.linear("type_outputs", pooled),
        }


def relative_bucket(distance: int, buckets: int, farthest: int = 128) -> int:
    """Returns the bucket of a key ``distance`` pieces after the query, as T5 defines it.

    A bucket of several distances ends where the next power is reached, in integers:
    ``(d / single) ** (half - single) >= (farthest / single) ** k``.
    """
    half = buckets // 2
    single, after = half // 2, half if distance > 0 else 0
    distance = abs(distance)
    if distance < single:
        return after + distance
    k, powers = 0, half - single
    while k + 1 < powers and (
        distance**powers * single ** (k + 1) >= farthest ** (k + 1) * single**powers
    ):
        k += 1
    return after + single + k
