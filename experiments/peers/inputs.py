"""What all peers compute: one model in two folders, and full windows of real pages."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.peers.models import Task
from nq.bundle import bundled_model
from nq.config import ModelConfig, WindowConfig
from nq.errors import Error
from nq.inference import predict
from nq.inference.batches import Shape, by_length
from nq.inference.engine import Rows
from nq.model import checkpoint, joint
from nq.model.convert import LoadedModel, write_hugging_face
from nq.preprocess.prepare import Request, prepare
from nq.preprocess.tokenizers.load import load_tokenizer


def random_model(config: ModelConfig, folder: Path) -> Path:
    """A model folder of random weights, with the bundled vocabulary and windows."""
    bundled = bundled_model()
    tokenizer, settings = load_tokenizer(bundled), checkpoint.load_settings(bundled)
    checkpoint.save(folder, joint.build(config), config, tokenizer, settings, "# Random weights\n")
    return folder


def window_config(model: Path, length: int | None) -> WindowConfig:
    """The model's windows, in another length if one is given.

    Raises:
        ValueError: the model, or a question, does not allow the length.
    """
    own = checkpoint.load_settings(model).windows
    windows = dataclasses.replace(own, max_seq_length=length) if length else own
    joint.check_length(checkpoint.load_config(model), windows.max_seq_length)
    return windows


def task(
    files: Sequence[str],
    model: Path,
    windows: WindowConfig,
    batch_size: int,
    count: int,
    folder: Path,
) -> Task:
    """Prepares everything in ``folder``.

    Args:
        files: pages to take windows from.
        model: a model folder.
        windows: how pages become windows.
        batch_size: windows in a batch.
        count: full windows to compute; rounded up to whole batches.
        folder: to write into.

    Raises:
        Error: the pages do not have so many full windows.
    """
    prepared = prepare(Request(tuple(files), str(model), windows), folder / "windows")
    shape = Shape(batch_size, windows.max_seq_length)
    rows, calibration = folder / "rows.npz", folder / "calibration.npz"
    np.savez(rows, allow_pickle=False, **full_windows(prepared.shards, shape, whole(count, shape)))
    np.savez(calibration, allow_pickle=False, **predict.some_windows(prepared.shards, shape))
    hugging_face = folder / "hugging-face"
    _convert(model, hugging_face)
    return Task(model, hugging_face, windows, prepared.shards, rows, calibration, batch_size)


def whole(count: int, shape: Shape) -> int:
    """``count`` rounded up to whole batches, those of the profile ``buckets`` too.

    >>> whole(10, Shape(8, 512)), whole(10, Shape(8, 128))
    (16, 32)
    """
    sorted_by_length = by_length(np.array([shape.length]), shape)[0].shape.batch_size
    least = math.lcm(shape.batch_size, sorted_by_length)
    return -(-count // least) * least


def full_windows(shards: Sequence[Path], shape: Shape, count: int) -> Rows:
    """The first windows without padding.

    Raises:
        Error: there are fewer.
    """
    found: list[Rows] = []
    missing = count
    for rows in (rows for shard in shards for rows in predict.parts(shard, shape)):
        full = np.flatnonzero(rows["input_mask"].all(axis=1))[:missing]
        found.append({name: column[full] for name, column in rows.items()})
        missing -= len(full)
        if not missing:
            return {name: np.concatenate([some[name] for some in found]) for name in rows}
    raise Error(
        f"{count - missing} full windows of {shape.length} pieces in the data, {count} are needed: "
        "give more pages, or ask for fewer windows, smaller batches or a smaller length"
    )


def _convert(model: Path, folder: Path) -> None:
    """The same weights for ``transformers``; what the model lacks is random, but equal too."""
    config = checkpoint.with_room_for(checkpoint.load_config(model), load_tokenizer(model))
    network = joint.build(config, initialize=False)
    checkpoint.load(model, network, config)
    write_hugging_face(LoadedModel(model, config, network, checkpoint.LoadReport()), folder)
