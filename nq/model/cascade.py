"""The second model of a cascade, the reader: its folder, its windows, the decision of both models.

A reader keeps its own window settings, except that both models read the same blocks of a page. The
decision was fitted to both models by ``nq tune --reader``; it is in the reader's settings under the
digest of the first model's weights.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, replace
from pathlib import Path

from nq.config import CascadeDecision, CascadeWeights, DecisionConfig, WindowConfig
from nq.errors import Error, check_argument, is_count
from nq.model.folder import (
    SETTINGS,
    ModelSettings,
    check,
    folder_and_settings,
    load_config,
    load_settings,
    weight_files,
    weights_digest,
)
from nq.model.registry import model_folder, named_model
from nq.model.shapes import check_length

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReaderModel:
    """The reader of a cascade.

    Args:
        folder: its model folder.
        windows: how pages become its windows.
        decision: how the scores of both models become answers.
    """

    folder: Path
    windows: WindowConfig
    decision: CascadeDecision


def both_models(
    model: str | Path | None, reader: str | Path | None
) -> tuple[str | Path | None, str | Path | None]:
    """Returns the first model and the reader for which a model stands that is given alone.

    The settings of its folder may name the other one (``ModelSettings.first_model``, ``.reader``).
    Text with a slash is a folder there, other text a name, also where a folder has that name.

    Raises:
        FileNotFoundError, Error: there is no model of this name.
        ValueError: the settings of the folder are damaged.
    """
    if reader is not None or not isinstance(model, str | Path):
        return model, reader
    folder = model_folder(model)
    settings = load_settings(folder)
    name = settings.first_model or settings.reader
    if name is None:
        return model, None
    try:
        other = Path(name) if os.sep in name else named_model(name)
    except (FileNotFoundError, Error) as error:
        raise type(error)(f"{folder / SETTINGS}: {error}") from error
    log.info("%s is used with %s, which its %s names", model, name, SETTINGS)
    return (other, folder) if settings.first_model else (model, other)


def reader_model(
    model: Path,
    own: ModelSettings,
    reader: str | Path | None,
    windows: WindowConfig | None = None,
    decision: DecisionConfig | None = None,
    read_blocks: int | None = None,
) -> ReaderModel | None:
    """Returns the reader of a model; ``None`` without one.

    Args:
        model: folder of the first model.
        own: settings of the first model.
        reader: folder or name of the reader.
        windows: how pages become windows of the reader; by default the settings of its folder.
        decision: of both models, or of the one whose evidence counts; by default what ``nq tune``
            has stored for both models, else the own decision of the reader, or of the first model
            if the reader only ranks, on the blocks that are read.
        read_blocks: blocks of a page to read; by default those of the decision.

    Raises:
        FileNotFoundError, Error: there is no model of the reader's name.
        ValueError: an argument has the wrong type, is out of range or needs a reader, or the
            settings of the reader are damaged.
    """
    is_valid = read_blocks is None or is_count(read_blocks)
    check_argument(is_valid, "read_blocks", read_blocks, "a whole number from 1 on")
    is_valid = decision is None or isinstance(decision, DecisionConfig)
    check_argument(is_valid, "decision", decision, "nq.DecisionConfig(…)")
    if reader is None:
        if read_blocks is not None:
            raise ValueError(f"read_blocks is {read_blocks} without a reader: give a reader too")
        if isinstance(decision, CascadeDecision) or windows is not None:
            raise ValueError("the settings are for a model with a reader: give a reader too")
        return None
    folder, settings = folder_and_settings(reader, windows, None, name="reader")
    if decision is None:
        alone = own.decision if _only_ranks(folder) else settings.decision
        decision = _stored_decision(model, folder) or alone
    if not isinstance(decision, CascadeDecision):
        weights = CascadeWeights(**decision.weights.to_dict())
        ranker = replace(own.decision, rule=decision.rule)
        values = {**vars(decision), "weights": weights, "ranker": ranker}
        decision = CascadeDecision(**values)
    return ReaderModel(
        folder,
        replace(settings.windows, max_contexts=own.windows.max_contexts),
        replace(decision, read_blocks=read_blocks or decision.read_blocks),
    )


def _stored_decision(model: Path, reader: Path) -> CascadeDecision | None:
    """Returns the decision that was tuned for both models."""
    cascades = load_settings(reader).cascades
    try:
        return cascades.get(weights_digest(model)) if cascades else None
    except (OSError, ValueError):  # the check of the model's folder reports it
        return None


def _only_ranks(folder: Path) -> bool:
    try:
        return load_config(folder).is_dual_encoder
    except (OSError, ValueError):  # the check of the reader reports it
        return False


def mention_reader(model: Path, reader: ReaderModel | None) -> None:
    """Logs that a dual encoder has no reader, or that no decision was tuned for both models."""
    folders = [model] if reader is None else [model, reader.folder]
    if all(map(_only_ranks, folders)):
        log.info("%s only ranks blocks: give --reader MODEL for short answers too", model)
    if reader is not None and weights_digest(model) not in load_settings(reader.folder).cascades:
        log.info(
            "%s has no decision for both models, so %s is used, for the blocks that it "
            "reads; nq tune --reader makes one",
            reader.folder,
            f"that of {model}" if _only_ranks(reader.folder) else "its own",
        )


def check_reader(model: Path, reader: ReaderModel) -> None:
    """Checks the folder of a reader, as ``nq.model.folder.check`` does, and that it is another one.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, the windows are too long, or the reader is the first model.
    """
    check(reader.folder)
    if _sizes(model) == _sizes(reader.folder) and weights_digest(model) == weights_digest(
        reader.folder
    ):
        raise ValueError(
            f"the reader {reader.folder} has the weights of the model itself: give another model"
        )
    check_length(load_config(reader.folder), reader.windows.max_seq_length)


def _sizes(folder: Path) -> list[int]:
    return [path.stat().st_size for path in weight_files(folder)]
