"""A tiny vocabulary, a tiny model with weights to reckon with, and random tiny windows."""

from __future__ import annotations

import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nq.config import ModelConfig
from nq.formats.tfrecord import encode_records
from nq.preprocess.tokenizers.base import MARKERS
from nq.records import Features, FloatArray, IntArray, Source

WORDS = ("the", "lake", "is", "deep", "old", "##s")
LETTERS = string.ascii_lowercase + string.digits
VOCABULARY = (
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]"),
    *MARKERS,
    *LETTERS,
    *(f"##{letter}" for letter in LETTERS),
    *WORDS,
)
SHAPE = ModelConfig(
    vocab_size=len(VOCABULARY),
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=32,
)
CLS, SEP = VOCABULARY.index("[CLS]"), VOCABULARY.index("[SEP]")
N_QUERY = 4


def tensors(shape: ModelConfig = SHAPE, seed: int = 0) -> dict[str, FloatArray]:
    """Random weights under the Hugging Face names; activations vary as little as BERT's do."""
    draw = np.random.default_rng(seed)
    hidden, inner = shape.hidden_size, shape.intermediate_size

    def normal(*size: int, scale: float = 0.5) -> FloatArray:
        return draw.normal(0, scale, size).astype(np.float32)

    def linear(name: str, to: int, of: int) -> dict[str, FloatArray]:
        return {f"{name}.weight": normal(to, of), f"{name}.bias": normal(to, scale=0.1)}

    def norm(name: str) -> dict[str, FloatArray]:
        return {f"{name}.weight": 1 + normal(hidden, scale=0.1), f"{name}.bias": normal(hidden)}

    embeddings = "bert.embeddings"
    found = {
        f"{embeddings}.word_embeddings.weight": normal(shape.vocab_size, hidden, scale=0.03),
        f"{embeddings}.position_embeddings.weight": normal(
            shape.max_position_embeddings, hidden, scale=0.01
        ),
        f"{embeddings}.token_type_embeddings.weight": normal(
            shape.type_vocab_size, hidden, scale=0.01
        ),
        **norm(f"{embeddings}.LayerNorm"),
    }
    for i in range(shape.num_hidden_layers):
        layer = f"bert.encoder.layer.{i}"
        for part in ("query", "key", "value"):
            found |= linear(f"{layer}.attention.self.{part}", hidden, hidden)
        found |= linear(f"{layer}.attention.output.dense", hidden, hidden)
        found |= norm(f"{layer}.attention.output.LayerNorm")
        found |= linear(f"{layer}.intermediate.dense", inner, hidden)
        found |= linear(f"{layer}.output.dense", hidden, inner)
        found |= norm(f"{layer}.output.LayerNorm")
    found |= linear("bert.pooler.dense", hidden, hidden)
    found |= linear("qa_outputs", 2, hidden)
    found |= linear("type_outputs", 5, hidden)
    return found


def model(
    length: int | None = None,
    dtype: str = "float32",
    shape: ModelConfig = SHAPE,
    **options: Any,
) -> Any:
    """A tiny BERT-Joint with the weights of ``tensors``."""
    from nq.model import checkpoint, joint, names

    built = joint.build(shape, length, dtype, **options)
    report = checkpoint.fill(built, tensors(shape), names.table(shape))
    assert report == checkpoint.LoadReport()
    return built


def rows(n_pieces: Sequence[int], length: int, seed: int = 0) -> dict[str, IntArray]:
    """Inputs of the model: windows of so many pieces, padded to ``length``."""
    draw = np.random.default_rng(seed)
    pieces, pos = np.asarray(n_pieces)[:, None], np.arange(length)[None]
    mask = pos < pieces
    ids = np.where(mask, draw.integers(len(MARKERS) + 4, len(VOCABULARY), mask.shape), 0)
    ids[mask & (pos == 0)] = CLS
    ids[mask & ((pos == N_QUERY - 1) | (pos == pieces - 1))] = SEP
    segments = mask & (pos >= N_QUERY)
    columns = {"input_ids": ids, "input_mask": mask, "segment_ids": segments}
    return {name: column.astype(np.int32) for name, column in columns.items()}


def features(
    example_id: int, n_windows: int, length: int, seed: int = 0, pieces: int | None = None
) -> Features:
    """Windows of an example: some positions are text, in order; the rest map to -1."""
    draw = np.random.default_rng([seed, example_id])
    n_pieces = np.full(n_windows, pieces) if pieces else draw.integers(6, length + 1, n_windows)
    inputs = rows(n_pieces.tolist(), length, seed=seed + example_id)
    text = (inputs["segment_ids"] > 0) & (draw.random((n_windows, length)) < 0.8)
    text &= np.arange(length) < n_pieces[:, None] - 1
    doc = np.where(text, np.cumsum(text, axis=1) + draw.integers(0, 50, (n_windows, 1)), -1)
    return Features(
        example_id, **inputs, token_map=doc, windows=np.arange(n_windows), n_windows=n_windows
    )


def write_shard(path: Path, examples: Sequence[tuple[Source, Features]]) -> Path:
    """The windows of ``examples``, one after the other, as a file of TFRecords."""
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(path)) as writer:
        for source, found in examples:
            for record in encode_records(found, source):
                writer.write(record)
    return path
