"""A model that is found and not loaded yet, alone or with a second model.

The first model ranks the blocks of a page, and the second one reads the best. The second model has
windows of its own, except that both models read the same blocks. The decision was fitted to both by
``nq tune --second-model``; it is in the settings of the second model under the digest of the first
one's weights.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from nq.config import ALL_CONTEXTS, CascadeDecision, CascadeWeights, DecisionConfig, WindowConfig
from nq.errors import Error, check_argument, is_count
from nq.model.folder import (
    SETTINGS,
    SQUAD,
    check_model,
    has_head,
    load_config,
    load_settings,
    weight_files,
    weights_digest,
)
from nq.model.registry import model_folder, model_name, named_model
from nq.model.tensors import check_length

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ModelSpec:
    """A model with its settings, which any process can load.

    With a second model, which reads the blocks that this one ranks best, the decision is one of
    both. The second model gets it, and the ``max_contexts`` of this model, also when a copy is made
    with other settings.
    """

    folder: Path
    windows: WindowConfig
    decision: DecisionConfig
    second: ModelSpec | None = None

    def __post_init__(self) -> None:
        if self.second is not None:
            windows = replace(self.second.windows, max_contexts=self.windows.max_contexts)
            second = replace(self.second, windows=windows, decision=self.decision)
            object.__setattr__(self, "second", second)

    @property
    def cascade(self) -> CascadeDecision | None:
        """The decision of both models; ``None`` without a second one."""
        has_second = self.second is not None
        return self.decision if has_second and isinstance(self.decision, CascadeDecision) else None

    @property
    def own_decision(self) -> DecisionConfig:
        """The decision configuration for this model's scores without the second model."""
        return self.cascade.first if self.cascade else self.decision

    @property
    def models(self) -> tuple[ModelSpec, ...]:
        """This model and, if there is one, the second one."""
        return (self,) if self.second is None else (self, self.second)

    def reading_whole_pages(self) -> Self:
        """Returns the models with windows of all blocks of a page, however many there are."""
        return replace(self, windows=replace(self.windows, max_contexts=ALL_CONTEXTS))

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
        """Returns the models that ``to_dict`` described."""
        windows = WindowConfig.from_dict(values["windows"])
        if "second_model" not in values:
            decision = DecisionConfig.from_dict(values["decision"])
            return cls(Path(values["model"]), windows, decision)
        both = CascadeDecision.from_dict(values["decision"])
        own = WindowConfig.from_dict(values["second_windows"])
        second = ModelSpec(Path(values["second_model"]), own, both)
        return cls(Path(values["model"]), windows, both, second)

    def check(self) -> None:
        """Checks the files of both models in milliseconds, without TensorFlow.

        It raises ``FileNotFoundError`` or ``ValueError`` if a file is missing or damaged, windows
        are too long for a model, a model has no head for answers, or both are the same.
        """
        for model in self.models:
            check_model(model.folder)
            if not has_head(model.folder, "span_output"):
                raise ValueError(
                    f"{model_name(model.folder)} has no head for answers: give a model for "
                    "question answering, or train one (nq train --init)"
                )
        if self.second is not None:
            sizes = [[f.stat().st_size for f in weight_files(m.folder)] for m in self.models]
            if sizes[0] == sizes[1] and len({weights_digest(m.folder) for m in self.models}) == 1:
                raise ValueError(
                    f"the second model {self.second.folder} has the weights of the model itself: "
                    "give another model"
                )
        for model in self.models:
            check_length(load_config(model.folder), model.windows.max_seq_length)


def find_model(
    model: str | Path | None = None,
    windows: WindowConfig | None = None,
    decision: DecisionConfig | None = None,
    second_model: str | Path | None = None,
    read_blocks: int | None = None,
) -> ModelSpec:
    """Finds a model and reads its settings; its folder need not exist.

    The settings of a folder may name another model (``ModelSettings.second_model``), with which it
    is used where it is given alone.

    Args:
        model: a model folder, or the name of a model; by default the bundled model.
        windows: how pages become windows; by default the settings of the folder.
        decision: how scores become answers. With a second model it is one of both, or of the one
            whose evidence counts. By default it is that of the folder; with a second model what
            ``nq tune`` has stored for both, else the own decision of the second model, or of the
            first one if the second one only ranks.
        second_model: folder or name of the model that reads the blocks that ``model`` ranks best.
        read_blocks: blocks of a page that it reads; by default as many as the decision names.

    Raises:
        FileNotFoundError, Error: there is no model of this name (``nq.model.registry``).
        ValueError: an argument is wrong or needs a second model, or settings are damaged.
    """
    for name, value, kind, expected in (
        ("model", model, str | Path, "the path of a model folder, or a name"),
        ("windows", windows, WindowConfig, "nq.WindowConfig(…)"),
        ("decision", decision, DecisionConfig, "nq.DecisionConfig(…)"),
        ("second_model", second_model, str | Path, "the path of a model folder, or a name"),
    ):
        check_argument(value is None or isinstance(value, kind), name, value, expected)
    is_valid = read_blocks is None or is_count(read_blocks)
    check_argument(is_valid, "read_blocks", read_blocks, "a whole number from 1 on")
    folder = model_folder(model)
    settings = load_settings(folder)
    second = None if second_model is None else model_folder(second_model)
    if second is None and (other := settings.second_model):
        try:
            # text with a slash is a folder, other text a name, also where a folder has that name
            second = model_folder(Path(other)) if os.sep in other else named_model(other)
        except (FileNotFoundError, Error) as error:
            raise type(error)(f"{folder / SETTINGS}: {error}") from error
        log.info("%s is used with %s, which its %s names", model, other, SETTINGS)
    windows = windows or settings.windows
    if second is None:
        if read_blocks is not None:
            raise ValueError(f"read_blocks is {read_blocks} without a second model: give one too")
        if isinstance(decision, CascadeDecision):
            raise ValueError("the decision is for two models: give a second model too")
        return ModelSpec(folder, windows, decision or settings.decision)
    own = load_settings(second)
    if decision is None and own.cascades:
        with contextlib.suppress(OSError, ValueError):  # the check of the models reports it
            decision = own.cascades.get(weights_digest(folder))
    if decision is None:
        decision = settings.decision if _only_ranks(second) else own.decision
        if decision.rule == SQUAD:  # which ranks no blocks
            decision = replace(decision, rule=DecisionConfig.rule)
    if not isinstance(decision, CascadeDecision):  # it is of one model
        weights = CascadeWeights(**decision.weights.to_dict())
        first = replace(settings.decision, rule=decision.rule)
        decision = CascadeDecision(**{**vars(decision), "weights": weights, "first": first})
    both = replace(decision, read_blocks=read_blocks or decision.read_blocks)
    return ModelSpec(folder, windows, both, ModelSpec(second, own.windows, both))


def _only_ranks(folder: Path) -> bool:
    try:
        return load_config(folder).is_dual_encoder
    except (OSError, ValueError):  # the check of the models reports it
        return False


def mention_decision(model: ModelSpec) -> None:
    """Logs that a model only ranks, or that no decision was tuned for both models."""
    if all(_only_ranks(one.folder) for one in model.models):
        name = model.folder
        log.info("%s only ranks blocks: give --second-model MODEL for short answers too", name)
    if model.second is None:
        return
    second = model.second.folder
    if weights_digest(model.folder) not in load_settings(second).cascades:
        log.info(
            "%s has no decision for both models, so %s is used, for the blocks that it reads; "
            "nq tune --second-model makes one",
            second,
            f"that of {model.folder}" if _only_ranks(second) else "its own",
        )
