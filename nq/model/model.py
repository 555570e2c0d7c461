"""A model that answers questions, opened, checked and digested once, and not loaded yet.

It may be two models: the first one ranks the blocks of a page, and the second one reads the best.
The second model has windows of its own, except that both models read the same blocks. The decision
was fitted to both by ``nq tune --second-model``; it is in the settings of the second model under
the digest of the first one's weights.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from nq.config import CascadeDecision, CascadeWeights, DecisionConfig, WindowConfig
from nq.errors import Error, check_argument, is_count
from nq.model.config import ModelConfig
from nq.model.folder import SETTINGS, SQUAD, ModelFolder, ModelSettings
from nq.model.registry import named_model
from nq.model.tensors import check_length
from nq.preprocess.tokenizers.base import Tokenizer

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Model:
    """A model with its settings, which any process can load; ``Model.open`` makes one.

    With a second model, which reads the blocks that this one ranks best, the decision is one of
    both. The second model gets it, and the ``max_contexts`` of this model, also when a copy is made
    with other settings.

    Args:
        files: the folder of the model, each file of which is read once.
        windows: how pages become windows.
        decision: how scores become answers.
    """

    files: ModelFolder
    windows: WindowConfig
    decision: DecisionConfig
    second: Model | None = None

    @classmethod
    def open(
        cls,
        model: str | Path | ModelFolder | None = None,
        *,
        windows: WindowConfig | None = None,
        decision: DecisionConfig | None = None,
        second_model: str | Path | None = None,
        read_blocks: int | None = None,
    ) -> Self:
        """Finds a model, reads its settings and checks its files, without TensorFlow.

        The settings of a folder may name another model (``ModelSettings.second_model``), with which
        it is used where it is given alone.

        Args:
            model: a model folder, or the name of a model; by default the bundled model. One that
                is open already is not opened again.
            windows: how pages become windows; by default the settings of the folder.
            decision: how scores become answers. With a second model it is one of both, or of the
                one whose evidence counts. By default it is that of the folder; with a second model
                what ``nq tune`` has stored for both, else the own decision of the second model, or
                of the first one if the second one only ranks.
            second_model: folder or name of the model that reads the blocks that ``model`` ranks
                best.
            read_blocks: blocks of a page that it reads; by default as many as the decision names.

        Raises:
            FileNotFoundError, Error: there is no model of this name (``nq.model.registry``).
            ValueError: an argument is wrong or needs a second model, a file is damaged, windows are
                too long for a model, a model has no head for answers, or both are the same.
        """
        for name, value, kind, expected in (
            ("model", model, str | Path | ModelFolder, "the path of a model folder, or a name"),
            ("windows", windows, WindowConfig, "nq.WindowConfig(…)"),
            ("decision", decision, DecisionConfig, "nq.DecisionConfig(…)"),
            ("second_model", second_model, str | Path, "the path of a model folder, or a name"),
        ):
            check_argument(value is None or isinstance(value, kind), name, value, expected)
        is_valid = read_blocks is None or is_count(read_blocks)
        check_argument(is_valid, "read_blocks", read_blocks, "a whole number from 1 on")
        first = model if isinstance(model, ModelFolder) else ModelFolder.open(model)
        second = _named_by(first) if second_model is None else ModelFolder.open(second_model)
        windows = windows or first.settings.windows
        if second is None:
            if read_blocks is not None:
                raise ValueError(f"read_blocks is {read_blocks} without a second model: give one")
            if isinstance(decision, CascadeDecision):
                raise ValueError("the decision is for two models: give a second model too")
            opened = cls(first, windows, decision or first.settings.decision)
        else:
            if first.digest == second.digest:
                raise ValueError(
                    f"the second model {second.path} has the weights of the model itself: give "
                    "another model"
                )
            both = _decision_of_both(first, second, decision)
            both = replace(both, read_blocks=read_blocks or both.read_blocks)
            opened = cls(first, windows, both, Model(second, second.settings.windows, both))
        for one in opened.models:
            if not one.files.has_head("span_output"):
                raise ValueError(
                    f"{one.name} has no head for answers: give a model for question answering, or "
                    "train one (nq train --init)"
                )
            check_length(one.config, one.windows.max_seq_length)
        return opened

    def __post_init__(self) -> None:
        if self.second is not None:
            windows = replace(self.second.windows, max_contexts=self.windows.max_contexts)
            second = replace(self.second, windows=windows, decision=self.decision)
            object.__setattr__(self, "second", second)

    @property
    def folder(self) -> Path:
        """The folder of the model."""
        return self.files.path

    @property
    def name(self) -> str:
        """The name of the model for records: of the hub's with the commit, else its folder's."""
        return self.files.name

    @property
    def config(self) -> ModelConfig:
        """The shape of the encoder."""
        return self.files.config

    @property
    def settings(self) -> ModelSettings:
        """The settings in the folder."""
        return self.files.settings

    @property
    def digest(self) -> str:
        """The SHA-256 of the weights."""
        return self.files.digest

    @property
    def size_mb(self) -> float:
        """The size of its files, and of those of the second model, in MiB."""
        return sum(file.stat().st_size for one in self.models for file in one.files.files) / 2**20

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, under the compatibility mode of the windows."""
        return self.files.tokenizer(self.windows.compat)

    @property
    def cascade(self) -> CascadeDecision | None:
        """The decision of both models; ``None`` without a second one."""
        has_second = self.second is not None
        return self.decision if has_second and isinstance(self.decision, CascadeDecision) else None

    @property
    def first_decision(self) -> DecisionConfig:
        """The decision for the scores of this model alone."""
        return self.cascade.first if self.cascade else self.decision

    @property
    def models(self) -> tuple[Model, ...]:
        """This model and, if there is one, the second one."""
        return (self,) if self.second is None else (self, self.second)

    @property
    def advice(self) -> str:
        """One line on a model that only ranks, or a decision that is not tuned; or empty."""
        second = self.second
        if all(one.config.is_dual_encoder for one in self.models):
            return f"{self.folder} only ranks blocks: give --second-model MODEL for short answers"
        if second is None or self.digest in second.settings.cascades:
            return ""
        other = f"that of {self.folder}" if second.config.is_dual_encoder else "its own"
        return (
            f"{second.folder} has no decision for both models, so {other} is used, for the blocks "
            "that it reads; nq tune --second-model makes one"
        )

    @property
    def key(self) -> list[dict[str, str]]:
        """What tells the models from others, as JSON values, wherever their folders are."""
        return [one.files.key(one.windows.compat) for one in self.models]

    def check_same(self) -> None:
        """Raises ``Error`` if a file of the models has changed since it was read."""
        for one in self.models:
            one.files.check_same()

    def to_dict(self) -> dict[str, Any]:
        """Returns the models as JSON values with absolute paths, for the description of a run."""
        values = {
            "model": str(self.folder.absolute()),
            "windows": self.windows.to_dict(),
            "decision": self.decision.to_dict(),
        }
        if self.second is not None:
            values["second_model"] = str(self.second.folder.absolute())
            values["second_windows"] = self.second.windows.to_dict()
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Returns the models that ``to_dict`` described, whose folders may be gone."""
        files = ModelFolder(Path(values["model"]))
        windows = WindowConfig.from_dict(values["windows"])
        if "second_model" not in values:
            return cls(files, windows, DecisionConfig.from_dict(values["decision"]))
        both = CascadeDecision.from_dict(values["decision"])
        second_windows = WindowConfig.from_dict(values["second_windows"])
        second = Model(ModelFolder(Path(values["second_model"])), second_windows, both)
        return cls(files, windows, both, second)


def _named_by(first: ModelFolder) -> ModelFolder | None:
    """Returns the second model that the settings of a model name."""
    other = first.settings.second_model
    if not other:
        return None
    try:
        # text with a slash is a folder, other text a name, also where a folder has that name
        second = ModelFolder.open(Path(other) if os.sep in other else named_model(other))
    except (FileNotFoundError, Error) as error:
        raise type(error)(f"{first.path / SETTINGS}: {error}") from error
    log.info("%s is used with %s, which its %s names", first.path, other, SETTINGS)
    return second


def _decision_of_both(
    first: ModelFolder, second: ModelFolder, decision: DecisionConfig | None
) -> CascadeDecision:
    """Returns the decision of two models: the given or the stored one, else that of one model."""
    if decision is None:
        decision = second.settings.cascades.get(first.digest)
    if decision is None:
        ranks = second.config.is_dual_encoder
        decision = (first if ranks else second).settings.decision
        if decision.rule == SQUAD:  # which ranks no blocks
            decision = replace(decision, rule=DecisionConfig.rule)
    if isinstance(decision, CascadeDecision):
        return decision
    weights = CascadeWeights(**decision.weights.to_dict())
    own = replace(first.settings.decision, rule=decision.rule)
    return CascadeDecision(**{**vars(decision), "weights": weights, "first": own})
