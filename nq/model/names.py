"""Names of the model's weights, and of the checkpoint tensors that fill them.

A ``Layout`` holds the names that one kind of checkpoint uses; ``table`` derives from it, for a
shape, the tensors of each weight. The same table serves reading and writing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from nq.config import ModelConfig


@dataclass(frozen=True)
class Part:
    """One checkpoint tensor that fills a weight or a part of it.

    Args:
        name: the tensor's name.
        transposed: whether the tensor is stored as ``[out, in]`` and the weight as ``[in, out]``.
    """

    name: str
    transposed: bool = False


Table = dict[str, list[Part]]
Pair = tuple[Part, Part]


@dataclass(frozen=True)
class Layout:
    """The names of tensors in one kind of checkpoint.

    Args:
        names: the modules; ``{i}`` is the number of a layer, or of a set of shared layers.
        kernel: suffix of the kernel of a linear layer, and whether it is stored transposed.
        norm: suffixes of the scale and the shift of a layer normalization.
        bias: suffix of the bias of a linear layer.
        table: suffix of an embedding table.
        span, types: kernel and bias of the heads for spans and for answer types.
        prefix: first component of all names but those of the heads; ``canonical`` adds it where a
            checkpoint omits it.
    """

    names: Mapping[str, str]
    kernel: tuple[str, bool] = (".weight", True)
    norm: tuple[str, str] = (".weight", ".bias")
    bias: str = ".bias"
    table: str = ".weight"
    span: Pair = (Part("qa_outputs.weight", transposed=True), Part("qa_outputs.bias"))
    types: Pair = (Part("type_outputs.weight", transposed=True), Part("type_outputs.bias"))
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
        if not self.prefix:
            return name
        name = name.replace("LayerNorm.gamma", "LayerNorm.weight")
        name = name.replace("LayerNorm.beta", "LayerNorm.bias")
        if re.match(r"(embeddings|encoder|transformer|pooler|embeddings_project)\.", name):
            name = f"{self.prefix}.{name}"
        return name


def _bert_names(prefix: str, **other: str) -> dict[str, str]:
    layer = f"{prefix}.encoder.layer.{{i}}"
    return {
        "word": f"{prefix}.embeddings.word_embeddings",
        "position": f"{prefix}.embeddings.position_embeddings",
        "segment": f"{prefix}.embeddings.token_type_embeddings",
        "embeddings_norm": f"{prefix}.embeddings.LayerNorm",
        "query": f"{layer}.attention.self.query",
        "key": f"{layer}.attention.self.key",
        "value": f"{layer}.attention.self.value",
        "attention_output": f"{layer}.attention.output.dense",
        "attention_norm": f"{layer}.attention.output.LayerNorm",
        "intermediate": f"{layer}.intermediate.dense",
        "output": f"{layer}.output.dense",
        "output_norm": f"{layer}.output.LayerNorm",
        "pooler": f"{prefix}.pooler.dense",
        "relative_bias": f"{prefix}.encoder.relative_attention_bias",
        **{name: f"{prefix}.{value}" for name, value in other.items()},
    }


def _layers(prefix: str, **parts: str) -> dict[str, str]:
    return {part: f"{prefix}.{{i}}.{name}" for part, name in parts.items()}


BERT = Layout(_bert_names("bert"), prefix="bert")
ROBERTA = Layout(_bert_names("roberta"), prefix="roberta")
ELECTRA = Layout(_bert_names("electra", projection="embeddings_project"), prefix="electra")
REMBERT = Layout(
    _bert_names("rembert", projection="encoder.embedding_hidden_mapping_in"), prefix="rembert"
)
DISTILBERT = Layout(
    {
        **_bert_names("distilbert"),
        **_layers(
            "distilbert.transformer.layer",
            query="attention.q_lin",
            key="attention.k_lin",
            value="attention.v_lin",
            attention_output="attention.out_lin",
            attention_norm="sa_layer_norm",
            intermediate="ffn.lin1",
            output="ffn.lin2",
            output_norm="output_layer_norm",
        ),
    },
    prefix="distilbert",
)
ALBERT = Layout(
    {
        **_bert_names("albert", projection="encoder.embedding_hidden_mapping_in", pooler="pooler"),
        **_layers(
            "albert.encoder.albert_layer_groups",
            query="albert_layers.0.attention.query",
            key="albert_layers.0.attention.key",
            value="albert_layers.0.attention.value",
            attention_output="albert_layers.0.attention.dense",
            attention_norm="albert_layers.0.attention.LayerNorm",
            intermediate="albert_layers.0.ffn",
            output="albert_layers.0.ffn_output",
            output_norm="albert_layers.0.full_layer_layer_norm",
        ),
    },
    prefix="albert",
)
MPNET = Layout(
    {
        **_bert_names("mpnet"),
        **_layers(
            "mpnet.encoder.layer",
            query="attention.attn.q",
            key="attention.attn.k",
            value="attention.attn.v",
            attention_output="attention.attn.o",
            attention_norm="attention.LayerNorm",
        ),
    },
    prefix="mpnet",
)
TF1 = Layout(
    {
        name: theirs.replace(".", "/").replace("layer/{i}", "layer_{i}")
        for name, theirs in _bert_names("bert").items()
    },
    kernel=("/kernel", False),
    norm=("/gamma", "/beta"),
    bias="/bias",
    table="",
    span=(Part("cls/nq/output_weights", transposed=True), Part("cls/nq/output_bias")),
    types=(Part("answer_type_output_weights", transposed=True), Part("answer_type_output_bias")),
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
    },
    kernel=("/kernel", False),
    norm=("/gamma", "/beta"),
    bias="/bias",
    table="",
    span=(Part("logits/kernel", transposed=True), Part("logits/bias")),
    types=(Part("ans_type/kernel", transposed=True), Part("ans_type/bias")),
)


def table(config: ModelConfig, layout: Layout = BERT) -> Table:
    """Returns the tensors that fill each weight of a model.

    Args:
        config: shape of the encoder.
        layout: names of the tensors.

    Returns:
        The parts of each weight, by the weight's path; several parts are concatenated along the
        last axis.
    """
    modules, parts_of = layout.names, Table()

    def linear(path: str, *parts: str, i: int = 0) -> Iterator[tuple[str, list[Part]]]:
        suffix, transposed = layout.kernel
        prefixes = [modules[part].format(i=i) for part in parts]
        yield f"{path}/kernel", [Part(f"{prefix}{suffix}", transposed) for prefix in prefixes]
        yield f"{path}/bias", [Part(f"{prefix}{layout.bias}") for prefix in prefixes]

    def norm(path: str, part: str, i: int = 0) -> Iterator[tuple[str, list[Part]]]:
        for kind, suffix in zip(("gamma", "beta"), layout.norm, strict=True):
            yield f"{path}/{kind}", [Part(f"{modules[part].format(i=i)}{suffix}")]

    for part in ("word", "position", "segment")[: 3 if config.type_vocab_size else 2]:
        parts_of[f"embeddings/{part}_embeddings"] = [Part(f"{modules[part]}{layout.table}")]
    parts_of.update(norm("embeddings_norm", "embeddings_norm"))
    if config.embedding_size:
        parts_of.update(linear("embeddings_projection", "projection"))
    if config.relative_attention_num_buckets:
        bias_table = Part(f"{modules['relative_bias']}{layout.table}")
        parts_of["relative_bias/bias_table"] = [bias_table]
    for i in range(config.layer_sets):
        parts_of.update(linear(f"layer_{i}_qkv", "query", "key", "value", i=i))
        parts_of.update(linear(f"layer_{i}_attention_output", "attention_output", i=i))
        parts_of.update(norm(f"layer_{i}_attention_norm", "attention_norm", i=i))
        parts_of.update(linear(f"layer_{i}_intermediate", "intermediate", i=i))
        parts_of.update(linear(f"layer_{i}_output", "output", i=i))
        parts_of.update(norm(f"layer_{i}_output_norm", "output_norm", i=i))
    parts_of.update(linear("pooler", "pooler"))
    for head, (kernel, bias) in (("span_output", layout.span), ("type_output", layout.types)):
        parts_of |= {f"{head}/kernel": [kernel], f"{head}/bias": [bias]}
    return parts_of
