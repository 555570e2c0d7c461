"""The settings and the description of a training, its result, and the names of its curves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from nq import storage
from nq.config import Settings, WindowConfig, option
from nq.errors import check_argument
from nq.formats import input_files
from nq.inference.profile import Profile
from nq.model.config import STORES
from nq.model.folder import ModelFolder
from nq.preprocess.tokenizers import FILES

if TYPE_CHECKING:
    from nq.formats.own_data import PageFolder
    from nq.preprocess.prepared import Windows

STATE = f"{storage.WORK}/state"
PROGRESS = "progress.json"
"""The memo of a training in its output folder, and its values that tell the completed steps."""
_WRITTEN = ("config.json", "nq.json", "model.safetensors", "README.md", *FILES)
TRAINING = storage.Kind(
    name="training",
    what="a training of nq train",
    files="|".join(map(re.escape, _WRITTEN))
    + r"|unfinished/[0-9a-f]{12}\.mlflow_run|unfinished/(?:state|teacher)/.+",
    folders="unfinished(?:/(?:state|teacher)(?:/.+)?)?",
)
"""The output folder of a training."""
LOSS = "loss"
PARTS = ("hard_loss", "soft_loss")
"""The losses by the labels and by the teacher, which a training with a teacher minimizes."""
Curves = dict[str, list[float]]
"""The values of ``LOSS``, and with a teacher of ``PARTS``, in all steps."""
STEP = "step"
MEASURED = {
    "default": {
        "micro_f1": "micro_f1_best",
        "long_f1": "long-best-threshold-f1",
        "short_f1": "short-best-threshold-f1",
    },
    "squad": {"squad_f1": "squad_f1", "squad_exact_match": "squad_exact_match"},
}
"""By decision rule the figures of an evaluation on held-out questions, and their names among the
metrics of ``Evaluation``. The weights with the best first one are kept."""
Figures = dict[str, float]
"""``STEP`` of an evaluation, and the figures of ``MEASURED`` in that order."""
EVALUATE_EVERY = 200
FINAL_STEPS = 100
"""Steps whose mean loss is the final loss."""


@dataclass(frozen=True)
class TrainConfig(Settings):
    """How a model is trained."""

    epochs: float = option(2.0, "passes over the windows; may be a fraction", within="(0, inf)")
    batch_size: int = option(32, "windows in a step", minimum=1)
    learning_rate: float = option(2e-4, "highest, reached after the warm-up", within="(0, inf)")
    warmup: float = option(0.1, "share of the steps while the rate rises", within="[0, 1)")
    weight_decay: float = option(0.01, "AdamW's weight decay; biases and norms are exempt")
    dropout: float = option(0.1, "rate of dropout on attention and layer outputs", within="[0, 1)")
    negatives: float = option(0.02, "share of kept windows without the answer", within="[0, 1]")
    seed: int = option(2020, "of the shuffling, the negatives, dropout and fresh weights")
    save_every: int = option(200, "steps between two checkpoints to resume from", minimum=1)
    precision: str = option(
        "float32",
        "compute type of the training step",
        choices=("float32", "bfloat16", "float16"),
    )


@dataclass(frozen=True)
class DistillationConfig(Settings):
    """How a student learns from a teacher; the defaults are DistilBERT's for SQuAD."""

    teacher_weight: float = option(
        0.5,
        "share of the teacher in the loss; the labels have the rest",
        within="[0, 1]",
    )
    temperature: float = option(
        2.0,
        "divides both models' logits; more makes probabilities more even",
        within="[0.1, 100]",
    )


@dataclass(frozen=True)
class TrainingJob:
    """The description of a training.

    Args:
        files: annotated files, globs or folders.
        init: the model that is trained.
        output: the folder of the result, from which an interrupted training is resumed.
        limit: the largest number of records to read.
        card: a file with the text of the model card; by default it lists the settings.
        teacher: a model whose probabilities are trained on too.
        dev: files of held-out questions, on which the model is measured every ``evaluate_every``
            steps; the weights of the best evaluation are kept.
    """

    files: tuple[str, ...]
    init: ModelFolder
    output: Path
    windows: WindowConfig = field(default_factory=WindowConfig)
    config: TrainConfig = field(default_factory=TrainConfig)
    limit: int | None = None
    workers: int | None = None
    card: Path | None = None
    store: str = STORES[0]
    teacher: ModelFolder | None = None
    distillation: DistillationConfig = field(default_factory=DistillationConfig)
    teacher_profile: Profile | None = None
    dev: tuple[str, ...] = ()
    evaluate_every: int = EVALUATE_EVERY
    pages: PageFolder | None = None

    @classmethod
    def of(
        cls,
        files: str | Path | Iterable[str | Path],
        **settings: Any,
    ) -> Self:
        """Returns a training from paths, names of models, and settings by their own names."""
        for name, kind in (
            ("windows", WindowConfig),
            ("config", TrainConfig),
            ("distillation", DistillationConfig),
        ):
            own = {f.name: settings.pop(f.name) for f in fields(kind) if f.name in settings}
            settings.setdefault(name, kind(**own))
        store = settings.get("store", STORES[0])
        check_argument(store in STORES, "store", store, " or ".join(STORES))
        find = ModelFolder.find
        for name, convert in (("init", find), ("teacher", find), ("output", Path), ("card", Path)):
            if settings.get(name) is not None:
                settings[name] = convert(settings[name])
        if "dev" in settings:
            settings["dev"] = input_files.path_list("dev", settings["dev"])
        return cls(input_files.path_list("files", files), **settings)

    @property
    def teacher_settings(self) -> dict[str, Any]:
        """Name, weight and temperature of the teacher; empty if there is none."""
        if self.teacher is None:
            return {}
        return {"teacher": self.teacher.name, **self.distillation.to_dict()}

    def new_card(self) -> str:
        if self.card:
            return self.card.read_text(encoding="utf-8")
        values = {**self.config.to_dict(), **self.teacher_settings}
        settings = "\n".join(f"- {name}: {value}" for name, value in values.items())
        return (
            f"# {self.output.name}\n\nTrained by `nq train` from `{self.init.name}` on "
            f"{', '.join(Path(file).name for file in self.files)}.\n\n{settings}\n"
        )


def measured(figures: Figures) -> Figures:
    """Returns the figures of an evaluation without its step."""
    return {name: value for name, value in figures.items() if name != STEP}


def in_words(figures: Mapping[str, Any]) -> str:
    """Returns the figures of an evaluation, or losses, as text."""
    return ", ".join(f"{name} {x:.3f}" for name, x in figures.items() if name != STEP)


@dataclass(frozen=True)
class TrainingResult:
    """The outcome of a training.

    ``steps`` includes those before an interruption, ``loss`` that of the last steps. ``best``
    is the evaluation whose weights are kept, ``model_uri`` MLflow's URI of the model.
    """

    output: Path
    prepared: Windows
    steps: int
    loss: float
    train_s: float
    best: Figures | None
    model_uri: str | None

    def to_dict(self) -> dict[str, Any]:
        values = {**vars(self), "output": str(self.output)}
        prepared: Windows = values.pop("prepared")
        return values | asdict(prepared.counts)
