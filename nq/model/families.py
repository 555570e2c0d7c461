"""The relatives of BERT: how each writes its shape into ``config.json``.

One entry a family; the encoder (``nq.model.encoder``) knows none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from nq.config import ModelConfig
from nq.model import names
from nq.model.names import Layout

ACTIVATIONS = {
    "gelu_python": "gelu",
    "gelu_fast": "gelu_new",
    "gelu_pytorch_tanh": "gelu_new",
}
SHAPE = tuple(
    f.name for f in fields(ModelConfig) if f.name not in ("model_type", "position_offset")
)


@dataclass(frozen=True)
class Family:
    """One ``model_type`` of Hugging Face.

    Args:
        architecture: its class for question answering.
        layout: the names of its tensors.
        keys: of ``config.json``, where they are not ours; ``None`` for a field it lacks.
        defaults: of fields that a config does not say, where they are not a BERT's.
        fixed: keys of which only one value is supported.
    """

    architecture: str
    layout: Layout
    keys: Mapping[str, str | None] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)

    def key(self, name: str) -> str | None:
        """The key of one of our fields, if this family has it."""
        plain = name not in ("embedding_size", "num_hidden_groups")
        return self.keys.get(name, name if plain else None)


ABSOLUTE = {"position_embedding_type": "absolute"}
_AFTER_PADDING = {"position_offset": 2}
FAMILIES: dict[str, Family] = {
    "bert": Family("BertForQuestionAnswering", names.BERT, fixed=ABSOLUTE),
    "roberta": Family(
        "RobertaForQuestionAnswering",
        names.ROBERTA,
        defaults={**_AFTER_PADDING, "vocab_size": 50265},
        fixed=ABSOLUTE,
    ),
    "xlm-roberta": Family(
        "XLMRobertaForQuestionAnswering",
        names.ROBERTA,
        defaults=_AFTER_PADDING,
        fixed=ABSOLUTE,
    ),
    "distilbert": Family(
        "DistilBertForQuestionAnswering",
        names.DISTILBERT,
        keys={
            "hidden_size": "dim",
            "num_hidden_layers": "n_layers",
            "num_attention_heads": "n_heads",
            "intermediate_size": "hidden_dim",
            "hidden_act": "activation",
            "type_vocab_size": None,
            "layer_norm_eps": None,
        },
        defaults={"num_hidden_layers": 6, "type_vocab_size": 0},
    ),
    "albert": Family(
        "AlbertForQuestionAnswering",
        names.ALBERT,
        keys={"embedding_size": "embedding_size", "num_hidden_groups": "num_hidden_groups"},
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
        "ElectraForQuestionAnswering",
        names.ELECTRA,
        keys={"embedding_size": "embedding_size"},
        defaults={
            "embedding_size": 128,
            "hidden_size": 256,
            "num_attention_heads": 4,
            "intermediate_size": 1024,
        },
        fixed=ABSOLUTE,
    ),
    "rembert": Family(
        "RemBertForQuestionAnswering",
        names.REMBERT,
        keys={"embedding_size": "input_embedding_size"},
        defaults={
            "vocab_size": 250300,
            "embedding_size": 256,
            "hidden_size": 1152,
            "num_hidden_layers": 32,
            "num_attention_heads": 18,
            "intermediate_size": 4608,
        },
    ),
}


def decode_config(values: Mapping[str, Any]) -> ModelConfig:
    """The shape that a ``config.json`` of Hugging Face describes.

    Raises:
        ValueError: an unknown family, an unsupported variant, or a field that is of the wrong
            kind or out of range.
    """
    model_type = values.get("model_type", "bert")
    family = FAMILIES.get(model_type) if isinstance(model_type, str) else None
    if family is None:
        raise ValueError(
            f"model_type {model_type!r} is not supported; known are {', '.join(FAMILIES)}"
        )
    for fixed, only in family.fixed.items():
        if values.get(fixed, only) != only:
            raise ValueError(f"{fixed} {values[fixed]!r} is not supported; expected {only!r}")
    shape: dict[str, Any] = {"model_type": model_type, **family.defaults}
    for name in SHAPE:
        key = family.key(name)
        if key is not None and key in values:
            shape[name] = _checked(key, values[key], getattr(ModelConfig, name))
    act = shape.get("hidden_act", ModelConfig.hidden_act)
    shape["hidden_act"] = ACTIVATIONS.get(act, act)
    if "position_offset" in shape and values.get("pad_token_id") is not None:
        shape["position_offset"] = _checked("pad_token_id", values["pad_token_id"], 0, least=0) + 1
    config = ModelConfig(**shape)
    if model_type == "electra" and config.embedding_size == config.hidden_size:
        config = ModelConfig(**{**shape, "embedding_size": 0})
    return config


def _checked(key: str, value: Any, default: Any, least: int = 1) -> Any:
    number = not isinstance(default, str)
    right = type(value) in ((int, type(default)) if number else (str,))
    if not right or (number and not value > least - 1):
        expected = "a name" if not number else "a positive number" if least else "0 or more"
        raise ValueError(f"{key} is {value!r}, expected {expected}")
    return value


def encode_config(config: ModelConfig) -> dict[str, Any]:
    """A ``config.json`` of Hugging Face for a shape; ``decode_config`` reads it back.

    >>> encode_config(ModelConfig(model_type="distilbert", type_vocab_size=0))["dim"]
    768
    """
    family = FAMILIES[config.model_type]
    values: dict[str, Any] = {
        "model_type": config.model_type,
        "architectures": [family.architecture],
    }
    for name in SHAPE:
        key = family.key(name)
        if key:
            values[key] = getattr(config, name)
    if config.model_type == "electra" and not config.embedding_size:
        values["embedding_size"] = config.hidden_size
    if config.position_offset:
        pad = config.position_offset - 1
        values |= {"pad_token_id": pad, "bos_token_id": 0, "eos_token_id": 2}
    return values


def layout_of(config: ModelConfig) -> Layout:
    """The names that tensors of this family have in a folder of Hugging Face's."""
    return FAMILIES[config.model_type].layout
