"""The families of encoders that are related to BERT, as a table of frozen records.

A family is one entry of ``FAMILIES``, keyed by the ``model_type`` of Hugging Face. The encoder
(``nq.model.encoder``) reads ``ModelConfig`` only and does not know the families.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any

from nq.errors import check_argument, is_count
from nq.model import names
from nq.model.config import ModelConfig
from nq.model.names import Layout

ACTIVATIONS = {"gelu_python": "gelu", "gelu_fast": "gelu_new", "gelu_pytorch_tanh": "gelu_new"}
FIELDS = [f.name for f in fields(ModelConfig)]


def _keys(first: str, last: str) -> dict[str, str]:
    """Returns the fields of ``ModelConfig`` from ``first`` to ``last``, mapped to equal keys."""
    return {name: name for name in FIELDS[FIELDS.index(first) : FIELDS.index(last) + 1]}


BERT_KEYS = _keys("vocab_size", "initializer_range")
WITHOUT_SEGMENTS = {n: key for n, key in BERT_KEYS.items() if n != "type_vocab_size"}
OWN_KEYS = {name: name for name in ModelConfig.BEYOND_TRANSFORMERS}
"""Maps fields of smaller models and dual encoders to their keys, which ``transformers`` ignores."""
MAX_LAYERS = 128  # the largest known models have 48; thousands, however small, take for ever
ABSOLUTE = {"position_embedding_type": "absolute"}
ROPE_THETA = {"global_rope_theta": 160_000.0, "local_rope_theta": 10_000.0}
EVERY = "global_attn_every_n_layers"
FULL = "full_attention"
SLIDING = "sliding_attention"
Values = Mapping[str, Any]


def _plain_deberta(values: Values) -> Values:
    """Converts the values of an older DeBERTa, where a text stands for a list."""
    terms = values.get("pos_att_type") or ""
    terms = terms.split("|") if isinstance(terms, str) else _checked(values, "pos_att_type", list)
    return {**values, "pos_att_type": "|".join(sorted(str(term).strip() for term in terms))}


def _plain_modernbert(values: Values) -> Values:
    """Converts the values of a ModernBERT to the keys of ``transformers`` before version 5."""
    plain = {**ROPE_THETA, **values}
    ropes = _checked(values, "rope_parameters", dict)
    scaled = values.get("rope_scaling")
    for kind, key in ((FULL, "global_rope_theta"), (SLIDING, "local_rope_theta")):
        rope = _checked(ropes, kind, dict)
        plain[key] = rope.get("rope_theta", plain[key])
        scaled = scaled or rope.get("rope_type", "default") != "default"
    if scaled:
        raise ValueError("scaled rotary positions are not supported; expected rope_type 'default'")
    kinds = _checked(values, "layer_types", list)
    if kinds:
        every = [*kinds[1:], FULL].index(FULL) + 1
        plain[EVERY] = every
        if kinds != [SLIDING if i % every else FULL for i in range(len(kinds))]:
            raise ValueError(
                f"layer_types {kinds!r:.80} are not supported; expected a {FULL} first, and again "
                f"after always as many of {SLIDING}"
            )
    return plain


def _checked(values: Values, key: str, kind: type) -> Any:
    value = values.get(key)
    expected = "an object" if kind is dict else "a list"
    check_argument(value is None or isinstance(value, kind), key, value, expected)
    return value or kind()


@dataclass(frozen=True)
class Family:
    """How one family writes its shape and its weights.

    Args:
        architecture: beginning of the names of its classes in ``transformers``.
        layout: names of its tensors.
        keys: maps each field of ``ModelConfig`` that the family has to its key in
            ``config.json``.
        defaults: values of fields that are absent from ``config.json``, where they differ from
            BERT's.
        fixed: keys of ``config.json`` of which only one value is supported; a function gives that
            of a shape.
        positions_after_padding: whether the first piece has position ``pad_token_id + 1``, not 0.
        projects_equal_width: whether embeddings are projected even if they are as wide as the
            hidden layers.
        plain: returns the values of a ``config.json`` by the keys above.
        written: values that ``encode_config`` adds.
    """

    architecture: str
    layout: Layout
    keys: Mapping[str, str] = field(default_factory=BERT_KEYS.copy)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    positions_after_padding: bool = False
    projects_equal_width: bool = True
    plain: Callable[[Values], Values] = dict
    written: Values = field(default_factory=dict)


FAMILIES: dict[str, Family] = {
    "bert": Family("Bert", names.BERT, fixed=ABSOLUTE),
    "roberta": Family(
        "Roberta",
        names.ROBERTA,
        defaults={"vocab_size": 50265},
        fixed=ABSOLUTE,
        positions_after_padding=True,
    ),
    "xlm-roberta": Family(
        "XLMRoberta", names.ROBERTA, fixed=ABSOLUTE, positions_after_padding=True
    ),
    "camembert": Family("Camembert", names.ROBERTA, fixed=ABSOLUTE, positions_after_padding=True),
    "distilbert": Family(
        "DistilBert",
        names.DISTILBERT,
        keys={
            "vocab_size": "vocab_size",
            "hidden_size": "dim",
            "num_hidden_layers": "n_layers",
            "num_attention_heads": "n_heads",
            "intermediate_size": "hidden_dim",
            "max_position_embeddings": "max_position_embeddings",
            "hidden_act": "activation",
            "initializer_range": "initializer_range",
        },
        defaults={"num_hidden_layers": 6, "type_vocab_size": 0},
    ),
    "albert": Family(
        "Albert",
        names.ALBERT,
        keys=BERT_KEYS | _keys("embedding_size", "num_hidden_groups"),
        defaults={
            "vocab_size": 30000,
            "embedding_size": 128,
            "hidden_size": 4096,
            "num_attention_heads": 64,
            "intermediate_size": 16384,
            "num_hidden_groups": 1,
            "hidden_act": "gelu_new",
        },
        fixed={**ABSOLUTE, "inner_group_num": 1},
    ),
    "electra": Family(
        "Electra",
        names.ELECTRA,
        keys=BERT_KEYS | {"embedding_size": "embedding_size"},
        defaults={
            "embedding_size": 128,
            "hidden_size": 256,
            "num_attention_heads": 4,
            "intermediate_size": 1024,
        },
        fixed=ABSOLUTE,
        projects_equal_width=False,
    ),
    "rembert": Family(
        "RemBert",
        names.REMBERT,
        keys=BERT_KEYS | {"embedding_size": "input_embedding_size"},
        defaults={
            "vocab_size": 250300,
            "embedding_size": 256,
            "hidden_size": 1152,
            "num_hidden_layers": 32,
            "num_attention_heads": 18,
            "intermediate_size": 4608,
        },
    ),
    "mpnet": Family(
        "MPNet",
        names.MPNET,
        keys={
            **WITHOUT_SEGMENTS,
            "relative_attention_num_buckets": "relative_attention_num_buckets",
        },
        defaults={
            "vocab_size": 30527,
            "type_vocab_size": 0,
            "position_offset": 2,  # whatever pad_token_id is
            "relative_attention_num_buckets": 32,
        },
        fixed={"relative_attention_num_buckets": 32},  # transformers computes 32 in any case
    ),
    "deberta-v2": Family(
        "DebertaV2",
        names.DEBERTA,
        keys=BERT_KEYS | _keys("position_biased_input", "norm_rel_ebd"),
        defaults={
            "vocab_size": 128100,
            "hidden_size": 1536,
            "num_hidden_layers": 24,
            "num_attention_heads": 24,
            "intermediate_size": 6144,
            "type_vocab_size": 0,
            "layer_norm_eps": 1e-7,
        },
        fixed={
            "conv_kernel_size": 0,
            "embedding_size": attrgetter("hidden_size"),
            "attention_head_size": attrgetter("head_width"),
        },
        plain=_plain_deberta,
    ),
    "modernbert": Family(
        "ModernBert",
        names.MODERNBERT,
        keys={
            **WITHOUT_SEGMENTS,
            "hidden_act": "hidden_activation",
            "layer_norm_eps": "norm_eps",
            **_keys("global_rope_theta", EVERY),
        },
        defaults={
            "vocab_size": 50368,
            "num_hidden_layers": 22,
            "intermediate_size": 1152,
            "max_position_embeddings": 8192,
            "type_vocab_size": 0,
            "layer_norm_eps": 1e-5,
            "position_biased_input": False,
            "local_attention": 128,
            EVERY: 3,
            "is_gated": True,
            "is_pre_norm": True,
            "has_biases": False,
            "has_span_transform": True,
        },
        fixed={
            **dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"), False),
            "classifier_activation": "gelu",
        },
        plain=_plain_modernbert,
        written=dict.fromkeys(f"{name}_token_id" for name in ("pad", "bos", "eos", "cls", "sep")),
    ),
}


def decode_config(values: Mapping[str, Any]) -> ModelConfig:
    """Returns the shape that a ``config.json`` of Hugging Face describes."""
    model_type = values.get("model_type", "bert")
    family = FAMILIES.get(model_type) if isinstance(model_type, str) else None
    if family is None:
        raise ValueError(
            f"model_type {model_type!r:.80} is not supported; known are {', '.join(FAMILIES)}"
        )
    plain = family.plain(values)
    shape: dict[str, Any] = {"model_type": model_type, **family.defaults}
    for name, key in {**family.keys, **OWN_KEYS}.items():
        if key in plain:
            shape[name] = plain[key]
    activation = shape.get("hidden_act", ModelConfig.hidden_act)
    shape["hidden_act"] = ACTIVATIONS.get(str(activation), activation)
    if family.positions_after_padding:
        padding = values.get("pad_token_id")
        check_argument(
            padding is None or is_count(padding, 0), "pad_token_id", padding, "0 or more"
        )
        shape["position_offset"] = 2 if padding is None else padding + 1
    config = ModelConfig(**shape)
    for key, supported in family.fixed.items():
        expected = supported(config) if callable(supported) else supported
        if values.get(key, expected) != expected:
            raise ValueError(f"{key} {values[key]!r:.80} is not supported; expected {expected!r}")
    if config.num_hidden_layers > MAX_LAYERS:
        raise ValueError(
            f"num_hidden_layers is {config.num_hidden_layers:.3g}: expected at most {MAX_LAYERS}"
        )
    if config.embedding_size == config.hidden_size and not family.projects_equal_width:
        return ModelConfig(**{**shape, "embedding_size": 0})
    return config


def encode_config(config: ModelConfig) -> dict[str, Any]:
    """Returns a ``config.json`` of Hugging Face for a shape, the inverse of ``decode_config``.

    >>> encode_config(ModelConfig(model_type="distilbert", type_vocab_size=0))["dim"]
    768
    """
    family = FAMILIES[config.model_type]
    shape = {**config.to_dict(), "embedding_size": config.table_width}
    head = "Model" if config.is_dual_encoder else "ForQuestionAnswering"
    values: dict[str, Any] = {
        "model_type": config.model_type,
        "architectures": [family.architecture + head],
        **{key: shape[name] for name, key in family.keys.items()},
        **{key: shape[name] for name, key in OWN_KEYS.items() if name in shape},
        **family.written,
    }
    if family.positions_after_padding:
        values |= {"pad_token_id": config.position_offset - 1, "bos_token_id": 0, "eos_token_id": 2}
    return values


def layout_of(config: ModelConfig) -> Layout:
    """Returns the names of the tensors of a family in a folder of Hugging Face."""
    return FAMILIES[config.model_type].layout
