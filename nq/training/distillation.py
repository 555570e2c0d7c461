"""Knowledge distillation: a student learns from labels and from a teacher's probabilities.

Hinton, Vinyals and Dean 2015, https://arxiv.org/abs/1503.02531; for spans as in DistilBERT, Sanh et
al. 2019, https://arxiv.org/abs/1910.01108. With w the weight of the teacher, T the temperature, and
means over start, end and type:

loss      = (1 - w) * hard loss + w * soft loss
hard loss = mean of the cross entropies of the labels; 0 for a window without labels
soft loss = T² * mean of the cross entropies of softmax(teacher / T) and softmax(student / T)

The soft loss exceeds T² * KL(teacher || student) by the teacher's entropy, a constant. It leaves
out padding, where neither model places an answer.

The teacher is a model folder. Its log probabilities of the training windows are computed once and
kept in a memo, whose parts have ``PART_WINDOWS`` consecutive windows each.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops
from scipy.special import log_softmax

from nq.config import DecisionConfig, WindowConfig
from nq.errors import DamagedError
from nq.inference.engines.tensorflow import device
from nq.inference.load import CALIBRATION_WINDOWS, ScorerSpec, load_predictor
from nq.inference.profile import Profile
from nq.inference.reduction import LOGITS, AllLogits
from nq.memo import Memo
from nq.model import checkpoint
from nq.model.folder import ModelFolder
from nq.model.model import Model
from nq.preprocess.tokenizers.base import Tokenizer
from nq.progress import ProgressBar
from nq.records import UNLABELLED, Columns, IntArray
from nq.training.job import PARTS, DistillationConfig
from nq.training.windows import TrainingWindows

log = logging.getLogger(__name__)

SOFT = "_soft"
"""Suffix of the outputs that are compared with the teacher."""
EXCLUDED = -1e9
"""Logit of a position that the softmax leaves out."""
BATCH_SIZE = 16
PART_WINDOWS = 512
EXACT_PROFILES = {"CPU": ("buckets+openvino", "grappler+buckets"), "GPU": ("grappler+buckets",)}
"""Profiles without rounding, the fastest first; the first that is installed is the default."""


class SoftCrossEntropy(keras.losses.Loss):
    """Computes T² times the cross entropy of teacher's and student's probabilities, ``[B]``.

    ``y_true`` ``[B, n]`` are the teacher's log probabilities, -inf where there are none, ``y_pred``
    ``[B, n]`` the student's logits.
    """

    def __init__(self, temperature: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.temperature = temperature

    def call(self, y_true: Any, y_pred: Any) -> Any:
        probabilities = ops.softmax(y_true / self.temperature, axis=-1)
        logits = ops.where(y_true > -np.inf, y_pred / self.temperature, EXCLUDED)
        log_probabilities = ops.log_softmax(logits, axis=-1)
        return -(self.temperature**2) * ops.sum(probabilities * log_probabilities, axis=-1)


@dataclass(frozen=True, eq=False)
class Distillation:
    """The losses by a teacher's outputs.

    Args:
        teacher: the teacher's log probabilities of all windows, ``[N, L]`` of start and end,
            ``[N, 5]`` of types; -inf for padding, and a separator that the teacher does not have.
            They are float16: the large probabilities have logarithms near 0, where it is precise,
            and no probability differs by more than 0.0002. Types are absent where the teacher
            has none, which a student then learns from labels alone.
    """

    config: DistillationConfig
    teacher: Columns

    def student(self, model: keras.Model) -> keras.Model:
        """Returns a model with the layers of another one and more outputs, with equal values."""
        soft = {
            f"{name}{SOFT}": keras.layers.Identity(name=f"{name}{SOFT}")(model.output[name])
            for name in self.teacher
        }
        return keras.Model(model.input, {**model.output, **soft}, name=model.name)

    def losses(self) -> dict[str, keras.losses.Loss]:
        return {f"{name}{SOFT}": SoftCrossEntropy(self.config.temperature) for name in self.teacher}

    def weights(self, hard: Mapping[str, float]) -> dict[str, float]:
        """Returns the weights of all losses; ``hard`` are the weights without a teacher."""
        share = self.config.teacher_weight
        weights = {name: weight * (1 - share) for name, weight in hard.items()}
        return weights | {f"{name}{SOFT}": share / len(self.teacher) for name in self.teacher}

    def batch(
        self,
        windows: TrainingWindows,
        rows: IntArray,
    ) -> tuple[Columns, Columns, Columns]:
        """Returns inputs, targets and weights of the windows ``rows``, by input and output."""
        model_inputs, targets = windows.batch(rows)
        types = targets["type_logits"]
        labelled = (types != UNLABELLED).astype(np.float32)
        weights = dict.fromkeys(targets, labelled)
        targets["type_logits"] = np.maximum(types, 0)
        length = model_inputs["input_ids"].shape[1]
        for name, column in self.teacher.items():
            targets[f"{name}{SOFT}"] = column[rows, :length].astype(np.float32)
            weights[f"{name}{SOFT}"] = np.ones_like(labelled)
        return model_inputs, targets, weights

    def curves(self, logs: Mapping[str, float]) -> dict[str, float]:
        """Returns the hard and the soft loss of a step from Keras' logs of it."""
        hard = [loss for name in LOGITS if (loss := logs.get(f"{name}_loss")) is not None]
        soft = [logs[f"{name}{SOFT}_loss"] for name in self.teacher]
        return dict(zip(PARTS, map(float, (np.mean(hard), np.mean(soft))), strict=True))


