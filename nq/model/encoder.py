"""The encoder of BERT and of related families as a Keras functional graph, for any Keras backend.

Devlin et al. 2019, https://arxiv.org/abs/1810.04805; layers are post-norm, those of ModernBERT
pre-norm.

Activations are two-dimensional, ``[B * L, hidden]`` for B windows of L pieces, from the embeddings
to the heads: compilers then fuse every matrix product with its bias, its activation and the
residual, which the two reshapes around a Dense on three dimensions prevent. Query, key and value
are one product. There is no global state: each layer gets its dtype policy as an argument.
"""

from dataclasses import dataclass, field
from typing import Any

import keras
from keras import ops

from nq.model import attention
from nq.model.config import ModelConfig


def _gelu(x: Any) -> Any:
    """Computes the exact form by erf, because ONNX lacks the erfc that Keras uses."""
    return 0.5 * x * (1.0 + ops.erf(x * 0.70710677))


ACTIVATIONS = {"gelu": _gelu, "gelu_new": ops.gelu, "relu": ops.relu}  # by default with tanh


class Embeddings(keras.layers.Layer):
    """Adds word, position and segment embeddings.

    Ids and segments are int ``[B, L]``, the result is ``[B * L, config.table_width]``. A segment
    table of one row is added to every piece; segments are then ignored.
    """

    def __init__(self, config: ModelConfig, initializer: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.config = config
        self.initializer = initializer

    def build(self, *shapes: Any) -> None:
        config = self.config
        self.word = self._table("word", config.vocab_size)
        if config.position_biased_input:
            self.position = self._table("position", config.max_position_embeddings)
        if config.type_vocab_size:
            self.segment = self._table("segment", config.type_vocab_size)

    def _table(self, name: str, rows: int) -> Any:
        return self.add_weight(
            shape=(rows, self.config.table_width),
            initializer=self.initializer,
            name=f"{name}_embeddings",
            autocast=False,  # autocast would convert the whole table for every batch
        )

    def _rows(self, table: Any, ids: Any) -> Any:
        return ops.cast(ops.take(table, ids, axis=0), self.compute_dtype)

    def call(self, input_ids: Any, segment_ids: Any) -> Any:
        config = self.config
        x = self._rows(self.word, input_ids)
        if config.type_vocab_size > 1:
            x = x + self._rows(self.segment, segment_ids)
        elif config.type_vocab_size:
            x = x + ops.cast(self.segment[0], self.compute_dtype)
        if config.position_biased_input:
            position = config.position_offset + ops.arange(ops.shape(input_ids)[1])
            x = x + self._rows(self.position, position)
        return ops.reshape(x, (-1, config.table_width))

    def compute_output_shape(self, input_ids_shape: Any, segment_ids_shape: Any) -> Any:
        return None, self.config.table_width  # JAX cannot infer it for windows of any length


class LayerNorm(keras.layers.Layer):
    """Computes (x - mean) / sqrt(variance + epsilon) * gamma + beta over the last axis, in float32.

    ``has_bias`` says whether there is a beta.

    OpenVINO recognizes this form, with the axis in a tuple, as one operation. It does not recognize
    the form of Keras, x * scale + (beta - mean * scale), which TensorFlow moreover rewrites to a
    kernel with another epsilon if gamma and beta are constants.
    """

    def __init__(self, epsilon: float, has_bias: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.epsilon = epsilon
        self.has_bias = has_bias

    def build(self, shape: Any) -> None:
        options = {"shape": (shape[-1],), "dtype": "float32", "autocast": False}
        self.gamma = self.add_weight(initializer="ones", name="gamma", **options)
        if self.has_bias:
            self.beta = self.add_weight(initializer="zeros", name="beta", **options)

    def call(self, x: Any) -> Any:
        x = ops.cast(x, "float32")
        centred = x - ops.mean(x, axis=(-1,), keepdims=True)
        variance = ops.mean(ops.square(centred), axis=(-1,), keepdims=True)
        scaled = centred / ops.sqrt(variance + self.epsilon) * self.gamma
        return ops.cast(scaled + self.beta if self.has_bias else scaled, self.compute_dtype)


@dataclass(frozen=True)
class Layers:
    """Creates the layers of a model, or returns existing ones, whose weights are then shared.

    Args:
        dtype: Keras dtype policy of layers that are created without one.
        initializer: Keras initializer of embedding tables and kernels.
        existing: layers by name.
    """

    dtype: Any
    initializer: Any
    existing: dict[str, Any] = field(default_factory=dict)

    def __call__(self, kind: type[keras.layers.Layer], name: str, *args: Any, **kwargs: Any) -> Any:
        if name not in self.existing:
            self.existing[name] = kind(*args, name=name, **{"dtype": self.dtype, **kwargs})
        return self.existing[name]

    def dense(self, units: int, name: str, **kwargs: Any) -> Any:
        return self(keras.layers.Dense, name, units, kernel_initializer=self.initializer, **kwargs)


def encoder(
    config: ModelConfig,
    inputs: dict[str, Any],
    layer: Layers,
    dropout: float = 0.0,
    seed: int = 0,
    full: bool = False,
) -> Any:
    """Connects the layers of the encoder.

    Args:
        inputs: symbolic ``input_ids``, ``input_mask`` and ``segment_ids``, each int ``[B, L]``.
        dropout: rate of the dropout layers; there are none if it is 0.
        full: whether no window has padding, so that attention needs no mask.

    Returns:
        ``[B * L, hidden]`` in the compute dtype.
    """

    def norm(name: str, x: Any) -> Any:
        return layer(LayerNorm, name, config.layer_norm_eps, config.has_biases)(x)

    def dense(units: int, name: str, activation: Any = None) -> Any:
        return layer.dense(units, name, use_bias=config.has_biases, activation=activation)

    def drop(x: Any, offset: int) -> Any:
        if not dropout:
            return x
        return layer(keras.layers.Dropout, f"dropout_{offset}", dropout, seed=seed + offset)(x)

    def add(name: str, *x: Any) -> Any:
        return layer(keras.layers.Add, name)(list(x))

    ids = inputs["input_ids"]
    initial = config, layer.initializer
    biases = [] if full else [layer(attention.MaskBias, "mask_bias")(inputs["input_mask"])]
    if config.relative_attention_num_buckets:
        biases.append(layer(attention.RelativeBias, "relative_bias", *initial)(ids))
    x = layer(Embeddings, "embeddings", *initial)(ids, inputs["segment_ids"])
    x = drop(norm("embeddings_norm", x), 1)
    if config.embedding_size:
        x = layer.dense(config.hidden_size, "embeddings_projection")(x)
    on_all, on_near = _attention_biases(config, layer, ids, biases)
    if config.relative_span:
        relative = layer(attention.RelativeEmbeddings, "relative_embeddings", *initial)(ids)
        is_normal = config.norm_rel_ebd == "layer_norm"
        relative = drop(norm("relative_norm", relative) if is_normal else relative, 2)
        places = layer(attention.RelativePlaces, "relative_places", config)(ids)
    function = ACTIVATIONS[config.hidden_act]
    is_pre_norm = config.is_pre_norm
    for i in range(config.num_hidden_layers):
        name = f"layer_{config.layer_set(i)}"
        attend = layer(
            attention.SelfAttention,
            f"{name}_attention",
            config.num_attention_heads,
            dropout,
            seed + 10 * config.layer_set(i) + 5,
            len(config.relative_terms),
        )
        qkv = dense(3 * config.attention_width, f"{name}_qkv")
        projected = {}
        if config.relative_span:
            project = qkv
            if not config.share_att_key:
                width = len(config.relative_terms) * config.attention_width
                project = dense(width, f"{name}_relative")
            projected = _projected(config, project(relative), places)
        given = norm(f"{name}_attention_norm", x) if is_pre_norm and i else x
        biases, rotation = on_near if i % config.global_attn_every_n_layers else on_all
        output = dense(config.hidden_size, f"{name}_attention_output")
        attended = output(attend(qkv(given), ids, biases, rotation, projected))
        x = add(f"{name}_attention_add", x, drop(attended, 10 * i + 6))
        if not is_pre_norm:
            x = norm(f"{name}_attention_norm", x)
        given = norm(f"{name}_output_norm", x) if is_pre_norm else x
        activation = None if config.is_gated else function
        inner = dense(config.intermediate_columns, f"{name}_intermediate", activation)(given)
        if config.is_gated:  # Shazeer 2020, https://arxiv.org/abs/2002.05202
            units, gate = ops.split(inner, 2, axis=-1)
            inner = function(units) * gate
        hidden = dense(config.hidden_size, f"{name}_output")(inner)
        x = add(f"{name}_output_add", x, drop(hidden, 10 * i + 7))
        if not is_pre_norm:
            x = norm(f"{name}_output_norm", x)
    return norm("final_norm", x) if is_pre_norm else x


def _attention_biases(
    config: ModelConfig, layer: Layers, ids: Any, biases: list[Any]
) -> tuple[Any, Any]:
    """Returns (biases, rotation) of the global attention and of the local attention."""
    if not config.global_rope_theta:
        return (biases, ()), (biases, ())
    near = layer(attention.LocalBias, "local_bias", config.local_attention // 2)(ids)
    for bias in biases:
        near = ops.minimum(near, bias)  # a sum of both would overflow in bfloat16
    size = config.positions, config.head_width
    rotation = layer(attention.Rotation, "rotation", *size, config.global_rope_theta)(ids)
    local = layer(attention.Rotation, "local_rotation", *size, config.local_rope_theta)(ids)
    return (biases, rotation), ([near], local)


def _projected(config: ModelConfig, relative: Any, places: Any) -> dict[str, Any]:
    """Returns the relative embeddings for ``SelfAttention``: keys for ``c2p``, queries for ``p2c``.

    They are projected, to query, key and value as the pieces, or to one part for each term.
    """
    of_term = dict(zip(("c2p", "p2c"), places, strict=True))
    parts = ("p2c", "c2p", "") if config.share_att_key else config.relative_terms
    tables = dict(zip(parts, ops.split(relative, len(parts), axis=-1), strict=True))
    return {term: (tables[term], of_term[term]) for term in config.relative_terms}
