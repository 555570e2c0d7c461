"""Model folders: config, tokenizer, weights, thresholds, model card.

Weights lie in ``model.safetensors`` under Hugging Face's BERT names, so that a folder of
ours is a BERT folder with two more heads. The word table may be stored in 8 bits with a
scale a row, everything else in float16.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from nq.config import DecisionConfig, ModelConfig, WindowConfig
from nq.model import names
from nq.model.names import Part, Table, canonical_name
from nq.preprocess.tokenizer import Tokenizer
from nq.records import FloatArray

CONFIG, WEIGHTS, SETTINGS, CARD = "config.json", "model.safetensors", "nq.json", "README.md"
SCALE = ".scale"
Tensors = dict[str, FloatArray]


@dataclass(frozen=True)
class LoadReport:
    """What a checkpoint did not settle: weights left fresh, tensors left over.

    A word table that lacks rows is named with them, as in ``word_embeddings[30000:]``.
    """

    fresh: tuple[str, ...] = ()
    left_over: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModelSettings:
    """What a model folder says besides its weights."""

    windows: WindowConfig = field(default_factory=WindowConfig)
    decision: DecisionConfig = field(default_factory=DecisionConfig)


def load_config(folder: str | Path) -> ModelConfig:
    """The encoder's shape from ``config.json``.

    Raises:
        FileNotFoundError: no such file; says what a model folder holds.
        ValueError: not a BERT, or a field is of the wrong kind or out of range.
    """
    path = Path(folder) / CONFIG
    if not path.is_file():
        raise FileNotFoundError(
            f"no model in {folder}: expected {CONFIG}, {WEIGHTS} and vocab.txt or spiece.model"
        )
    values = _read_json(path)
    for name, only in (("model_type", "bert"), ("position_embedding_type", "absolute")):
        if values.get(name, only) != only:
            raise ValueError(f"{path}: {name} {values[name]!r} is not supported; expected {only!r}")
    known = {f.name: f.default for f in dataclasses.fields(ModelConfig) if f.name in values}
    for name, default in known.items():
        value, number = values[name], not isinstance(default, str)
        right = type(value) in ((int, type(default)) if number else (str,))
        if not right or (number and not value > 0):
            expected = "a positive number" if number else "a name"
            raise ValueError(f"{path}: {name} is {value!r}, expected {expected}")
    try:
        return ModelConfig(**{name: values[name] for name in known})
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def with_room_for(config: ModelConfig, tokenizer: Tokenizer) -> ModelConfig:
    """``config`` with a word table that has a row for each of the tokenizer's ids."""
    size = max(config.vocab_size, tokenizer.vocab_size)
    return dataclasses.replace(config, vocab_size=size)


def load_settings(folder: str | Path) -> ModelSettings:
    """Windows and thresholds of the folder; the defaults where it has none of its own.

    Raises:
        ValueError: the folder's settings are damaged.
    """
    path = Path(folder) / SETTINGS
    if not path.is_file():
        return ModelSettings()
    values = _read_json(path)
    try:
        return ModelSettings(
            WindowConfig.from_dict(values.get("windows", {})),
            DecisionConfig.from_dict(values.get("decision", {})),
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path} holds {type(values).__name__}, expected a JSON object")
    return values


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
            there = set(file.keys())
            for name in sorted(there):
                if name.endswith(SCALE) and name.removesuffix(SCALE) in there:
                    continue
                value = file.get_tensor(name)
                if name + SCALE in there:
                    value = value.astype(np.float32) * file.get_tensor(name + SCALE)
                elif value.dtype == np.int8:
                    raise ValueError(f"{path} is damaged: {name} has 8 bits but no {name}{SCALE}")
                if canonical_name(name) in tensors:
                    raise ValueError(f"{path} holds {canonical_name(name)} under two names")
                tensors[canonical_name(name)] = value.astype(np.float32)
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    return tensors


def fill(model: Any, tensors: Mapping[str, FloatArray], table: Table) -> LoadReport:
    """Fills the model's weights from a checkpoint; nothing is filled if a shape is wrong.

    Raises:
        ValueError: a tensor's shape is not what the config says.
    """
    values: Tensors = {}
    fresh: list[str] = []
    used: set[str] = set()
    for variable in model.weights:
        parts = table.get(variable.path, [])
        if not parts or any(part.name not in tensors for part in parts):
            fresh.append(variable.path)
            continue
        *rows, columns = variable.shape
        shape = (*rows, columns // len(parts))
        pieces = [_piece(part, tensors[part.name], shape) for part in parts]
        if len(pieces[0]) < shape[0]:
            fresh.append(f"{variable.path}[{len(pieces[0])}:]")
            pieces = [_grow(pieces[0], shape)]
        values[variable.path] = np.concatenate(pieces, axis=-1)
        used.update(part.name for part in parts)
    for variable in model.weights:
        if variable.path in values:
            variable.assign(values[variable.path])
    return LoadReport(tuple(fresh), tuple(sorted(set(tensors) - used)))


def _piece(part: Part, tensor: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    """What a tensor fills: of ``shape``, or with fewer rows if it is the word table."""
    value = tensor.T if part.transposed else tensor
    short = part.name.endswith("word_embeddings.weight") and 0 < len(value) < shape[0]
    if value.shape != ((len(value), *shape[1:]) if short else shape):
        expected = shape[::-1] if part.transposed else shape
        raise ValueError(
            f"{part.name} has shape {tensor.shape}, the config says {expected}: weights and "
            f"{CONFIG} do not belong together"
        )
    return value


def _grow(table: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    """A word table with fresh rows below, where the tokenizer has more ids than it."""
    fresh = np.random.default_rng(0).normal(0, 0.02, (shape[0] - len(table), *shape[1:]))
    return np.concatenate([table, fresh.astype(np.float32)])


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
    tensors = dict(_tensors(model, names.bert_table(config)))
    temporary = path / (WEIGHTS + ".tmp")
    save_file(_compact(tensors) if compact else tensors, temporary)
    temporary.replace(path / WEIGHTS)
    hugging_face = {"model_type": "bert", "architectures": ["BertForQuestionAnswering"]}
    _write_json(path / CONFIG, {**hugging_face, **config.to_dict()})
    save_settings(path, settings)
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


def _tensors(model: Any, table: Table) -> Iterator[tuple[str, FloatArray]]:
    for variable in model.weights:
        parts = table[variable.path]
        value = np.asarray(variable.numpy(), np.float32)
        for part, piece in zip(parts, np.split(value, len(parts), axis=-1), strict=True):
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
