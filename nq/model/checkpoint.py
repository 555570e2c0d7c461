"""Model folders: a model is filled from one and saved into one.

A folder holds ``config.json``, ``model.safetensors`` with the names of Hugging Face, ``nq.json``,
the files of the tokenizer and a model card. It is therefore a BERT folder (or that of another
family) with two more heads. Folders of other kinds are read as well (``nq.model.folder``).
"""

from __future__ import annotations

import dataclasses
import logging
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nq.config import ModelConfig, StorageConfig
from nq.model import names, quantize, safetensors_file
from nq.model.families import encode_config, layout_of
from nq.model.fill import TYPE_HEAD, LoadReport, fill
from nq.model.folder import (
    CARD,
    CONFIG,
    WEIGHTS,
    ModelSettings,
    check,
    load_config,
    load_settings,
    read_tensors,
    save_settings,
    weight_files,
    write_json,
)
from nq.model.piece_ids import dual_encoder_ids
from nq.preprocess.tokenizers.base import Tokenizer

__all__ = [
    "CARD",
    "CONFIG",
    "WEIGHTS",
    "LoadReport",
    "ModelSettings",
    "check",
    "fill",
    "load",
    "load_config",
    "load_settings",
    "read_tensors",
    "save",
    "save_settings",
    "save_tokenizer",
    "save_weights",
    "weight_files",
    "with_room_for",
]

log = logging.getLogger(__name__)

PADDING_ROWS = 64  # embedding tables are often padded to a multiple of it


def with_room_for(config: ModelConfig, tokenizer: Tokenizer) -> ModelConfig:
    """Returns ``config`` with a row of word embeddings for each id of the tokenizer.

    Only the ids of markers may exceed the vocabulary size of the config.

    Raises:
        ValueError: the vocabulary is another model's.
    """
    pieces, rows = tokenizer.pieces, config.vocab_size
    files = ", ".join(sorted(tokenizer.files))
    if pieces > rows or tokenizer.vocab_size <= rows - PADDING_ROWS:
        raise ValueError(
            f"{files} has {pieces} pieces, {CONFIG} says vocab_size {rows}: expected equal "
            "numbers; put the vocabulary there that the model came with"
        )
    if config.is_dual_encoder:
        ids = dual_encoder_ids(tokenizer)
        own = {name: getattr(config, name) for name in ids}
        if ids != own:
            raise ValueError(
                f"{files} has {_listed(ids)}, {CONFIG} has {_listed(own)}: put the vocabulary "
                "there that the model came with"
            )
    if rows not in (pieces, tokenizer.vocab_size):
        log.warning(
            "%s has %d pieces, the word embeddings %d rows: are they padded?", files, pieces, rows
        )
    return dataclasses.replace(config, vocab_size=max(rows, tokenizer.vocab_size))


def _listed(ids: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in ids.items())


def load(folder: str | Path, model: Any, config: ModelConfig) -> LoadReport:
    """Fills a model with the weights of a folder.

    Missing kernels that ``joint.build`` did not initialize are drawn at random.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, or weights and config do not belong together.
    """
    tensors = read_tensors(folder)
    report = fill(model, tensors, tensors.table(config))
    draw = np.random.default_rng(0)
    for variable in model.weights:
        missing = variable.path in report.missing and variable.path not in TYPE_HEAD
        if missing and variable.path.endswith("kernel") and not np.any(variable.numpy()):
            value = draw.normal(0, config.initializer_range, variable.shape)
            variable.assign(value.astype(np.float32))
    return report


def save(
    folder: str | Path,
    model: Any,
    config: ModelConfig,
    tokenizer: Tokenizer,
    settings: ModelSettings,
    card: str,
    storage: StorageConfig | None = None,
    skip: Collection[str] = (),
) -> None:
    """Writes a model folder, which is created if it does not exist.

    Args:
        folder, model, config, tokenizer, settings: what is written where.
        card: text of the model card.
        storage: how the weights are stored; by default as float32 in one file.
        skip: paths of weights that are left out.
    """
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    save_weights(path, model, config, storage, skip)
    save_settings(path, settings)
    save_tokenizer(path, tokenizer)
    (path / CARD).write_text(card, encoding="utf-8")


def save_weights(
    folder: Path,
    model: Any,
    config: ModelConfig,
    storage: StorageConfig | None = None,
    skip: Collection[str] = (),
) -> None:
    """Writes ``config.json`` and the weights with the names of Hugging Face."""
    storage = storage or StorageConfig()
    table = names.table(config, layout_of(config))
    stored: list[safetensors_file.Stored] = []
    for variable in model.weights:
        if variable.path in skip:
            continue
        parts = table[variable.path]
        values = np.split(np.asarray(variable.numpy(), np.float32), len(parts), axis=-1)
        for part, value in zip(parts, values, strict=True):
            rows = np.ascontiguousarray(value.T if part.transposed else value)
            stored.append(quantize.encode(part.name, rows, variable.path, storage.store))
    safetensors_file.write(folder, stored, storage.shard_mb)
    write_json(folder / CONFIG, encode_config(config))


def save_tokenizer(folder: Path, tokenizer: Tokenizer) -> None:
    """Copies the tokenizer's files into a folder and writes ``tokenizer_config.json``."""
    for name, source in tokenizer.files.items():
        if source.resolve() != (folder / name).resolve():
            shutil.copyfile(source, folder / name)
    lowercase = getattr(tokenizer, "lowercase", None)
    if lowercase is not None:
        options = {
            name: getattr(tokenizer, name)
            for name in ("keep_accents", "strip_accents", "tokenize_chinese_chars")
            if hasattr(tokenizer, name)
        }
        write_json(folder / "tokenizer_config.json", {"do_lower_case": lowercase, **options})
