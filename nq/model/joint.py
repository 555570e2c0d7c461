"""BERT-Joint: an encoder with heads for the start, the end and the type of the answer.

Alberti, Lee and Collins 2019, https://arxiv.org/abs/1901.08634.

A dual encoder has no heads: question and blocks are encoded apart, and compared by the cosine of
their means. A joint encoder sees question and page together; a sentence encoder (Reimers and
Gurevych 2019, https://arxiv.org/abs/1908.10084) encodes each text by itself, as ``[CLS] text
[SEP]``, and the mean of the outputs, or the output of [CLS], stands for the text. Such a model
ranks blocks without any training on questions of this kind, and the vector of a block serves all
questions. The network takes one text in a row, and gives its vector. A window of a page holds
several texts, the question first (``nq.preprocess.features``):

    [CLS] query: question [SEP] [CLS] passage: The flow … [SEP] [CLS] passage: He … [SEP] 0 0
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
from keras import ops

from nq.config import WindowConfig
from nq.model import checkpoint
from nq.model.config import CLS, ModelConfig
from nq.model.encoder import ACTIVATIONS, LayerNorm, Layers, encoder
from nq.model.folder import ModelFolder
from nq.records import MODEL_INPUTS, VECTORS, AnswerType

SMALLEST_NORM = 1e-6


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A Keras model that was filled from a folder.

    ``windows`` are settings for a new folder; by default it has those of the old one.
    """

    files: ModelFolder
    config: ModelConfig
    model: keras.Model
    report: checkpoint.LoadReport
    windows: WindowConfig | None = None

    @property
    def folder(self) -> Path:
        return self.files.path


def load_model(
    files: ModelFolder, dtype: str = "float32", config: ModelConfig | None = None
) -> LoadedModel:
    """Loads the model of a folder; ``config`` may have more rows of word embeddings than it."""
    config = config or files.config
    tensors = files.tensors()
    tensors.table(config)  # raises before anything of its size is built
    model = build(config, dtype=dtype, initialize=False)
    return LoadedModel(files, config, model, checkpoint.fill(model, tensors, config))


class Unflatten(keras.layers.Layer):
    """Makes ``[B, L, n]`` of ``[B * L, n]`` and of ``ids``, ``[B, L]``, for their length alone."""

    def call(self, x: Any, ids: Any) -> Any:
        return ops.reshape(x, (-1, ops.shape(ids)[1], x.shape[-1]))

    def compute_output_shape(self, x_shape: Any, ids_shape: Any) -> Any:
        return *ids_shape, x_shape[-1]


class Column(keras.layers.Layer):
    """Selects one index of axis 1 or -1 of ``[B, L, n]``, so that the axis is removed."""

    def __init__(self, index: int, axis: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.index = index
        self.axis = axis

    def call(self, x: Any) -> Any:
        return x[..., self.index] if self.axis == -1 else x[:, self.index]


class TextVector(keras.layers.Layer):
    """Pools the outputs of the encoder to a vector of length 1 for each text.

    It is float32 ``[B, hidden]``, from outputs ``x`` ``[B * L, hidden]``, ids int ``[B, L]`` for
    their length alone, and a mask int ``[B, L]`` unless no text has padding.
    """

    def __init__(self, config: ModelConfig, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.config = config

    def call(self, x: Any, ids: Any, mask: Any = None) -> Any:
        x = ops.reshape(ops.cast(x, "float32"), (-1, ops.shape(ids)[1], x.shape[-1]))
        if self.config.pooling == CLS:
            pooled = x[:, 0]
        elif mask is None:
            pooled = ops.sum(x, axis=1)
        else:
            pooled = ops.sum(x * ops.cast(mask, "float32")[..., None], axis=1)
        norm = ops.sqrt(ops.sum(ops.square(pooled), axis=-1, keepdims=True))
        return pooled / ops.maximum(norm, SMALLEST_NORM)

    def compute_output_shape(self, x_shape: Any, ids_shape: Any, mask_shape: Any = None) -> Any:
        return ids_shape[0], x_shape[-1]


def build(
    config: ModelConfig,
    dtype: str = "float32",
    dropout: float = 0.0,
    seed: int = 0,
    initialize: bool = True,
) -> keras.Model:
    """Builds a BERT-Joint model, or a dual encoder, for windows of any length in any batch.

    Args:
        dtype: Keras dtype policy. With ``mixed_bfloat16`` and ``mixed_float16`` weights are
            float32, with ``bfloat16`` and ``float16`` they have that type too.
        dropout: rate of the dropout layers; there are none if it is 0.
        seed: of the initial weights and of dropout.
        initialize: whether kernels and embedding tables are drawn at random. Otherwise they are 0,
            which is faster if a checkpoint fills them.

    Returns:
        A model from ``MODEL_INPUTS`` (int32 ``[B, L]``) to ``start_logits`` and ``end_logits``
        (``[B, L]``) and ``type_logits`` (``[B, 5]``), of a dual encoder to ``vectors`` (``[B,
        hidden]``). They are always float32.
    """
    initializer = keras.initializers.Zeros()
    if initialize:
        initializer = keras.initializers.TruncatedNormal(
            stddev=config.initializer_range, seed=keras.random.SeedGenerator(seed)
        )
    layer = Layers(keras.DTypePolicy(dtype), initializer)
    return connect_layers(config, layer, dropout, seed)


def span_reader(model: keras.Model) -> keras.Model:
    """Returns a model with the same layers but those that only types need."""
    spans = {name: model.output[name] for name in ("start_logits", "end_logits")}
    return keras.Model(model.input, spans, name="span_reader")


def for_full_windows(model: keras.Model, config: ModelConfig) -> keras.Model:
    """Returns a model with the same layers without the attention mask, for full windows only.

    The mask takes 8 % of the encoder's time.
    """
    existing = {layer.name: layer for layer in model.layers}
    return connect_layers(config, Layers(None, None, existing), full=True)


def connect_layers(
    config: ModelConfig, layer: Layers, dropout: float = 0.0, seed: int = 0, full: bool = False
) -> keras.Model:
    """Connects layers as ``build`` does; if all windows are full, there is no ``input_mask``."""
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in MODEL_INPUTS}
    if full:
        del inputs["input_mask"]
    ids = inputs["input_ids"]
    x = encoder(config, inputs, layer, dropout, seed, full)
    if config.is_dual_encoder:
        pool = layer(TextVector, VECTORS, config, dtype="float32")
        vectors = pool(x, ids) if full else pool(x, ids, inputs["input_mask"])
        return keras.Model(inputs, {VECTORS: vectors}, name="dual_encoder")
    read = x
    if config.has_span_transform:
        transform = layer.dense(
            config.hidden_size, "span_transform", activation=ACTIVATIONS["gelu"], use_bias=False
        )
        norm = layer(LayerNorm, "span_transform_norm", config.layer_norm_eps, False)
        read = norm(transform(x))
    spans = layer.dense(2, "span_output", dtype="float32")(read)
    spans = layer(Unflatten, "span_logits", dtype="float32")(spans, ids)
    start = layer(Column, "start_logits", 0, -1, dtype="float32")(spans)
    end = layer(Column, "end_logits", 1, -1, dtype="float32")(spans)
    windows = layer(Unflatten, "windows")(x, ids)
    first = layer(Column, "first_piece", 0, 1)(windows)
    pooled = layer.dense(config.hidden_size, "pooler", activation="tanh")(first)
    types = layer.dense(len(AnswerType), "type_output", dtype="float32")(pooled)
    outputs = {"start_logits": start, "end_logits": end, "type_logits": types}
    return keras.Model(inputs, outputs, name="bert_joint")
