"""Model folders: config, tokenizer, weights, thresholds, model card.

Weights are written into ``model.safetensors`` under Hugging Face's names, so that a folder
of ours is a BERT folder (or that of a relative) with two more heads. The word table may be
stored in 8 bits with a scale a row, everything else in float16. Other people's folders are
read as they are; see ``nq.model.weights`` for the kinds.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from nq.config import DecisionConfig, ModelConfig, WindowConfig
from nq.model import names, weights
from nq.model.families import decode_config, encode_config, layout_of
from nq.model.names import Part, Table
from nq.model.weights import CONFIG, SCALE, TF_CONFIG, WEIGHTS, Weights, tf_prefix, weight_files
from nq.preprocess.tokenizers.base import Tokenizer
from nq.records import FloatArray

__all__ = ["CONFIG", "WEIGHTS", "Weights", "weight_files"]

log = logging.getLogger(__name__)

SETTINGS, CARD = "nq.json", "README.md"
SPARE_ROWS = 64  # word tables are padded up to a multiple of it
TYPE_HEAD = ("type_output/kernel", "type_output/bias")
Tensors = dict[str, FloatArray]


@dataclass(frozen=True)
class LoadReport:
    """What a checkpoint did not settle: weights left fresh, tensors left over.

    A word table that lacks rows is named with them, as in ``word_embeddings[30000:]``.
    """

    fresh: tuple[str, ...] = ()
    left_over: tuple[str, ...] = ()

    @property
    def without_types(self) -> bool:
        """Whether there is no head for types: its logits are 0, [CLS] alone decides on null."""
        return TYPE_HEAD[0] in self.fresh

    def warning(self) -> str:
        """What the checkpoint lacks, in a line; empty where it lacks nothing that matters."""
        unused = ("type_output", "pooler") if self.without_types else ()
        random = (
            [name for name in self.fresh if not name.startswith(unused)]
            if unused
            else [*self.fresh]
        )
        said = [f"not in the checkpoint, left random: {', '.join(random)}"] if random else []
        if self.without_types:
            said.append("no head for types in the checkpoint: null is decided by [CLS] alone")
        return "; ".join(said)


@dataclass(frozen=True)
class ModelSettings:
    """What a model folder says besides its weights."""

    windows: WindowConfig = field(default_factory=WindowConfig)
    decision: DecisionConfig = field(default_factory=DecisionConfig)


def load_config(folder: str | Path) -> ModelConfig:
    """The encoder's shape from ``config.json``, or Google's ``bert_config.json``.

    Raises:
        FileNotFoundError: no such file; says what a model folder holds.
        ValueError: a family that is not known, or a field is of the wrong kind or out of range.
    """
    path = Path(folder) / CONFIG
    google = Path(folder) / TF_CONFIG
    if not path.is_file() and not google.is_file():
        if tf_prefix(Path(folder)):
            raise FileNotFoundError(
                f"no {TF_CONFIG} in {folder} beside the TensorFlow checkpoint: put there the one "
                "that the checkpoint came with"
            )
        raise FileNotFoundError(
            f"no model in {folder}: expected {CONFIG}, {WEIGHTS} and vocab.txt or spiece.model "
            f"(or {TF_CONFIG}, a TensorFlow checkpoint and its vocabulary)"
        )
    if not path.is_file():
        path = google
    values = _read_json(path)
    if path == google and values.get("hidden_act") == "gelu":
        values["hidden_act"] = "gelu_new"  # Google's code computes it by tanh
    try:
        return decode_config(values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def check(folder: str | Path) -> None:
    """Looks at what can be wrong with a folder before TensorFlow is there.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, or config and weights are of different models.
    """
    config = load_config(folder)
    if weight_files(folder)[0].suffix == ".safetensors":
        read_tensors(folder).table(config)


def with_room_for(config: ModelConfig, tokenizer: Tokenizer) -> ModelConfig:
    """``config`` with a word table that has a row for each of the tokenizer's ids.

    Only markers may lie beyond the table, which grows for them.

    Raises:
        ValueError: the vocabulary is another model's.
    """
    own, rows = tokenizer.pieces, config.vocab_size
    files = ", ".join(sorted(tokenizer.files))
    if own > rows or tokenizer.vocab_size <= rows - SPARE_ROWS:
        raise ValueError(
            f"{files} has {own} pieces, {CONFIG} says vocab_size {rows}: expected equal numbers; "
            "put the vocabulary there that the model came with"
        )
    if rows not in (own, tokenizer.vocab_size):
        log.warning("%s has %d pieces, the word table %d rows: is it padded?", files, own, rows)
    return dataclasses.replace(config, vocab_size=max(rows, tokenizer.vocab_size))


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
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path} holds {type(values).__name__}, expected a JSON object")
    return values


def read_tensors(folder: str | Path) -> Weights:
    """The folder's tensors, by canonical name; each is read, as float32, when asked for.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, or a pickle.
    """
    path = Path(folder) / CONFIG
    layout = layout_of(load_config(folder)) if path.is_file() else names.BERT
    return weights.read_tensors(folder, layout)


def load(folder: str | Path, model: Any, config: ModelConfig) -> LoadReport:
    """Fills ``model``, built for ``config``, with the folder's weights.

    Kernels of heads that the folder lacks are drawn where the model was built without.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, or weights and config do not belong together.
    """
    tensors = read_tensors(folder)
    report = fill(model, tensors, tensors.table(config))
    draw = np.random.default_rng(0)
    for variable in model.weights:
        untouched = variable.path in report.fresh and variable.path not in TYPE_HEAD
        if untouched and variable.path.endswith("kernel") and not np.any(variable.numpy()):
            value = draw.normal(0, config.initializer_range, variable.shape)
            variable.assign(value.astype(np.float32))
    return report


def fill(model: Any, tensors: Mapping[str, FloatArray], table: Table) -> LoadReport:
    """Fills the model's weights from a checkpoint; nothing is filled if a shape is wrong.

    All shapes are compared first; then tensors are read one by one. A head for types that
    the checkpoint lacks becomes zero, so that no type is likelier than another.

    Raises:
        ValueError: a tensor's shape is not what the config says.
    """
    shapes = tensors.shapes if isinstance(tensors, Weights) else _shapes(tensors)
    fresh: list[str] = []
    used: set[str] = set()
    filled: list[tuple[Any, list[Part], tuple[int, ...]]] = []
    for variable in model.weights:
        parts = table.get(variable.path, [])
        if not parts or any(part.name not in tensors for part in parts):
            fresh.append(variable.path)
            continue
        *rows, columns = variable.shape
        shape = (*rows, columns // len(parts))
        for part in parts:
            there = _checked_rows(part, shapes[part.name], shape, _is_word_table(variable.path))
            if there < shape[0]:
                fresh.append(f"{variable.path}[{there}:]")
        filled.append((variable, parts, shape))
        used.update(part.name for part in parts)
    for variable, parts, shape in filled:
        if isinstance(tensors, Weights) and _is_word_table(variable.path):
            _fill_by_rows(variable, tensors, parts[0].name, shape)
            continue
        pieces = [tensors[part.name].T if part.transposed else tensors[part.name] for part in parts]
        if len(pieces[0]) < shape[0]:
            pieces = [_grow(pieces[0], shape)]
        value = pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=-1)
        _write(variable, value)
    for variable in model.weights:
        if variable.path in TYPE_HEAD and variable.path in fresh:
            variable.assign(np.zeros(variable.shape, np.float32))
    return LoadReport(tuple(fresh), tuple(sorted(set(tensors) - used)))


def _fill_by_rows(variable: Any, tensors: Weights, name: str, shape: tuple[int, ...]) -> None:
    """Fills the word table block by block."""
    rows = tensors.shapes[name][0]
    for first, block in tensors.chunks(name):
        _write(variable, block, first)
    if rows < shape[0]:
        _write(variable, _fresh_rows(rows, shape), rows)


def _write(variable: Any, rows: FloatArray, first: int = 0) -> None:
    """Puts rows into a weight in place: an assignment would allocate the weight once more."""
    from tensorflow import raw_ops

    indices = np.arange(first, first + len(rows), dtype=np.int32)
    values = rows.astype(variable.dtype)  # ml_dtypes gives numpy its bfloat16
    raw_ops.ResourceScatterUpdate(resource=variable.value.handle, indices=indices, updates=values)


def _shapes(tensors: Mapping[str, FloatArray]) -> dict[str, tuple[int, ...]]:
    return {name: value.shape for name, value in tensors.items()}


def _is_word_table(path: str) -> bool:
    return path.endswith("word_embeddings")


def _checked_rows(
    part: Part, found: tuple[int, ...], shape: tuple[int, ...], may_be_short: bool
) -> int:
    """The rows of a tensor that fills ``shape``; fewer than its if it is the word table."""
    there = found[::-1] if part.transposed else found
    short = may_be_short and bool(there) and 0 < there[0] < shape[0]
    if there != ((there[0], *shape[1:]) if short else shape):
        expected = shape[::-1] if part.transposed else shape
        raise ValueError(
            f"{part.name} has shape {found}, the config says {expected}: weights and "
            f"{CONFIG} do not belong together"
        )
    return there[0]


def _grow(table: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    """A word table with fresh rows below, where the tokenizer has more ids than it."""
    return np.concatenate([table, _fresh_rows(len(table), shape)])


def _fresh_rows(rows: int, shape: tuple[int, ...]) -> FloatArray:
    fresh = np.random.default_rng(0).normal(0, 0.02, (shape[0] - rows, *shape[1:]))
    return fresh.astype(np.float32)


def save(
    folder: str | Path,
    model: Any,
    config: ModelConfig,
    tokenizer: Tokenizer,
    settings: ModelSettings,
    card: str,
    compact: bool = False,
    skip: Collection[str] = (),
) -> None:
    """Writes a model folder.

    Args:
        compact: word table in 8 bits, everything else in float16; else float32.
        skip: weights of the model to leave out, by path.
    """
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    save_weights(path, model, config, compact, skip)
    save_settings(path, settings)
    save_tokenizer(path, tokenizer)
    (path / CARD).write_text(card, encoding="utf-8")


def save_weights(
    folder: Path,
    model: Any,
    config: ModelConfig,
    compact: bool = False,
    skip: Collection[str] = (),
) -> None:
    """Writes ``config.json`` and ``model.safetensors`` in Hugging Face's layout."""
    tensors = dict(_tensors(model, names.table(config, layout_of(config)), skip))
    temporary = folder / (WEIGHTS + ".tmp")
    stored = _compact(tensors) if compact else tensors
    save_file(stored, temporary, metadata={"format": "pt"})  # transformers insists on it
    temporary.chmod(0o644)  # safetensors leaves it to its owner alone
    temporary.replace(folder / WEIGHTS)
    _write_json(folder / CONFIG, encode_config(config))


def save_tokenizer(folder: Path, tokenizer: Tokenizer) -> None:
    """Copies the tokenizer's files into a folder."""
    for name, source in tokenizer.files.items():
        if source.resolve() != (folder / name).resolve():
            shutil.copyfile(source, folder / name)
    lowercase = getattr(tokenizer, "lowercase", None)
    if lowercase is not None:
        others = ("keep_accents", "strip_accents", "tokenize_chinese_chars")
        said = {name: getattr(tokenizer, name) for name in others if hasattr(tokenizer, name)}
        _write_json(folder / "tokenizer_config.json", {"do_lower_case": lowercase, **said})


def save_settings(folder: str | Path, settings: ModelSettings) -> None:
    """Writes windows and thresholds into a model folder."""
    _write_json(
        Path(folder) / SETTINGS,
        {"windows": settings.windows.to_dict(), "decision": settings.decision.to_dict()},
    )


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def _tensors(model: Any, table: Table, skip: Collection[str]) -> Iterator[tuple[str, FloatArray]]:
    for variable in model.weights:
        if variable.path in skip:
            continue
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
