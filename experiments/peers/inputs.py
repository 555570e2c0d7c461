"""The input of all peers: one model in two folders, and full windows of real pages."""

import dataclasses
import math
from collections.abc import Sequence
from itertools import chain, islice
from pathlib import Path

import numpy as np

from experiments.peers.models import Task
from nq.bundle import bundled_model
from nq.config import WindowConfig
from nq.errors import Error
from nq.formats.tfrecord import decode_records, inference_shapes, raw_records
from nq.inference.batches import Shape, by_length
from nq.inference.load import calibration_rows
from nq.inference.scorer import concatenate
from nq.model import checkpoint, joint
from nq.model.config import ModelConfig
from nq.model.convert import write_hugging_face
from nq.model.folder import ModelFolder
from nq.model.model import ModelPart
from nq.preprocess.prepared import Request, prepare
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.questions import Questions
from nq.records import Columns

READ_BATCH = 256


def random_model(config: ModelConfig, folder: Path, like: Path | None = None) -> Path:
    """Makes a model folder of random weights, with vocabulary and windows of the bundled reader.

    ``like`` is another model folder to have them from.
    """
    like = like or bundled_model()
    tokenizer = load_tokenizer(like)
    settings = ModelFolder(like).settings
    checkpoint.save(
        folder,
        joint.build(config),
        config,
        tokenizer,
        settings,
        "# Random weights\n",
    )
    return folder


def task(
    files: Sequence[str],
    model: Path,
    windows: WindowConfig,
    batch_size: int,
    count: int,
    folder: Path,
) -> Task:
    """Prepares what the peers compute: full windows of files, rounded up to whole batches.

    Raises:
        Error: the pages have fewer full windows.
    """
    request = Request(
        Questions(tuple(files)),
        load_tokenizer(model, windows.compat),
        windows,
    )
    prepared = prepare(request, folder / "windows")
    shape = Shape(batch_size, windows.max_seq_length)
    part = ModelPart(ModelFolder(model), windows)
    pages = (one.example for one in prepared)
    some_rows = calibration_rows(pages, part, batch_size)
    rows = folder / "rows.npz"
    calibration = folder / "calibration.npz"
    full_rows = full_windows(prepared.shards, shape.length, whole(count, shape))
    np.savez(rows, allow_pickle=False, **full_rows)
    np.savez(calibration, allow_pickle=False, **some_rows)
    hugging_face = folder / "hugging-face"
    # missing weights are random, but equal in both folders
    config = checkpoint.with_room_for(ModelFolder(model).config, load_tokenizer(model))
    loaded = joint.load_model(ModelFolder(model), config=config)
    write_hugging_face(dataclasses.replace(loaded, report=checkpoint.LoadReport()), hugging_face)
    return Task(model, hugging_face, windows, rows, calibration, batch_size)


def whole(count: int, shape: Shape) -> int:
    """Returns ``count`` rounded up to whole batches, also to those of the profile ``buckets``.

    >>> whole(10, Shape(8, 512)), whole(10, Shape(8, 128))
    (16, 32)
    """
    sorted_by_length = by_length(np.array([shape.length]), shape)[0].shape.batch_size
    multiple = math.lcm(shape.batch_size, sorted_by_length)
    return -(-count // multiple) * multiple


def full_windows(shards: Sequence[Path], length: int, count: int) -> Columns:
    """Returns the first ``count`` windows without padding; an ``Error`` if there are fewer."""
    records = chain.from_iterable(map(raw_records, shards))
    parts: list[Columns] = []
    missing = count
    while missing and (batch := list(islice(records, READ_BATCH))):
        rows = decode_records(batch, inference_shapes(length))
        full = np.flatnonzero(rows["input_mask"].all(axis=1))[:missing]
        parts.append({name: column[full] for name, column in rows.items()})
        missing -= len(full)
    if missing:
        raise Error(
            f"the data have {count - missing} full windows of {length} pieces, {count} are needed: "
            "give more pages, or ask for fewer windows, smaller batches or a smaller length"
        )
    return concatenate(parts)
