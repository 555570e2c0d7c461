"""How a model is trained, and how it learns from a teacher."""

from dataclasses import dataclass

from nq.config import Settings, option


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
        "float32", "compute type of the training step", choices=("float32", "bfloat16", "float16")
    )


@dataclass(frozen=True)
class DistillationConfig(Settings):
    """How a student learns from a teacher; the defaults are DistilBERT's for SQuAD."""

    teacher_weight: float = option(
        0.5, "share of the teacher in the loss; the labels have the rest", within="[0, 1]"
    )
    temperature: float = option(
        2.0, "divides both models' logits; more makes probabilities more even", within="[0.1, 100]"
    )
