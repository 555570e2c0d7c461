"""A model folder -> a predictor: the one place where a checkpoint becomes what runs."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from pathlib import Path

from nq.config import WindowConfig
from nq.inference.batches import Shape
from nq.inference.engine import Rows, Task
from nq.inference.engines.tensorflow import device
from nq.inference.network import Network
from nq.inference.predictor import Predictor
from nq.inference.profile import Profile
from nq.inference.top_k import Selection
from nq.model import checkpoint, joint
from nq.postprocess.decision import RULES
from nq.preprocess.tokenizers.base import Tokenizer

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Loader:
    """Makes predictors of one model folder, each under a profile.

    Args:
        folder: a model folder.
        tokenizer: whose ids the word table must have rows for.
        windows: their length.
        rule: the decision that the scores are for.
        batch_size: windows in a batch.
        calibration: gives real windows, on which an engine in 8 bits is calibrated.
    """

    folder: Path
    tokenizer: Tokenizer
    windows: WindowConfig
    rule: str
    batch_size: int
    calibration: Callable[[], Rows]

    def predictor(self, profile: Profile) -> Predictor:
        """The folder's model under a profile; what its checkpoint does not settle is logged.

        Raises:
            FileNotFoundError: the folder holds no model.
            ValueError: the model is damaged, or too small for the windows.
            Error: a package that the profile needs is not installed.
        """
        wanted = RULES[self.rule]
        shape, plain = Shape(self.batch_size, self.windows.max_seq_length), Profile()
        task = Task(
            self._network(profile.policy(device())),
            profile,
            Selection(wanted.k, wanted.text_only),
            self.calibration,
        )
        return Predictor(
            task,
            shape,
            None if profile == plain else lambda: self.predictor(plain),
        )

    def _network(self, policy: str) -> Network:
        config = checkpoint.with_room_for(checkpoint.load_config(self.folder), self.tokenizer)
        joint.check_length(config, self.windows.max_seq_length)
        model = joint.build(config, dtype=policy, initialize=False)
        loaded = checkpoint.load(self.folder, model, config)
        if loaded.warning():
            log.warning("%s", loaded.warning())
        if loaded.unexpected:
            log.info("not used of the checkpoint: %s", ", ".join(loaded.unexpected))
        return Network(config, model)
