"""A model folder -> a predictor: the one place where a checkpoint becomes what runs."""

from __future__ import annotations

import logging
from pathlib import Path

from nq.config import WindowConfig
from nq.model import checkpoint, joint, predict
from nq.model.profile import Profile
from nq.postprocess.decision import DECISIONS
from nq.preprocess.tokenizer import Tokenizer

log = logging.getLogger(__name__)


def load_predictor(
    folder: Path,
    tokenizer: Tokenizer,
    profile: Profile,
    windows: WindowConfig,
    rule: str,
    batch_size: int,
) -> predict.Predictor:
    """The folder's model under a profile; what its checkpoint does not settle is logged.

    Args:
        folder: a model folder.
        tokenizer: whose ids the word table must have rows for.
        profile: optimizations.
        windows: their length.
        rule: the decision that the scores are for.
        batch_size: windows in a batch.

    Raises:
        FileNotFoundError: the folder holds no model.
        ValueError: the model is damaged, or too small for the windows.
    """
    precision = profile.precision(predict.device())
    config = checkpoint.with_room_for(checkpoint.load_config(folder), tokenizer)
    model = joint.build(config, windows.max_seq_length, batch_size, precision, fresh=False)
    loaded = checkpoint.load(folder, model, config)
    if loaded.warning():
        log.warning("%s", loaded.warning())
    if loaded.left_over:
        log.info("left over of the checkpoint: %s", ", ".join(loaded.left_over))
    wanted = DECISIONS[rule]
    selection = predict.Selection(min(wanted.k, windows.max_seq_length), wanted.text_only)
    return predict.Predictor(model, profile, selection)
