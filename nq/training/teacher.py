"""The teacher: a model folder whose probabilities a student is trained on.

Its log probabilities of the training windows are computed once and kept in a memo, whose parts
have ``PART_WINDOWS`` consecutive windows each.
"""

from __future__ import annotations

import gc
import logging
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import log_softmax

from nq.config import DecisionConfig, WindowConfig
from nq.errors import DamagedError
from nq.inference.engines.tensorflow import device
from nq.inference.load import CALIBRATION_WINDOWS, ScorerSpec, load_predictor
from nq.inference.profile import Profile
from nq.inference.reduction import LOGITS, AllLogits
from nq.memo import Memo
from nq.model import checkpoint
from nq.model.folder import file_digests, load_config, load_joint_config, read_tensors
from nq.model.model_spec import ModelSpec
from nq.model.registry import model_name
from nq.model.shapes import check_length
from nq.preprocess.tokenizers.base import Tokenizer
from nq.preprocess.tokenizers.load import load_tokenizer, tokenizer_digest
from nq.progress import new_bar
from nq.records import Columns, IntArray
from nq.training.config import DistillationConfig
from nq.training.distillation import Distillation, SoftTargets
from nq.training.windows import TrainingWindows

log = logging.getLogger(__name__)

BATCH_SIZE = 16
PART_WINDOWS = 512
WINDOWS = "windows"
"""Array of a part: its first window, and the one behind its last."""
EXACT_PROFILES = {"CPU": ("buckets+openvino", "grappler+buckets"), "GPU": ("grappler+buckets",)}
"""Profiles without rounding, the fastest first; the first that is installed is the default."""


@dataclass(frozen=True)
class Teacher:
    """A model that teaches on the student's windows; ``tokenizer`` is the digest of its own."""

    folder: Path
    tokenizer: str
    length: int
    profile: Profile
    has_types: bool

    @classmethod
    def of(
        cls, folder: Path, student: Tokenizer, windows: WindowConfig, profile: Profile | None
    ) -> Teacher:
        """Checks that a model can teach ``student``; TensorFlow must have been imported."""
        if profile is None:
            exact = map(Profile.parse, EXACT_PROFILES[device()])
            profile = next(one for one in exact if not one.missing())
        if profile.needs_ranking:
            names = " and ".join(profile.needs_ranking)
            raise ValueError(f"profile {profile} is not for a teacher: leave out {names}")
        profile.require()
        tokenizer = load_tokenizer(folder, windows.compat)
        tensors = read_tensors(folder)
        table = tensors.table(checkpoint.with_room_for(load_joint_config(folder), tokenizer))
        if not tensors.fill(table["span_output/kernel"]):
            raise ValueError(f"the teacher {folder} has no span head: expected a model for answers")
        has_types = tensors.fill(table["type_output/kernel"])
        if not has_types:
            log.warning("the teacher %s has no head for types: the labels alone teach them", folder)
        digest = tokenizer_digest(tokenizer)
        if digest != tokenizer_digest(student):
            raise ValueError(f"the teacher {folder} has another vocabulary or tokenizer than init")
        check_length(load_joint_config(folder), windows.max_seq_length)
        return cls(folder, digest, windows.max_seq_length, profile, has_types)

    @cached_property
    def identity(self) -> dict[str, Any]:
        """The teacher's properties that its log probabilities depend on, as JSON values."""
        return {
            "config": load_config(self.folder).to_dict(),
            "weights": [*file_digests(self.folder).values()],
            "tokenizer": self.tokenizer,
            "profile": str(self.profile),
        }

    def distillation(
        self, config: DistillationConfig, windows: TrainingWindows, folder: Path
    ) -> Distillation:
        """Returns the distillation for a training; computes probabilities that ``folder`` lacks."""
        memo = Memo.open(folder, {**self.identity, WINDOWS: windows.digest()})
        targets, total, predictor = SoftTargets.empty(windows), len(windows), None
        with new_bar(desc="teacher", unit=" windows", total=total) as bar:
            for number, start in enumerate(range(0, total, PART_WINDOWS)):
                name = f"part-{number:06d}.npz"
                rows = slice(start, min(start + PART_WINDOWS, total))
                place = [rows.start, rows.stop]
                try:
                    part = memo.arrays(name)
                    if part[WINDOWS].tolist() != place:
                        raise DamagedError(f"{name} is damaged: expected the windows from {start}")
                    targets.fill(part, rows)
                except (OSError, DamagedError, LookupError, ValueError) as error:
                    if not isinstance(error, FileNotFoundError):
                        log.warning("%s; the teacher computes it again", error)
                    started = time.perf_counter()
                    predictor = predictor or self._predictor(windows)
                    part = self._log_probabilities(predictor, windows, rows)
                    memo.write_arrays(name, {WINDOWS: np.array(place), **part})
                    targets.fill(part, rows)
                    if bar.disable:
                        speed = (rows.stop - start) / (time.perf_counter() - started)
                        log.info("teacher: %d of %d windows, %.1f/s", rows.stop, total, speed)
                bar.update(rows.stop - start)
        del predictor
        gc.collect()  # graphs and their layers reference each other, with all weights
        return Distillation(config, targets, self.has_types)

    def _predictor(self, windows: TrainingWindows) -> Any:
        settings = WindowConfig(max_seq_length=self.length, max_query_length=1)
        calibration = {}
        if self.profile.changes.int8:
            step = -(-len(windows) // CALIBRATION_WINDOWS)
            calibration[self.folder] = self._rows(windows, np.arange(0, len(windows), step))
        log.info("teacher %s: profile %s", model_name(self.folder), self.profile)
        model = ModelSpec(self.folder, settings, DecisionConfig())
        spec = ScorerSpec(model, self.profile, BATCH_SIZE, calibration=calibration)
        return load_predictor(spec, AllLogits(self.length))

    def _rows(self, windows: TrainingWindows, selection: slice | IntArray) -> Columns:
        """Returns windows as rows of the teacher's predictor; they have no document tokens."""
        rows = windows.inputs(selection, self.length)
        ids = np.arange(len(windows), dtype=np.int32)[selection, None]
        return {**rows, "token_map": np.full_like(rows["input_ids"], -1), "window_ids": ids}

    def _log_probabilities(self, predictor: Any, windows: TrainingWindows, rows: slice) -> Columns:
        """Returns the log probabilities of some windows as ``SoftTargets`` keeps them."""
        logits = predictor.scores(self._rows(windows, rows))
        pieces = np.arange(windows.input_ids.shape[1]) < windows.n_pieces[rows, None]
        part = {"type_logits": log_softmax(logits["type_logits"], axis=1)}
        for name in LOGITS[:2]:
            own = np.where(pieces, logits[name], -np.inf)
            part[name] = log_softmax(own, axis=1)[pieces]
        return {name: part[name].astype(np.float16) for name in LOGITS}
