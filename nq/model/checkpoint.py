"""Weights of a Keras model are filled from a folder and saved into one.

A saved folder is that of a BERT (or of another family) for Hugging Face with two more heads and
``nq.json``. ``nq.model.folder`` reads other kinds as well.
"""

import dataclasses
import shutil
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from nq.json_files import dump_json
from nq.model import names, tensor_files
from nq.model.config import STORES, ModelConfig
from nq.model.families import encode_config, layout_of
from nq.model.folder import CARD, CONFIG, ModelFolder, ModelSettings, save_settings
from nq.model.tensors import CheckpointTensors
from nq.preprocess.tokenizers import FILES
from nq.preprocess.tokenizers.base import Tokenizer
from nq.records import FloatArray

TYPE_HEAD = ("type_output/kernel", "type_output/bias")
ROWS = 4096  # that are written at once
PADDING_ROWS, PADDING_SHARE = 64, 100  # tables are often padded to a multiple, or by up to 1 %


@dataclass(frozen=True)
class LoadReport:
    """The differences between a model and the checkpoint that filled it.

    ``missing`` are the weights that the checkpoint lacks, word embeddings with the missing rows, as
    in ``embeddings/word_embeddings[30000:]``; ``unexpected`` are tensors that fill no weight.
    """

    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, tensors: CheckpointTensors, config: ModelConfig, paths: Iterable[str] | None = None
    ) -> Self:
        """Compares a checkpoint with the weights at ``paths``, by default all of the model."""
        table = tensors.table(config)
        missing: list[str] = []
        used: set[str] = set()
        for path in table if paths is None else paths:
            weight = table[path]
            if not tensors.fill(weight):
                missing.append(path)
                continue
            used.update(weight.tensors)
            rows = tensors.shapes[weight.tensors[0]][0]
            if path == names.WORD_EMBEDDINGS and rows < weight.shape[0]:
                missing.append(f"{path}[{rows}:]")
        return cls(tuple(missing), tuple(sorted(tensors.shapes.keys() - used)))

    def warning(self, needs_types: bool = True) -> str:
        """Returns one line on the missing weights that matter, an empty one if none does."""
        lacks_type_head = TYPE_HEAD[0] in self.missing  # all type logits are 0
        unused = ("type_output", "pooler") if lacks_type_head else ()
        random = [name for name in self.missing if not name.startswith(unused)]
        warnings = [f"not in the checkpoint, left random: {', '.join(random)}"] if random else []
        if lacks_type_head and needs_types:
            warnings.append("no head for types in the checkpoint: null is decided by [CLS] alone")
        return "; ".join(warnings)


def with_room_for(config: ModelConfig, tokenizer: Tokenizer) -> ModelConfig:
    """Returns ``config`` with a row of word embeddings for each id of the tokenizer."""
    pieces = tokenizer.pieces
    rows = config.vocab_size
    files = ", ".join(sorted(tokenizer.files))
    if pieces > rows or tokenizer.vocab_size <= rows - max(PADDING_ROWS, rows // PADDING_SHARE):
        raise ValueError(
            f"{files} has {pieces} pieces, {CONFIG} says vocab_size {rows}: put the vocabulary "
            "there that the model came with"
        )
    return dataclasses.replace(config, vocab_size=max(rows, tokenizer.vocab_size))


def fill(model: Any, tensors: CheckpointTensors, config: ModelConfig) -> LoadReport:
    """Fills a model's weights from the tensors of a checkpoint, one weight at a time.

    All shapes are compared first. If the checkpoint lacks the type head, it becomes zero, so that
    all types have the same logit. Other missing kernels are drawn at random if the model was built
    with zeros, as are missing rows of the word embeddings.
    """
    report = LoadReport.of(tensors, config, [variable.path for variable in model.weights])
    table = tensors.table(config)
    draw = np.random.default_rng(0)
    for variable in model.weights:
        path = variable.path
        weight = table[variable.path]
        if not tensors.fill(weight):
            if path in TYPE_HEAD:
                variable.assign(np.zeros(variable.shape, np.float32))
            elif path.endswith("kernel") and not np.any(variable.numpy()):
                value = draw.normal(0, config.initializer_range, variable.shape)
                variable.assign(value.astype(np.float32))
            continue
        values = [tensors.read(name) for name in weight.tensors]
        values = [value.T for value in values] if weight.transposed else values
        value = values[0] if len(values) == 1 else np.concatenate(values, axis=-1)
        rows = len(value)
        all_rows = variable.shape[0]
        if rows < all_rows:  # of word embeddings
            shape = (all_rows - rows, *value.shape[1:])
            more = np.random.default_rng(0).normal(0, config.initializer_range, shape)
            value = np.concatenate([value, more.astype(np.float32)])
        _write(variable, value.astype(variable.dtype, copy=False))  # ml_dtypes knows bfloat16
    return report


def _write(variable: Any, value: FloatArray) -> None:
    """Assigns a weight in place; TensorFlow's own assignment allocates its size twice more."""
    import keras

    if keras.config.backend() != "tensorflow":
        variable.assign(value)
        return
    from tensorflow import raw_ops

    for first in range(0, len(value), ROWS):
        rows = value[first : first + ROWS]
        places = np.arange(first, first + len(rows), dtype=np.int32)
        handle = variable.value.handle
        raw_ops.ResourceScatterUpdate(resource=handle, indices=places, updates=rows)


def save(
    folder: Path,
    model: Any,
    config: ModelConfig,
    tokenizer: Tokenizer,
    settings: ModelSettings,
    card: str,
    store: str = STORES[0],
    skip: Collection[str] = (),
) -> None:
    """Writes a model folder, without the weights whose paths are in ``skip``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG).unlink(missing_ok=True)  # files of two models are none
    tokenizer.save(folder)
    (folder / CARD).write_text(card, encoding="utf-8")
    save_weights(folder, model, config, store, skip, settings)


def save_weights(
    folder: Path,
    model: Any,
    config: ModelConfig,
    store: str = STORES[0],
    skip: Collection[str] = (),
    settings: ModelSettings | None = None,
) -> None:
    """Writes the weights with the names of Hugging Face, and ``config.json``; see ``save``."""
    table = names.weight_table(config, layout_of(config))
    stored: dict[str, np.ndarray[Any, Any]] = {}
    for variable in model.weights:
        if variable.path in skip:
            continue
        weight = table[variable.path]
        value = np.asarray(variable.numpy(), np.float32)
        parts = np.split(value, len(weight.tensors), axis=-1)
        for name, part in zip(weight.tensors, parts, strict=True):
            rows = np.ascontiguousarray(part.T if weight.transposed else part)
            stored |= tensor_files.encode(name, rows, variable.path, store)
    tensor_files.write_safetensors(folder, stored)
    if settings is not None:
        save_settings(
            folder, dataclasses.replace(settings, weights=ModelFolder(folder).file_digests)
        )
    dump_json(folder / CONFIG, encode_config(config))  # the last: without it there is no model


def copy_tokenizer(source: Path, folder: Path) -> None:
    """Copies all files of a tokenizer between folders: those that transformers reads, too."""
    for name in FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)
