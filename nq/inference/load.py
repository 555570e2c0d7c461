"""Loads a model folder as a scorer: the one place where a checkpoint becomes what runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from nq import __version__
from nq.errors import Error
from nq.inference.batches import Shape
from nq.inference.cascade import CascadeScorer
from nq.inference.engine import Computation, FolderNetwork, Network
from nq.inference.predictor import Predictor
from nq.inference.profile import TENSORFLOW, Profile
from nq.inference.prune import PruningScorer
from nq.inference.reduction import Reduction, TopK, Vectors
from nq.inference.rescore import RescoringScorer, close_margin, exact_profile
from nq.inference.scorer import (
    PART_BATCHES,
    PART_FACTOR,
    Rows,
    Scorer,
    ScorerWrapper,
    parts,
    windowed,
)
from nq.inference.vector_file import VectorFile, vector_folder
from nq.inference.vectors import Texts, VectorScorer, VectorStore, text_rows
from nq.model.folder import ModelFolder
from nq.model.model import Model, ModelPart
from nq.model.runtime import import_tensorflow
from nq.postprocess.decision import RULES
from nq.preprocess.features import features
from nq.records import Columns, Example
from nq.storage import digest_json

CALIBRATION_WINDOWS = 64


@dataclass(frozen=True, eq=False)
class ScorerSpec:
    """Everything that a process needs to make a scorer; it can be sent to another process.

    The decision rule must fit (``check_rule``).

    Args:
        threads: intra-op threads; ``None`` for the engine's choice.
        calibration: windows of real data for each model folder, where the profile has ``int8``.
        keeps_vectors: whether the vectors of a dual encoder are kept in the user's cache.
        adaptive: whether a batch has as many rows as a call has windows, at most ``batch_size``.
            Otherwise batches of one shape are filled up, which suits many windows.
    """

    model: Model
    profile: Profile
    batch_size: int
    threads: int | None = None
    calibration: Mapping[Path, Rows] = field(default_factory=dict, repr=False)
    adaptive: bool = False
    keeps_vectors: bool = False

    def __post_init__(self) -> None:
        check_rule(self.model, self.profile)

    @property
    def part_windows(self) -> int:
        """Windows that a part for the scorer should have at least."""
        reads_some = self.profile.changes.prune or self.model.ranker is not None
        return (PART_FACTOR if reads_some else 1) * PART_BATCHES * self.batch_size

    def calibrated(self, examples: Callable[[], Iterator[Example]]) -> ScorerSpec:
        """Returns the same scorer with windows of the first examples where it has ``int8``."""
        if not self.profile.changes.int8:
            return self
        calibration = {
            part.folder: calibration_rows(examples(), part, self.batch_size)
            for part in self.model.parts
        }
        return replace(self, calibration=calibration)

    def in_folders(self, folders: Mapping[Path, Path]) -> ScorerSpec:
        """Returns the same scorer of models that are in other folders."""
        parts = list[ModelPart]()
        for part in self.model.parts:
            digest = part.files.sent or part.digest
            parts.append(replace(part, files=ModelFolder(folders[part.folder], digest)))
        model = replace(self.model, parts=tuple(parts))
        calibration = {folders[folder]: rows for folder, rows in self.calibration.items()}
        return replace(self, model=model, calibration=calibration)


def check_rule(model: Model, profile: Profile) -> None:
    """Raises ``Error`` if the rule ranks no blocks, which the profile or a ranker needs."""
    rule = model.decision.rule
    users = [*profile.needs_ranking]
    if model.ranker is not None:
        users.append("a ranker")
    if users and not RULES[rule].ranks:
        raise Error(
            f"decision {rule} ranks no blocks for {' and '.join(users)}: leave that out, or take "
            "the rule default"
        )


def calibration_rows(examples: Iterator[Example], model: ModelPart, batch_size: int) -> Columns:
    """Returns windows of the first examples, evenly spaced in those of a part.

    Of a dual encoder they are texts.
    """
    made = (windowed(example, model.tokenizer, model.windows) for example in examples)
    part = next(parts(made, PART_BATCHES * batch_size), None)
    if part is None:
        raise Error("there are no windows to calibrate int8 on: leave int8 out")
    rows = part.rows
    if model.config.is_dual_encoder:
        rows = text_rows(Texts.of(rows, model.tokenizer.cls_id).pieces)
    step = -(-len(rows["input_ids"]) // CALIBRATION_WINDOWS)
    return {name: column[::step] for name, column in rows.items()}


def load_scorer(spec: ScorerSpec) -> Scorer:
    """Loads models as a scorer under their profile, wrapped for pruning and rescoring."""
    profile = spec.profile
    model = spec.model
    if profile.changes.rescore:
        margin = close_margin(profile, _device(profile))
    separate = model.separate
    scorer, *readers = _load_each([replace(spec, model=one) for one in separate])
    if profile.changes.prune:
        part = model.parts[0]
        cls_id = part.tokenizer.cls_id if part.config.is_dual_encoder else None
        scorer = PruningScorer(scorer, separate[0].decision, cls_id)
    if model.cascade is not None:
        part = model.reader
        reader_features = partial(features, tokenizer=part.tokenizer, config=part.windows)
        scorer = CascadeScorer(scorer, readers[0], reader_features, model.cascade)
    if profile.changes.rescore:
        exact = replace(spec, profile=exact_profile(profile))
        scorer = RescoringScorer(scorer, lambda: load_scorer(exact), model.decision, margin)
    return scorer


def _load_each(specs: Sequence[ScorerSpec]) -> list[Scorer]:
    """Loads models, at the same time unless TensorFlow runs them: graphs may have to be made."""
    if specs[0].profile.changes.engine == TENSORFLOW:
        return list(map(_load_one, specs))
    with ThreadPoolExecutor() as executor:
        return list(executor.map(_load_one, specs))


def _load_one(spec: ScorerSpec) -> Scorer:
    """Loads the only model of a spec, without pruning and rescoring."""
    model = spec.model.reader
    rule = RULES[spec.model.decision.rule]
    if not model.config.is_dual_encoder:
        return load_predictor(spec)
    encoder = load_predictor(spec, Vectors())
    reduction = TopK(rule.k, rule.text_only)
    store = VectorStore(_vector_file(model, encoder) if spec.keeps_vectors else None)
    return VectorScorer(encoder, model.tokenizer.cls_id, reduction, store)


def _vector_file(model: ModelPart, encoder: Predictor) -> VectorFile:
    """Returns the file for the vectors of a model under an engine and its compute type."""
    engine = encoder.profile.changes.engine
    network = [model.digest, model.config.to_dict()]
    key = digest_json([*network, engine, encoder.precision, __version__])
    return VectorFile(vector_folder() / f"{key[:32]}.sqlite")


def vector_scorer(scorer: Scorer) -> VectorScorer | None:
    """Returns the dual encoder that ranks for a scorer, ``None`` if there is none."""
    while isinstance(scorer, ScorerWrapper):
        if isinstance(scorer, VectorScorer):
            return scorer
        scorer = scorer.inner
    return None


def load_predictor(
    spec: ScorerSpec, reduction: Reduction | None = None, network: Network | None = None
) -> Predictor:
    """Loads the only model of a spec as a predictor, without pruning and rescoring.

    The reduction is by default the one that the decision needs; the model is loaded unless
    ``network`` is that of another predictor under this profile.
    """
    model = spec.model.reader
    profile = spec.profile
    rule = RULES[spec.model.decision.rule]
    exact = replace(spec, profile=exact_profile(profile))
    encodes_texts = model.config.is_dual_encoder and profile.changes.engine != TENSORFLOW
    computation = Computation(
        network or FolderNetwork(model, profile.policy(_device(profile))),
        profile,
        reduction or TopK(rule.k, rule.text_only),
        calibration=spec.calibration.get(model.folder, {}),
        threads=spec.threads,
        adaptive=spec.adaptive or encodes_texts,
    )
    shape = Shape(spec.batch_size, model.windows.max_seq_length)
    if profile == exact.profile:
        return Predictor(computation, shape)
    return Predictor(computation, shape, lambda: load_predictor(exact, reduction))


def _device(profile: Profile) -> str:
    """Returns the device of a profile's engine."""
    return tensorflow_device() if profile.changes.engine == TENSORFLOW else "CPU"


def tensorflow_device(threads: int | None = None) -> str:
    """Returns the device of TensorFlow, which is imported with this number of threads."""
    import_tensorflow(threads)
    from nq.inference.engines.tensorflow import device

    return device()
