"""The models that answer questions, opened, checked and digested once, and not loaded yet.

A model alone reads whole pages. Of two models the *ranker* ranks the blocks of a page, and the
*reader* reads the best of them. Each has windows of its own, except that both have the same blocks;
the decision is one of both. A folder with the two, and the decision that ``nq tune`` fitted to
them, is a *pair folder* (``nq.model.folder.PairFolder``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from nq import storage
from nq.bundle import bundled_pair
from nq.config import (
    TEXT_SCOPE,
    CascadeDecision,
    CascadeWeights,
    DecisionConfig,
    WindowConfig,
)
from nq.errors import check_argument, is_count
from nq.model.config import ModelConfig
from nq.model.folder import SQUAD, ModelFolder, PairFolder, open_folder, read_pair, save_pair
from nq.model.tensors import check_length
from nq.preprocess.tokenizers.base import Tokenizer


@dataclass(frozen=True)
class ModelPart:
    """One of the models.

    Args:
        files: its folder, each file of which is read once.
        windows: how pages become windows.
    """

    files: ModelFolder
    windows: WindowConfig

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
    def digest(self) -> str:
        """The SHA-256 of the weights."""
        return self.files.digest

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, under the compatibility mode of the windows."""
        return self.files.tokenizer(self.windows.compat)


