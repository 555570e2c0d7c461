"""The weights of a model: their shapes, and the tensors of a checkpoint that fill them.

A ``Layout`` holds the names that one kind of checkpoint uses; ``weight_table`` derives from it the
tensors of each weight. The same table serves reading and writing.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nq.model.config import ModelConfig
from nq.records import AnswerType

ANSWER_HEADS = ("span_output", "type_output")
HEADS = ("pooler", "span_transform", *ANSWER_HEADS)
"""Modules that a checkpoint may lack."""
WORD_EMBEDDINGS = "embeddings/word_embeddings"
MISSING_ROWS = 1024
"""Rows of word embeddings that a checkpoint may lack: the markers, and padding."""

TensorShape = tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """The names of tensors in one kind of checkpoint.

    Args:
        names: the modules; ``{i}`` is the number of a layer, or of a set of shared layers.
        linear: suffixes of kernel and bias of a linear layer.
        transposed: whether kernels are stored as ``[out, in]``, the heads' are in any case.
        head: suffixes of kernel and bias of the heads for spans and for answer types.
        norm: suffixes of scale and shift of a layer normalization.
        table: suffix of an embedding table.
        prefix: first component of all names but those of the heads; ``canonical`` adds it where a
            checkpoint omits it.
    """

    names: Mapping[str, str]
    linear: tuple[str, str] = (".weight", ".bias")
    transposed: bool = True
    head: tuple[str, str] = (".weight", ".bias")
    norm: tuple[str, str] = (".weight", ".bias")
    table: str = ".weight"
    prefix: str = ""

    def layers(self, tensors: Iterable[str]) -> dict[int, str]:
        """Returns the numbers of the layers that tensors belong to, each with one of its tensors.

        >>> BERT.layers(["bert.encoder.layer.7.output.dense.bias", "bert.pooler.dense.bias"])
        {7: 'bert.encoder.layer.7.output.dense.bias'}
        """
        before, after = self.names["query"].split("{i}")
        pattern = re.compile(rf"{re.escape(before)}([0-9]{{1,9}}){re.escape(after[0])}")
        matches = ((pattern.match(name), name) for name in sorted(tensors, reverse=True))
        return {int(match[1]): name for match, name in matches if match}

    def canonical(self, name: str) -> str:
        """Returns the name of a tensor without the variants of older and head-less checkpoints.

        >>> BERT.canonical("embeddings.LayerNorm.gamma")
        'bert.embeddings.LayerNorm.weight'
        """
        name = name.replace("LayerNorm.gamma", "LayerNorm.weight")
        name = name.replace("LayerNorm.beta", "LayerNorm.bias")
        if re.match(
            r"(embeddings|encoder|transformer|layers|final_norm|pooler|embeddings_project)\.", name
        ):
            name = f"{self.prefix}.{name}"
        return name


def _layout(
    prefix: str,
    layer: str = "encoder.layer.{i}",
    pooler: str = "pooler.dense",
    projection: str = "",
    others: Mapping[str, str] | None = None,
    **parts: str,
) -> Layout:
    """Returns the names of a family in ``transformers``, ``parts`` of whose layers are not BERT's.

    ``projection`` is empty for a family without one; ``others`` replaces whole names.
    """
    of_layer = {
        "query": "attention.self.query",
        "key": "attention.self.key",
        "value": "attention.self.value",
        "attention_output": "attention.output.dense",
        "attention_norm": "attention.output.LayerNorm",
        "intermediate": "intermediate.dense",
        "output": "output.dense",
        "output_norm": "output.LayerNorm",
        "position_query": "attention.self.pos_query_proj",
        "position_key": "attention.self.pos_key_proj",
    }
    modules = {
        "word": "embeddings.word_embeddings",
        "position": "embeddings.position_embeddings",
        "segment": "embeddings.token_type_embeddings",
        "embeddings_norm": "embeddings.LayerNorm",
        "projection": projection,
        **{part: f"{layer}.{name}" for part, name in (of_layer | parts).items()},
        "pooler": pooler,
        "relative_bias": "encoder.relative_attention_bias",
        "relative": "encoder.rel_embeddings",
        "relative_norm": "encoder.LayerNorm",
    }
    names = {module: f"{prefix}.{name}" for module, name in modules.items()}
    names |= {"span": "qa_outputs", "types": "type_outputs"}
    return Layout({**names, **(others or {})}, prefix=prefix)


BERT = _layout("bert")
ROBERTA = _layout("roberta")
ELECTRA = _layout("electra", projection="embeddings_project")
REMBERT = _layout("rembert", projection="encoder.embedding_hidden_mapping_in")
DISTILBERT = _layout(
    "distilbert",
    layer="transformer.layer.{i}",
    query="attention.q_lin",
    key="attention.k_lin",
    value="attention.v_lin",
    attention_output="attention.out_lin",
    attention_norm="sa_layer_norm",
    intermediate="ffn.lin1",
    output="ffn.lin2",
    output_norm="output_layer_norm",
)
ALBERT = _layout(
    "albert",
    layer="encoder.albert_layer_groups.{i}.albert_layers.0",
    pooler="pooler",
    projection="encoder.embedding_hidden_mapping_in",
    query="attention.query",
    key="attention.key",
    value="attention.value",
    attention_output="attention.dense",
    attention_norm="attention.LayerNorm",
    intermediate="ffn",
    output="ffn_output",
    output_norm="full_layer_layer_norm",
)
MPNET = _layout(
    "mpnet",
    query="attention.attn.q",
    key="attention.attn.k",
    value="attention.attn.v",
    attention_output="attention.attn.o",
    attention_norm="attention.LayerNorm",
)
DEBERTA = _layout(
    "deberta",
    query="attention.self.query_proj",
    key="attention.self.key_proj",
    value="attention.self.value_proj",
)
MODERNBERT = _layout(
    "model",
    layer="layers.{i}",
    query="attn.Wqkv",
    key="attn.Wqkv",
    value="attn.Wqkv",
    attention_output="attn.Wo",
    attention_norm="attn_norm",
    intermediate="mlp.Wi",
    output="mlp.Wo",
    output_norm="mlp_norm",
    others={
        "word": "model.embeddings.tok_embeddings",
        "embeddings_norm": "model.embeddings.norm",
        "final_norm": "model.final_norm",
        "span_transform": "head.dense",
        "span_transform_norm": "head.norm",
        "span": "classifier",
    },
)
_TENSORFLOW: dict[str, Any] = {
    "linear": ("/kernel", "/bias"),
    "transposed": False,
    "norm": ("/gamma", "/beta"),
    "table": "",
}
_TF1_NAMES = {
    name: theirs.replace(".", "/").replace("layer/{i}", "layer_{i}")
    for name, theirs in BERT.names.items()
}
TF1 = Layout(
    {**_TF1_NAMES, "span": "cls/nq/output", "types": "answer_type_output"},
    head=("_weights", "_bias"),
    **_TENSORFLOW,
)
TF2 = Layout(
    {
        "word": "embedding_lookup/embeddings",
        "position": "embedding_postprocessor/position_embeddings",
        "segment": "embedding_postprocessor/type_embeddings",
        "embeddings_norm": "embedding_postprocessor/output_layer_norm",
        "query": "encoder/layers/{i}/attention_layer/query_dense",
        "key": "encoder/layers/{i}/attention_layer/key_dense",
        "value": "encoder/layers/{i}/attention_layer/value_dense",
        "attention_output": "encoder/layers/{i}/attention_output_dense",
        "attention_norm": "encoder/layers/{i}/attention_layer_norm",
        "intermediate": "encoder/layers/{i}/intermediate_dense",
        "output": "encoder/layers/{i}/output_dense",
        "output_norm": "encoder/layers/{i}/output_layer_norm",
        "pooler": "pooler_transform",
        "span": "logits",
        "types": "ans_type",
    },
    head=("/kernel", "/bias"),
    **_TENSORFLOW,
)


@dataclass(frozen=True)
class Weight:
    """One weight of a model.

    Args:
        shape: of a kernel ``[in, out]``.
        tensors: names of the tensors that fill it, side by side along the last axis; query, key
            and value may be one.
        transposed: whether the tensors are stored as ``[out, in]``.
    """

    shape: TensorShape
    tensors: tuple[str, ...]
    transposed: bool = False


@dataclass(frozen=True)
class _Table:
    """Collects the weights of a model by path, with the names of a layout."""

    config: ModelConfig
    layout: Layout
    weights: dict[str, Weight] = field(default_factory=dict)

    def add(
        self, path: str, shape: TensorShape, suffix: str, *modules: str, transposed: bool = False
    ) -> None:
        layer = "".join(filter(str.isdigit, path))
        tensors = (self.layout.names[module].format(i=layer) + suffix for module in modules)
        self.weights[path] = Weight(shape, tuple(dict.fromkeys(tensors)), transposed)

    def linear(self, path: str, rows: int, columns: int, *modules: str) -> None:
        is_head = path in ANSWER_HEADS
        kernel, bias = self.layout.head if is_head else self.layout.linear
        transposed = self.layout.transposed or is_head
        self.add(f"{path}/kernel", (rows, columns), kernel, *modules, transposed=transposed)
        if self.config.has_biases or is_head or path == "pooler":
            self.add(f"{path}/bias", (columns,), bias, *modules)

    def norm(self, path: str, columns: int, module: str) -> None:
        parts = ("gamma", "beta") if self.config.has_biases else ("gamma",)
        for part, suffix in zip(parts, self.layout.norm, strict=False):
            self.add(f"{path}/{part}", (columns,), suffix, module)


RELATIVE_MODULES = {"c2p": "position_key", "p2c": "position_query"}


def weight_table(config: ModelConfig, layout: Layout = BERT) -> dict[str, Weight]:
    """Returns each weight of a model by its path, such as ``layer_0_qkv/kernel``."""
    hidden = config.hidden_size
    width = config.table_width
    inner = config.intermediate_size
    table = _Table(config, layout)
    add = table.add
    linear = table.linear
    norm = table.norm
    positions = config.max_position_embeddings
    segments = config.type_vocab_size
    terms = config.relative_terms if config.relative_span else ()
    add(WORD_EMBEDDINGS, (config.vocab_size, width), layout.table, "word")
    if config.position_biased_input:
        add("embeddings/position_embeddings", (positions, width), layout.table, "position")
    if segments:
        add("embeddings/segment_embeddings", (segments, width), layout.table, "segment")
    norm("embeddings_norm", width, "embeddings_norm")
    if config.embedding_size:
        linear("embeddings_projection", width, hidden, "projection")
    if config.relative_attention_num_buckets:
        shape = config.relative_attention_num_buckets, config.num_attention_heads
        add("relative_bias/bias_table", shape, layout.table, "relative_bias")
    if terms:
        shape = 2 * config.relative_span, hidden
        add("relative_embeddings/table", shape, layout.table, "relative")
        if config.norm_rel_ebd != "none":
            norm("relative_norm", hidden, "relative_norm")
    for i in range(config.layer_sets):
        attention = config.attention_width
        linear(f"layer_{i}_qkv", hidden, 3 * attention, "query", "key", "value")
        linear(f"layer_{i}_attention_output", attention, hidden, "attention_output")
        if terms and not config.share_att_key:
            modules = [RELATIVE_MODULES[term] for term in terms]
            linear(f"layer_{i}_relative", hidden, len(terms) * attention, *modules)
        if i or not config.is_pre_norm:
            norm(f"layer_{i}_attention_norm", hidden, "attention_norm")
        linear(f"layer_{i}_intermediate", hidden, config.intermediate_columns, "intermediate")
        linear(f"layer_{i}_output", inner, hidden, "output")
        norm(f"layer_{i}_output_norm", hidden, "output_norm")
    if config.is_pre_norm:
        norm("final_norm", hidden, "final_norm")
    if not config.is_dual_encoder:
        if config.has_span_transform:
            linear("span_transform", hidden, hidden, "span_transform")
            norm("span_transform_norm", hidden, "span_transform_norm")
        linear("pooler", hidden, hidden, "pooler")
        linear("span_output", hidden, 2, "span")
        linear("type_output", hidden, len(AnswerType), "types")
    return table.weights
