"""Model folders: config, tokenizer, weights, thresholds, model card.

Weights lie in ``model.safetensors`` under Hugging Face's BERT names, so that a folder of
ours is a BERT folder with two more heads, and one table reads and writes both. The word
table may be stored in 8 bits with a scale a row, everything else in float16.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from nq.config import DecisionConfig, ModelConfig, WindowConfig
from nq.preprocess.tokenizer import Tokenizer
from nq.records import FloatArray

CONFIG, WEIGHTS, SETTINGS, CARD = "config.json", "model.safetensors", "nq.json", "README.md"
SCALE = ".scale"
Tensors = dict[str, FloatArray]


@dataclass(frozen=True)
class Part:
    """One checkpoint tensor that fills a weight; ``transposed`` for linear layers."""

    name: str
    transposed: bool = False


@dataclass(frozen=True)
class LoadReport:
    """What a checkpoint did not settle: weights left fresh, tensors left over."""

    fresh: tuple[str, ...] = ()
    left_over: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModelSettings:
    """What a model folder says besides its weights."""

    windows: WindowConfig = field(default_factory=WindowConfig)
    decision: DecisionConfig = field(default_factory=DecisionConfig)


def _linear(name: str, *layers: str) -> Iterator[tuple[str, list[Part]]]:
    yield f"{name}/kernel", [Part(f"{layer}.weight", transposed=True) for layer in layers]
    yield f"{name}/bias", [Part(f"{layer}.bias") for layer in layers]


def _norm(name: str, layer: str) -> Iterator[tuple[str, list[Part]]]:
    yield f"{name}/gamma", [Part(f"{layer}.weight")]
    yield f"{name}/beta", [Part(f"{layer}.bias")]


def bert_table(config: ModelConfig) -> dict[str, list[Part]]:
    """Our weights -> the Hugging Face tensors that fill them, joined along the last axis."""
    table: dict[str, list[Part]] = {}
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


def load_config(folder: str | Path) -> ModelConfig:
    """The encoder's shape from ``config.json``.

    Raises:
        FileNotFoundError: no such file; says what a model folder holds.
        ValueError: not a BERT, or a field is out of range.
    """
    path = Path(folder) / CONFIG
    if not path.is_file():
        raise FileNotFoundError(
            f"no model in {folder}: expected {CONFIG}, {WEIGHTS} and vocab.txt or spiece.model"
        )
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    kind = values.get("model_type", "bert")
    if kind != "bert":
        raise ValueError(f"{path}: model_type {kind!r} is not supported; expected 'bert'")
    names = {f.name for f in dataclasses.fields(ModelConfig)}
    return ModelConfig(**{k: v for k, v in values.items() if k in names})


def load_settings(folder: str | Path) -> ModelSettings:
    """Windows and thresholds of the folder; the defaults where it has none of its own."""
    path = Path(folder) / SETTINGS
    if not path.is_file():
        return ModelSettings()
    values = json.loads(path.read_text(encoding="utf-8"))
    return ModelSettings(
        WindowConfig.from_dict(values.get("windows", {})),
        DecisionConfig.from_dict(values.get("decision", {})),
    )


def read_tensors(folder: str | Path) -> Tensors:
    """All tensors of ``model.safetensors`` in float32, by canonical name.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged.
    """
    path = Path(folder) / WEIGHTS
    if not path.is_file():
        raise FileNotFoundError(f"no {WEIGHTS} in {folder}: weights are read from safetensors only")
    tensors: Tensors = {}
    try:
        with safe_open(str(path), framework="numpy") as file:
            names = set(file.keys())
            for name in sorted(names):
                if name.endswith(SCALE) and name.removesuffix(SCALE) in names:
                    continue
                value = file.get_tensor(name)
                if name + SCALE in names:
                    value = value.astype(np.float32) * file.get_tensor(name + SCALE)
                tensors[canonical_name(name)] = value.astype(np.float32)
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    return tensors


def fill(model: Any, tensors: Mapping[str, FloatArray], table: Mapping[str, list[Part]]) -> LoadReport:
    """Fills the model's weights from a checkpoint; nothing is filled if a shape is wrong.

    Raises:
        ValueError: a tensor's shape is not what the config says.
    """
    values, fresh, used = {}, [], set()
    for variable in model.weights:
        parts = table.get(variable.path)
        if parts is None:
            continue
        if any(part.name not in tensors for part in parts):
            fresh.append(variable.path)
            continue
        joined = [tensors[p.name].T if p.transposed else tensors[p.name] for p in parts]
        value = np.concatenate(joined, axis=-1)
        value = _grow(value, variable)
        if value.shape != tuple(variable.shape):
            raise ValueError(
                f"{' + '.join(p.name for p in parts)} has shape {value.shape}, the config "
                f"says {tuple(variable.shape)}: weights and {CONFIG} do not belong together"
            )
        values[variable.path] = value
        used.update(part.name for part in parts)
    for variable in model.weights:
        if variable.path in values:
            variable.assign(values[variable.path])
    return LoadReport(tuple(fresh), tuple(sorted(set(tensors) - used)))


def _grow(value: FloatArray, variable: Any) -> FloatArray:
    """A word table with fresh rows below, where the tokenizer has more ids than it."""
    rows = variable.shape[0] - value.shape[0]
    if not variable.path.endswith("word_embeddings") or rows <= 0:
        return value
    fresh = np.random.default_rng(0).normal(0, 0.02, (rows, value.shape[1]))
    return np.concatenate([value, fresh.astype(np.float32)])


def save(
    folder: str | Path,
    model: Any,
    config: ModelConfig,
    tokenizer: Tokenizer,
    settings: ModelSettings,
    card: str,
    compact: bool = False,
) -> None:
    """Writes a model folder.

    Args:
        compact: word table in 8 bits, everything else in float16; else float32.
    """
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    hugging_face = {"model_type": "bert", "architectures": ["BertForQuestionAnswering"]}
    _write_json(path / CONFIG, {**hugging_face, **config.to_dict()})
    save_settings(path, settings)
    tensors = dict(_tensors(model, bert_table(config)))
    save_file(_compact(tensors) if compact else tensors, path / WEIGHTS)
    for name, source in tokenizer.files.items():
        if source.resolve() != (path / name).resolve():
            shutil.copyfile(source, path / name)
    lowercase = getattr(tokenizer, "lowercase", None)
    if lowercase is not None:
        _write_json(path / "tokenizer_config.json", {"do_lower_case": lowercase})
    (path / CARD).write_text(card, encoding="utf-8")


def save_settings(folder: str | Path, settings: ModelSettings) -> None:
    """Writes windows and thresholds into a model folder."""
    _write_json(
        Path(folder) / SETTINGS,
        {"windows": settings.windows.to_dict(), "decision": settings.decision.to_dict()},
    )


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def _tensors(model: Any, table: Mapping[str, list[Part]]) -> Iterator[tuple[str, FloatArray]]:
    for variable in model.weights:
        parts = table.get(variable.path, [])
        value = np.asarray(variable.numpy(), np.float32)
        for part, piece in zip(parts, np.split(value, len(parts) or 1, axis=-1), strict=False):
            yield part.name, np.ascontiguousarray(piece.T if part.transposed else piece)


def _compact(tensors: Tensors) -> dict[str, np.ndarray[Any, Any]]:
    small: dict[str, np.ndarray[Any, Any]] = {}
    for name, value in tensors.items():
        if name.endswith("word_embeddings.weight"):
            scale = np.abs(value).max(axis=1, keepdims=True) / 127 + 1e-12
            small[name] = np.rint(value / scale).astype(np.int8)
            small[name + SCALE] = scale.astype(np.float32)
        else:
            small[name] = value.astype(np.float16)
    return small