@dataclass(frozen=True)
class Model:
    """One model or two with their settings, which any process can load; ``Model.open`` makes it.

    Args:
        parts: the model; of two models the ranker and the reader.
        decision: how scores become answers; of two models a ``CascadeDecision``.
        pair: the folder of two models that were given as one.
    """

    parts: tuple[ModelPart, ...]
    decision: DecisionConfig
    pair: PairFolder | None = None

    @classmethod
    def open(
        cls,
        model: str | Path | ModelFolder | PairFolder | None = None,
        *,
        windows: WindowConfig | None = None,
        decision: DecisionConfig | None = None,
        ranker: str | Path | None = None,
        read_blocks: int | None = None,
    ) -> Self:
        """Finds a model, reads its settings and checks its files, without TensorFlow.

        Args:
            model: a model folder or pair folder, or the name of a model; by default the bundled
                pair, ``ranker+small``. A folder that is open already is not opened again.
            windows: how pages become windows, of two models those of the ranker, except that
                ``max_contexts`` is for both; by default the settings of the folder.
            decision: how scores become answers; by default that of the folder. Of a ranker and a
                model that were given apart it is by default that of the model, for the blocks that
                it reads.
            ranker: folder or name of a model that ranks the blocks of which ``model`` reads the
                best.
            read_blocks: blocks of a page that the reader reads; by default as many as the decision
                names.

        Raises:
            FileNotFoundError, Error: there is no model of this name (``nq.model.registry``).
            ValueError: an argument is wrong or needs a ranker, a file is damaged, windows are too
                long for a model, a model has no head for answers, or both are the same.
        """
        a_model = "the path of a model folder, or a name"
        kinds = str | Path | ModelFolder | PairFolder
        for name, value, kind, expected in (
            ("model", model, kinds, a_model),
            ("windows", windows, WindowConfig, "nq.WindowConfig(…)"),
            ("decision", decision, DecisionConfig, "nq.DecisionConfig(…)"),
            ("ranker", ranker, str | Path, a_model),
        ):
            check_argument(value is None or isinstance(value, kind), name, value, expected)
        is_valid = read_blocks is None or is_count(read_blocks)
        check_argument(is_valid, "read_blocks", read_blocks, "a whole number from 1 on")
        given = model if isinstance(model, ModelFolder | PairFolder) else open_folder(model)
        if ranker is not None:
            given = _pair_of(ranker, given)
        if isinstance(given, ModelFolder):
            if read_blocks is not None:
                raise ValueError(f"read_blocks is {read_blocks} without a ranker: give one")
            if isinstance(decision, CascadeDecision):
                raise ValueError("the decision is for two models: give a ranker too")
            own = given.settings.decision
            opened = cls.alone(given, _windows(given, windows), decision or own)
        else:
            both = given.decision if decision is None else _of_both(decision, given.ranker)
            both = replace(both, read_blocks=read_blocks or both.read_blocks)
            of_ranker = _windows(given.ranker, windows)
            of_reader = given.reader.settings.windows
            of_reader = replace(of_reader, max_contexts=of_ranker.max_contexts)
            parts = ModelPart(given.ranker, of_ranker), ModelPart(given.reader, of_reader)
            are_apart = given.path == given.reader.path
            opened = cls(parts, both, None if are_apart else given)
        opened._check()
        return opened

    @classmethod
    def alone(cls, files: ModelFolder, windows: WindowConfig, decision: DecisionConfig) -> Self:
        """Returns one model whose files are not checked."""
        return cls((ModelPart(files, windows),), decision)

    def _check(self) -> None:
        """Raises ``ValueError`` if a model cannot do its part, or the windows are too long."""
        ranker = self.ranker
        reader = self.reader
        if ranker is not None and ranker.digest == reader.digest:
            raise ValueError(
                f"the ranker {ranker.folder} has the weights of the reader {reader.folder}: give "
                "another one"
            )
        if ranker is not None and reader.config.is_dual_encoder:
            raise ValueError(
                f"{reader.folder} only ranks blocks: give it as the ranker, and a model that "
                "answers"
            )
        for part in self.parts:
            if not part.files.has_head("span_output"):
                raise ValueError(
                    f"{part.name} has no head for answers: give a model for question answering, or "
                    "train one (nq train --init)"
                )
            check_length(part.config, part.windows.max_seq_length)

    @property
    def reader(self) -> ModelPart:
        """The model that answers."""
        return self.parts[-1]

    @property
    def ranker(self) -> ModelPart | None:
        """The model that ranks the blocks for the reader; ``None`` if the reader reads all."""
        return self.parts[0] if len(self.parts) > 1 else None

    @property
    def windows(self) -> WindowConfig:
        """How pages become windows of the first model, the ranker if there are two."""
        return self.parts[0].windows

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the first model."""
        return self.parts[0].tokenizer

    @property
    def name(self) -> str:
        """The name for records: of the pair folder, else of the model, or of both with a +."""
        if self.pair is not None:
            return self.pair.name
        return "+".join(part.name for part in self.parts)

    @property
    def folder(self) -> Path:
        """The folder of the model, or of both."""
        return self.reader.folder if self.pair is None else self.pair.path

    @property
    def size_mb(self) -> float:
        """The size of the files of all models in MiB."""
        files = (file for part in self.parts for file in part.files.files)
        return sum(file.stat().st_size for file in files) / 2**20

    @property
    def cascade(self) -> CascadeDecision | None:
        """The decision of two models; ``None`` for one."""
        return self.decision if isinstance(self.decision, CascadeDecision) else None

    @property
    def separate(self) -> tuple[Model, ...]:
        """Each of the models alone, with the decision for its scores."""
        if self.cascade is None:
            return (self,)
        ranker, reader = self.parts
        first = replace(self.cascade.first, prune_blocks=self.cascade.prune_blocks)
        return Model((ranker,), first), Model((reader,), self.decision)

    @property
    def advice(self) -> str:
        """One line on a model that only ranks, or a decision that is not tuned; or empty."""
        if self.reader.config.is_dual_encoder:
            return (
                f"{self.reader.folder} only ranks blocks, and gives no short answers: give it as "
                "--ranker, and a --model that reads the best of them"
            )
        if self.ranker is None or self.pair is not None:
            return ""
        return (
            f"{self.name} has no decision of both models, so that of {self.reader.name} is used, "
            "for the blocks that it reads; nq tune --ranker makes one"
        )

    @property
    def key(self) -> list[dict[str, str]]:
        """What tells the models from others, as JSON values, wherever their folders are."""
        keys = [part.files.key(part.windows.compat) for part in self.parts]
        if self.pair is not None:
            keys.append({"decision": storage.digest_json(self.pair.decision.to_dict())})
        return keys

    def check_same(self) -> None:
        """Raises ``Error`` if a file of the models has changed since it was read."""
        for part in self.parts:
            part.files.check_same()
        if self.pair is not None:
            self.pair.check_same()

    def with_windows(self, **changes: Any) -> Self:
        """Returns the models with other settings of the windows of the first one.

        Windows that are too long for it are a ``ValueError``.
        """
        first, *others = self.parts
        windows = replace(first.windows, **changes)
        check_length(first.config, windows.max_seq_length)
        return replace(self, parts=(replace(first, windows=windows), *others))

    def moved(self, folder: Path) -> Self:
        """Returns the same models in another place; of two models given apart the first moves."""
        moved = open_folder(folder) if self.pair is not None else ModelFolder(folder)
        if isinstance(moved, PairFolder):
            ranker, reader = self.parts
            parts = replace(ranker, files=moved.ranker), replace(reader, files=moved.reader)
            return replace(self, parts=parts, pair=moved)
        first, *others = self.parts
        return replace(self, parts=(replace(first, files=moved), *others))

    def copy(self, target: Path, decision: DecisionConfig | None = None) -> Path:
        """Copies the models to ``target``, which it returns, with the windows that they have here.

        Of two models it is a pair folder.

        Args:
            decision: how scores become answers; by default the decision that the models have here.
        """
        decision = decision or self.decision
        if not isinstance(decision, CascadeDecision):
            return _copy(self.reader, target, decision)
        target.mkdir(parents=True)
        ranker, reader = (
            ModelFolder(_copy(part, target / name, part.files.settings.decision))
            for name, part in zip(("ranker", "reader"), self.parts, strict=True)
        )
        save_pair(PairFolder(target, ranker, reader, decision), decision)
        return target

    def to_dict(self) -> dict[str, Any]:
        """Returns the models as JSON values with absolute paths, for the description of a run."""
        return {
            "models": [
                {"folder": str(part.folder.absolute()), "windows": part.windows.to_dict()}
                for part in self.parts
            ],
            "pair": None if self.pair is None else str(self.pair.path.absolute()),
            "decision": self.decision.to_dict(),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Returns the models that ``to_dict`` described, whose folders may be gone."""
        parts = tuple(
            ModelPart(ModelFolder(Path(one["folder"])), WindowConfig.from_dict(one["windows"]))
            for one in values["models"]
        )
        kind = DecisionConfig if len(parts) == 1 else CascadeDecision
        decision = kind.from_dict(values["decision"])
        pair = None
        if values["pair"] is not None and isinstance(decision, CascadeDecision):
            ranker, reader = (part.files for part in parts)
            pair = PairFolder(Path(values["pair"]), ranker, reader, decision)
        return cls(parts, decision, pair)


