"""Prunes a model folder by the importance of its parts on training data (``nq.model.pruning``).

TensorFlow and numpy are imported when a pruning starts.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from nq.config import PruningConfig, StorageConfig, TrainConfig, WindowConfig
from nq.formats import input_files, inputs
from nq.formats.fields import RecordError
from nq.formats.input_files import shown
from nq.formats.inputs import read_records
from nq.model.convert import check_head_width, convert, fitting_windows
from nq.model.folder import load_joint_config, load_settings
from nq.model.pruning import PruningRecord, prune_weights, pruned_shape, select
from nq.preprocess.features import training_features
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.records import DeadLetter, Features

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
) -> LoadedModel:
    """Converts a model without its least important heads, feed-forward units and layers.

    The importance is measured on annotated data. The decision of the model is kept; ``nq tune``
    fits it again.

    ``data`` are annotated files, globs or folders, ``counts`` the numbers of parts to keep; ``to``
    and ``storage``: see ``convert``.
    """
    shape = pruned_shape(load_joint_config(source), counts)
    check_head_width(to, shape)

    def change(loaded: LoadedModel) -> LoadedModel:
        from nq.model import checkpoint, joint
        from nq.training.importance import assign, importance, weights_of

        config, folder, whole = loaded.config, loaded.folder, loaded.model
        if SPAN_HEAD in loaded.report.missing:
            raise ValueError(
                f"{folder} has no span head, so that no part of it has an importance for answers: "
                "train it first with nq train --init"
            )
        own = fitting_windows(load_settings(folder).windows, config)
        tokenizer = load_tokenizer(folder, own.compat)
        windows = training_windows(files, tokenizer, own, pages=pages)
        roomy = checkpoint.with_room_for(config, tokenizer)
        if roomy != config:  # the vocabulary lacks markers, which need rows of word embeddings
            whole = joint.load(folder, config=roomy).model
        fewer_layers = shape.num_hidden_layers < config.num_hidden_layers
        kept = select(importance(whole, config, windows, fewer_layers), config, shape)
        model = joint.build(shape, initialize=False)
        assign(model, prune_weights(weights_of(loaded.model), config, kept))
        names = tuple(shown(Path(file).name) for file in files)
        record = PruningRecord(folder.name, config, shape, kept, len(windows), names)
        return dataclasses.replace(loaded, config=shape, model=model, pruning=record)

    with input_files.input_files(data) as files:
        inputs.check(files, pages=pages)
        return convert(source, target, to, storage, change)


def training_windows(
    files: Sequence[str],
    tokenizer: Tokenizer,
    config: WindowConfig,
    count: int = WINDOWS,
    pages: PageFolder | None = None,
) -> TrainingWindows:
    """Returns the first ``count`` windows of a training on some files, with its default settings.

    One record of each file is read in turn, no more than are needed; bad ones are counted and
    logged.
    """
    import numpy as np

    from nq.formats.tfrecord import INPUTS, TARGETS
    from nq.training.windows import TrainingWindows

    recipe = TrainConfig()
    parts: list[Features] = []
    total, bad = 0, list[str]()
    readers = [read_records(file, i, pages=pages) for i, file in enumerate(files)]
    for source, item in filter(None, chain.from_iterable(zip_longest(*readers))):
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