@dataclass(frozen=True)
class Teacher:
    """A model that teaches on the student's windows, by its outputs ``heads``."""

    folder: ModelFolder
    windows: WindowConfig
    profile: Profile
    heads: tuple[str, ...]

    @classmethod
    def of(
        cls,
        folder: ModelFolder,
        student: Tokenizer,
        windows: WindowConfig,
        profile: Profile | None,
    ) -> Teacher:
        """Checks that a model can teach ``student``; TensorFlow must have been imported."""
        if profile is None:
            exact = map(Profile, EXACT_PROFILES[device()])
            profile = next(one for one in exact if not one.missing())
        if profile.needs_ranking:
            names = " and ".join(profile.needs_ranking)
            raise ValueError(f"profile {profile} is not for a teacher: leave out {names}")
        profile.require()
        name = f"the teacher {folder.path}"
        tokenizer = folder.tokenizer(windows.compat)
        checkpoint.with_room_for(folder.joint_config, tokenizer)  # or it raises
        if not folder.has_head("span_output"):
            raise ValueError(f"{name} has no span head: expected a model for answers")
        heads: tuple[str, ...] = LOGITS[:2]
        if not windows.switches.running_text:
            if folder.has_head("type_output"):
                heads = LOGITS
            else:
                log.warning("%s has no head for types: the labels alone teach them", name)
        if tokenizer.digest != student.digest:
            raise ValueError(f"{name} has another vocabulary or tokenizer than init")
        return cls(folder, windows, profile, heads)

    @cached_property
    def identity(self) -> dict[str, Any]:
        """The teacher's properties that its log probabilities depend on, as JSON values."""
        return {
            "config": self.folder.config.to_dict(),
            "weights": [*self.folder.file_digests.values()],
            "tokenizer": self.folder.tokenizer(self.windows.compat).digest,
            "profile": str(self.profile),
        }

    def distillation(
        self,
        config: DistillationConfig,
        windows: TrainingWindows,
        folder: Path,
    ) -> Distillation:
        """Returns the distillation for a training; computes probabilities that ``folder`` lacks."""
        memo = Memo.open(folder, {**self.identity, "windows": windows.digest()})
        parts = list[Columns]()
        total = len(windows)
        predictor = None
        with ProgressBar("teacher", "windows") as report:
            for start in range(0, total, PART_WINDOWS):
                name = f"part-{len(parts):06d}.npz"
                rows = slice(start, min(start + PART_WINDOWS, total))
                try:
                    parts.append(memo.arrays(name))
                except (FileNotFoundError, DamagedError) as error:
                    if isinstance(error, DamagedError):
                        log.warning("%s; the teacher computes it again", error)
                    predictor = predictor or self._predictor(windows)
                    parts.append(self._log_probabilities(predictor, windows, rows))
                    memo.write_arrays(name, parts[-1])
                report(rows.stop - start, total)
        del predictor
        gc.collect()  # graphs and their layers reference each other, with all weights
        columns = {name: np.concatenate([part[name] for part in parts]) for name in self.heads}
        return Distillation(config, columns)

    def _predictor(self, windows: TrainingWindows) -> Any:
        calibration = {}
        if self.profile.changes.int8:
            step = -(-len(windows) // CALIBRATION_WINDOWS)
            calibration[self.folder.path] = self._rows(windows, np.arange(0, len(windows), step))
        log.info("teacher %s: profile %s", self.folder.name, self.profile)
        model = Model.alone(self.folder, self.windows, DecisionConfig())
        spec = ScorerSpec(model, self.profile, BATCH_SIZE, calibration=calibration)
        return load_predictor(spec, AllLogits(self.windows.max_seq_length))

    def _rows(
        self,
        windows: TrainingWindows,
        selection: slice | IntArray,
    ) -> Columns:
        """Returns windows as rows of the teacher's predictor; they have no document tokens."""
        rows = windows.inputs(selection, self.windows.max_seq_length)
        ids = np.arange(len(windows), dtype=np.int32)[selection, None]
        return {**rows, "token_map": np.full_like(rows["input_ids"], -1), "window_ids": ids}

    def _log_probabilities(
        self,
        predictor: Any,
        windows: TrainingWindows,
        rows: slice,
    ) -> Columns:
        """Returns the log probabilities of some windows as ``Distillation`` keeps them."""
        logits = predictor.scores(self._rows(windows, rows))
        padding = np.arange(self.windows.max_seq_length) >= windows.n_pieces[rows, None]
        for name in LOGITS[:2]:
            logits[name] = np.where(padding, -np.inf, logits[name])
        return {name: log_softmax(logits[name], axis=1).astype(np.float16) for name in LOGITS}
