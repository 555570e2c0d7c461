"""Prunes a model folder by the importance of its parts on training data.

    python -m experiments.compression.pruning my_model smaller --prune heads=9,ffn=1152 \\
        --data train.jsonl.gz

The most important attention heads, feed-forward units and layers are kept
(``experiments.compression.structure``). The decision of the model is kept, too; ``nq tune`` fits it
again, best after a training with the whole model as the teacher.
TensorFlow is imported when a pruning starts.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments import command
from experiments.compression.structure import (
    FFN_STEP,
    FORM,
    PruningRecord,
    parse_counts,
    prune_weights,
    pruned_shape,
    select,
)
from nq.commands import arguments, terminal
from nq.config import WindowConfig
from nq.formats.fields import RecordError
from nq.formats.input_files import shown
from nq.formats.tfrecord import TARGETS
from nq.model import checkpoint
from nq.model.convert import fitting_windows
from nq.model.folder import ModelFolder
from nq.model.runtime import import_tensorflow
from nq.preprocess.features import Sampling, training_features
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.questions import Questions, mention_unnamed_pages, read_examples
from nq.records import MODEL_INPUTS, Features
from nq.storage import check_writable
from nq.text import visible
from nq.training.job import TrainConfig
from nq.training.windows import TrainingWindows

if TYPE_CHECKING:
    from nq.formats.own_data import PageFolder
    from nq.preprocess.tokenizers.base import Tokenizer

log = logging.getLogger(__name__)

WINDOWS = 512
"""Training windows that the importance is measured on."""
SPAN_HEAD = "span_output/kernel"


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="SRC", help="folder or name of one model")
    parser.add_argument(
        "target",
        type=Path,
        metavar="DST",
        help="folder to write; new or empty",
    )
    parser.add_argument(
        "--prune",
        type=arguments.parsed_by(parse_counts),
        required=True,
        metavar="COUNTS",
        help="attention heads and feed-forward units of each layer, and layers, to keep: "
        f"{FORM}; ffn is a multiple of {FFN_STEP}",
    )
    arguments.add_data(parser, note=", annotated, which importance is measured on")


def prune(
    source: Path,
    target: Path,
    counts: Mapping[str, int],
    data: Sequence[str],
    pages: PageFolder | None = None,
) -> PruningRecord:
    """Writes a model without its least important heads, feed-forward units and layers.

    The target is empty or does not exist; ``counts`` are those of ``parse_counts``. The data are
    annotated files, globs or folders, which may name ``pages``.

    Raises:
        ValueError: the model cannot be pruned to these counts, or no record has an answer.
    """
    settings = ModelFolder(source).settings
    tokenizer = load_tokenizer(source, settings.windows.compat)
    before = checkpoint.with_room_for(ModelFolder(source).joint_config, tokenizer)
    after = pruned_shape(before, counts)
    settings = dataclasses.replace(settings, windows=fitting_windows(settings.windows, before))
    with Questions.open(data, pages) as questions:
        mention_unnamed_pages(questions)
        files = questions.files
        import_tensorflow()
        from experiments.compression.importance import assign, importance, weights_of
        from nq.model import joint

        whole = joint.load_model(ModelFolder(source), config=before)
        if SPAN_HEAD in whole.report.missing:
            raise ValueError(
                f"{source} has no span head, so that no part of it has an importance for answers: "
                "train it first with nq train --init"
            )
        windows = training_windows(files, tokenizer, settings.windows, pages=pages)
        names = tuple(shown(Path(file).name) for file in files)
    fewer_layers = after.num_hidden_layers < before.num_hidden_layers
    kept = select(importance(whole.model, before, windows, fewer_layers), before, after)
    model = joint.build(after, initialize=False)
    assign(model, prune_weights(weights_of(whole.model), before, kept))
    record = PruningRecord(source.name, before, after, kept, len(windows), names)
    settings = dataclasses.replace(
        settings, removed_parts=(*settings.removed_parts, record.to_dict())
    )
    missing = whole.report.missing
    checkpoint.save(
        target,
        model,
        after,
        tokenizer,
        settings,
        record.card(),
        skip=missing,
    )
    return record


def training_windows(
    files: Sequence[str],
    tokenizer: Tokenizer,
    config: WindowConfig,
    count: int = WINDOWS,
    pages: PageFolder | None = None,
) -> TrainingWindows:
    """Returns the first ``count`` windows of a training on some files, with its default settings.

    One record of each file is read in turn, no more than are needed; bad ones are logged.
    """
    recipe = TrainConfig()
    parts: list[Features] = []
    total = 0
    readers = [read_examples(file, pages=pages, skip_bad=True) for file in files]
    for example in filter(None, chain.from_iterable(zip_longest(*readers))):
        if example.annotations:
            sampling = Sampling(recipe.negatives, recipe.seed)
            try:
                parts.append(training_features(example, tokenizer, config, sampling))
                total += len(parts[-1])
            except RecordError as error:
                log.warning("example %s is skipped: %s", example.example_id, error)
        if total >= count:
            break
    if not total:
        raise ValueError(
            f"no window with an answer in {', '.join(map(shown, files))}: expected records with "
            "annotations, as nq train does"
        )
    if total < count:
        log.warning("training windows of the data: %d, fewer than %d", total, count)
    columns = {
        name: np.concatenate([getattr(part, name) for part in parts])[:count]
        for name in (*MODEL_INPUTS, *TARGETS)
    }
    return TrainingWindows.from_columns(columns)


def run(args: argparse.Namespace) -> int:
    """Runs the command."""
    if args.target.exists() and (args.target.is_file() or any(args.target.iterdir())):
        raise ValueError(f"{args.target} is not empty: choose a new folder")
    check_writable(args.target)
    source = ModelFolder.open(args.source).path
    pages = arguments.pages(args)
    record = prune(source, args.target, args.prune, args.data, pages)
    if args.json:
        terminal.print_json({"output": str(args.target), "pruning": record.to_dict()})
        return 0
    print(visible(f"{args.source} -> {args.target}: {record.summary()}"))
    print(visible(f"the decision is that of {args.source}: fit it again with nq tune"))
    return 0


main = command.main(run, _options)
