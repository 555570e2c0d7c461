"""Prunes a model folder by the importance of its parts on training data (``nq.model.pruning``).

TensorFlow and numpy are imported when a pruning starts.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nq.config import ModelConfig, PruningConfig, StorageConfig, TrainConfig, WindowConfig
from nq.formats import input_files, inputs
from nq.formats.decoding import read_records
from nq.formats.fields import RecordError
from nq.formats.streams import shown
from nq.model.convert import (
    ConversionResult,
    check_head_width,
    convert,
    fitting_windows,
)
from nq.records import DeadLetter, Example, Features, Source

if TYPE_CHECKING:
    from nq.formats.questions import PageFolder
    from nq.model.joint import LoadedModel
    from nq.preprocess.tokenizers.base import Tokenizer
    from nq.training.windows import TrainingWindows

log = logging.getLogger(__name__)

WINDOWS = 512
"""Training windows that the importance is measured on."""
SPAN_HEAD = "span_output/kernel"


def prune(
    source: Path,
    target: Path,
    counts: PruningConfig,
    data: Sequence[str],
    to: str = "nq",
    storage: StorageConfig | None = None,
    pages: PageFolder | None = None,
) -> ConversionResult:
    """Converts a model without its least important heads, feed-forward units and layers.

    The decision of the model is kept; ``nq tune`` fits it again.

    Args:
        source: model folder of any kind.
        target: folder to write, which must be empty or not exist.
        counts: how much is kept.
        data: annotated files, globs or folders.
        to, storage: see ``convert``.
        pages: the pages that questions name.

    Raises:
        FileNotFoundError: a file is missing.
        OSError: the target cannot be written.
        ValueError: the model or the data cannot be used, or the model lacks what is to be kept.
        ArithmeticError: gradients are not finite.
        Error: a package is not installed, or every record is bad.
    """
    from nq.model.folder import load_joint_config
    from nq.model.pruning import pruned_shape

    shape = pruned_shape(load_joint_config(source), counts)
    check_head_width(to, shape)
    with input_files.input_files(data) as files:
        inputs.check_files(files)
        inputs.check_records(files, pages=pages)
        inputs.mention_unnamed_pages(files, pages)

        def change(loaded: LoadedModel) -> LoadedModel:
            return pruned_model(loaded, shape, files, pages)

        return convert(source, target, to, storage, change)


def pruned_model(
    loaded: LoadedModel, shape: ModelConfig, files: Sequence[str], pages: PageFolder | None = None
) -> LoadedModel:
    """Returns a model with the most important part of another one's weights.

    Args:
        loaded: the model before.
        shape: of the pruned model (``nq.model.pruning.pruned_shape``).
        files: annotated files.
        pages: the pages that questions name.

    Raises:
        ValueError: the model has no span head, or another one's vocabulary, or no record has an
            annotation.
        ArithmeticError: gradients are not finite.
    """
    from nq.model import checkpoint, joint
    from nq.model.folder import load_settings
    from nq.model.pruning import PruningRecord, prune_weights, select
    from nq.preprocess.tokenizers.load import load_tokenizer
    from nq.training.importance import assign, importance, weights_of

    config, folder = loaded.config, loaded.folder
    if SPAN_HEAD in loaded.report.missing:
        raise ValueError(
            f"{folder} has no span head, so that no part of it has an importance for answers: "
            "train it first with nq train --init"
        )
    own = fitting_windows(load_settings(folder).windows, config)
    tokenizer = load_tokenizer(folder, own.compat)
    windows = training_windows(files, tokenizer, own, pages=pages)
    whole = _with_room_for(loaded, checkpoint.with_room_for(config, tokenizer))
    fewer_layers = shape.num_hidden_layers < config.num_hidden_layers
    kept = select(importance(whole, config, windows, fewer_layers), config, shape)
    model = joint.build(shape, initialize=False)
    assign(model, prune_weights(weights_of(loaded.model), config, kept))
    names = tuple(shown(Path(file).name) for file in files)
    record = PruningRecord(folder.name, config, shape, kept, len(windows), names)
    return dataclasses.replace(loaded, config=shape, model=model, pruning=record)


def _with_room_for(loaded: LoadedModel, config: ModelConfig) -> Any:
    """Returns a model with rows of word embeddings for markers that its vocabulary lacks."""
    from nq.model import joint

    if config == loaded.config:
        return loaded.model
    return joint.load(loaded.folder, config=config).model


def training_windows(
    files: Sequence[str],
    tokenizer: Tokenizer,
    config: WindowConfig,
    count: int = WINDOWS,
    pages: PageFolder | None = None,
) -> TrainingWindows:
    """Returns the first windows that a training on some files would have, with its defaults.

    Records are read from each file in turn, no more of them than are needed; bad ones are counted
    and logged.

    Args:
        files: input files.
        tokenizer: cuts words into pieces.
        config: how pages become windows.
        count: windows to return at most.
        pages: the pages that questions name.

    Raises:
        ValueError: there are none.
    """
    import numpy as np

    from nq.formats.tfrecord import INPUTS, TARGETS
    from nq.preprocess.features import training_features
    from nq.training.windows import TrainingWindows

    recipe = TrainConfig()
    parts: list[Features] = []
    total, bad = 0, list[str]()
    for source, item in _records(files, pages):
        try:
            if isinstance(item, DeadLetter):
                raise RecordError(item.reason)
            if item.annotations:
                sampling = recipe.negatives, recipe.seed
                parts.append(training_features(item, tokenizer, config, *sampling))
                total += len(parts[-1])
        except RecordError as error:
            bad.append(f"{source.path}, line {source.line}: {error}")
        if total >= count:
            break
    if bad:
        log.warning("bad records, which are skipped: %d; the first: %s", len(bad), bad[0])
    if not total:
        raise ValueError(
            f"no window with an answer in {', '.join(map(shown, files))}: expected records with "
            "annotations, as nq train does"
        )
    if total < count:
        log.warning("training windows of the data: %d, fewer than %d", total, count)
    columns = {
        name: np.concatenate([getattr(part, name) for part in parts])[:count]
        for name in (*INPUTS, *TARGETS)
    }
    return TrainingWindows.from_columns(columns)


def _records(
    files: Sequence[str], pages: PageFolder | None
) -> Iterator[tuple[Source, Example | DeadLetter]]:
    """Yields the records of all files, one of each file in turn."""
    readers = [read_records(file, i, pages=pages) for i, file in enumerate(files)]
    for record in chain.from_iterable(zip_longest(*readers)):
        if record is not None:
            yield record
