"""A tiny vocabulary, a tiny model with known weights, and random tiny windows."""

import dataclasses
import string
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nq.config import WindowConfig
from nq.model.config import ModelConfig
from nq.model.families import decode_config
from nq.model.names import BERT
from nq.model.tensors import CheckpointTensors
from nq.preprocess.tokenizers.base import MARKERS
from nq.records import Features, FloatArray, IntArray
from nq.training.windows import TrainingWindows

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
RELATIVE = dataclasses.replace(SHAPE, relative_attention_num_buckets=8)
"""With attention biases by distance; most distances share a bucket with others."""
FEWER_HEADS = dataclasses.replace(
    RELATIVE, num_attention_heads=3, head_size=2, intermediate_size=64
)
"""With fewer columns in all heads together than in the hidden layers."""
MPNET_VOCABULARY = (
    *("<s>", "<pad>", "</s>", "[UNK]", "[PAD]", "[CLS]", "[SEP]"),
    *("lake", "moon", "##ing", "the", "of"),
    *reversed(LETTERS),
    *(f"##{letter}" for letter in reversed(LETTERS)),
)
MPNET = dataclasses.replace(
    SHAPE,
    model_type="mpnet",
    vocab_size=len(MPNET_VOCABULARY) + len(MARKERS),
    type_vocab_size=0,
    position_offset=2,
    relative_attention_num_buckets=32,
    initializer_range=0.4,
)
DEBERTA = dataclasses.replace(
    SHAPE,
    model_type="deberta-v2",
    type_vocab_size=0,
    position_biased_input=False,
    relative_attention=True,
    pos_att_type="c2p|p2c",
    position_buckets=8,
    share_att_key=True,
    norm_rel_ebd="layer_norm",
    initializer_range=0.4,
)
MODERNBERT = dataclasses.replace(
    decode_config({"model_type": "modernbert"}),
    vocab_size=len(VOCABULARY),
    hidden_size=8,
    num_hidden_layers=4,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=32,
    local_attention=6,
    layer_norm_eps=1e-2,  # so that rounding matters as little as among more columns
    initializer_range=0.4,
)
CLS, SEP = VOCABULARY.index("[CLS]"), VOCABULARY.index("[SEP]")
N_QUERY = 4


def write_vocab(path: Path, pieces: Iterable[str] = VOCABULARY) -> Path:
    """Writes a vocabulary, one piece a line."""
    path.write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
    return path


def tensors(shape: ModelConfig = SHAPE, seed: int = 0) -> dict[str, FloatArray]:
    """Returns random weights with Hugging Face's names; activations vary as little as BERT's."""
    draw = np.random.default_rng(seed)
    hidden, inner = shape.hidden_size, shape.intermediate_size
    attention = shape.attention_width

    def normal(*size: int, scale: float = 0.5) -> FloatArray:
        return draw.normal(0, scale, size).astype(np.float32)

    def linear(name: str, to: int, of: int) -> dict[str, FloatArray]:
        return {f"{name}.weight": normal(to, of), f"{name}.bias": normal(to, scale=0.1)}

    def norm(name: str) -> dict[str, FloatArray]:
        return {f"{name}.weight": 1 + normal(hidden, scale=0.1), f"{name}.bias": normal(hidden)}

    embeddings = "bert.embeddings"
    weights = {
        f"{embeddings}.word_embeddings.weight": normal(shape.vocab_size, hidden, scale=0.03),
        f"{embeddings}.position_embeddings.weight": normal(
            shape.max_position_embeddings, hidden, scale=0.01
        ),
        f"{embeddings}.token_type_embeddings.weight": normal(
            shape.type_vocab_size, hidden, scale=0.01
        ),
        **norm(f"{embeddings}.LayerNorm"),
    }
    if shape.relative_attention_num_buckets:
        size = shape.relative_attention_num_buckets, shape.num_attention_heads
        weights["bert.encoder.relative_attention_bias.weight"] = normal(*size)
    for i in range(shape.num_hidden_layers):
        layer = f"bert.encoder.layer.{i}"
        for part in ("query", "key", "value"):
            weights |= linear(f"{layer}.attention.self.{part}", attention, hidden)
        weights |= linear(f"{layer}.attention.output.dense", hidden, attention)
        weights |= norm(f"{layer}.attention.output.LayerNorm")
        weights |= linear(f"{layer}.intermediate.dense", inner, hidden)
        weights |= linear(f"{layer}.output.dense", hidden, inner)
        weights |= norm(f"{layer}.output.LayerNorm")
    weights |= linear("bert.pooler.dense", hidden, hidden)
    weights |= linear("qa_outputs", 2, hidden)
    weights |= linear("type_outputs", 5, hidden)
    return weights


def model(dtype: str = "float32", shape: ModelConfig = SHAPE, **options: Any) -> Any:
    """Returns a tiny BERT-Joint with the weights of ``tensors``, of another family with others."""
    from nq.model import checkpoint, joint

    if shape.model_type != "bert":
        return joint.build(shape, dtype, seed=5, **options)
    built = joint.build(shape, dtype, **options)
    report = checkpoint.fill(built, stored(tensors(shape)), shape)
    assert report == checkpoint.LoadReport()
    return built


def save(folder: Path, model: Any, shape: ModelConfig, vocab: Path, **windows: Any) -> Path:
    """Writes a complete model folder."""
    from nq.model import checkpoint
    from nq.model.folder import ModelSettings
    from nq.preprocess.tokenizers.load import load_tokenizer

    settings = ModelSettings(WindowConfig(max_query_length=8, **windows))
    card = "# A tiny model for tests\n"
    checkpoint.save(folder, model, shape, load_tokenizer(vocab), settings, card)
    return folder


def stored(tensors: Mapping[str, FloatArray]) -> CheckpointTensors:
    """Returns tensors in memory as those of a checkpoint with Hugging Face's names."""
    shapes = {name: value.shape for name, value in tensors.items()}
    return CheckpointTensors(BERT, shapes, tensors.__getitem__)


def rows(n_pieces: Sequence[int], length: int, seed: int = 0) -> dict[str, IntArray]:
    """Returns inputs of the model: windows of ``n_pieces`` pieces, padded to ``length``."""
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
    """Returns windows of an example in which some positions are text, in order."""
    draw = np.random.default_rng([seed, example_id])
    n_pieces = np.full(n_windows, pieces) if pieces else draw.integers(6, length + 1, n_windows)
    inputs = rows(n_pieces.tolist(), length, seed=seed + example_id)
    text = (inputs["segment_ids"] > 0) & (draw.random((n_windows, length)) < 0.8)
    text &= np.arange(length) < n_pieces[:, None] - 1
    doc = np.where(text, np.cumsum(text, axis=1) + draw.integers(0, 50, (n_windows, 1)), -1)
    numbers = np.arange(n_windows)
    return Features(
        example_id, **inputs, token_map=doc, window_numbers=numbers, n_windows=n_windows
    )


def training_windows(n: int, length: int, seed: int = 0) -> TrainingWindows:
    """Returns random windows with random targets, some of them padded."""
    draw = np.random.default_rng(seed)
    n_pieces = draw.integers(6, length + 1, n)
    targets = {
        "start_positions": draw.integers(0, n_pieces),
        "end_positions": draw.integers(0, n_pieces),
        "answer_types": draw.integers(0, 5, n),
    }
    return TrainingWindows.from_columns({**rows(n_pieces.tolist(), length, seed), **targets})