def _copy(part: ModelPart, target: Path, decision: DecisionConfig) -> Path:
    settings = replace(part.files.settings, windows=part.windows, decision=decision)
    return part.files.copy(target, settings)


def _windows(files: ModelFolder, given: WindowConfig | None) -> WindowConfig:
    """Returns how pages become windows of a model; those of a dual encoder are texts apart."""
    own = files.settings.windows
    windows = given or own
    if files.config.is_dual_encoder:
        return replace(
            windows,
            window_scope=TEXT_SCOPE,
            question_prefix=own.question_prefix,
            block_prefix=own.block_prefix,
        )
    if windows.window_scope == TEXT_SCOPE:
        raise ValueError(
            f"window_scope is {TEXT_SCOPE}, which is for a dual encoder: {files.path} reads "
            "question and page together"
        )
    return windows


def _pair_of(ranker: str | Path, reader: ModelFolder | PairFolder) -> PairFolder:
    """Returns two models that are given apart, with the decision of the reader for both.

    Of the two bundled models it is their folder, with the decision that was fitted to both.
    """
    if isinstance(reader, PairFolder):
        raise ValueError(
            f"{reader.name} is two models already: leave the ranker out, or give it one model"
        )
    first = ModelFolder.open(ranker)
    bundled = read_pair(bundled_pair())
    if (first, reader) == (bundled.ranker, bundled.reader):
        return bundled
    return PairFolder(reader.path, first, reader, _of_both(reader.settings.decision, first))


def _of_both(decision: DecisionConfig, ranker: ModelFolder) -> CascadeDecision:
    """Returns the decision of two models: the given one, which may be the reader's own."""
    if isinstance(decision, CascadeDecision):
        return decision
    if decision.rule == SQUAD:  # which ranks no blocks
        decision = replace(decision, rule=DecisionConfig.rule)
    weights = CascadeWeights(**decision.weights.to_dict())
    own = replace(ranker.settings.decision, rule=decision.rule)
    return CascadeDecision(**{**vars(decision), "weights": weights, "first": own})
