"""The rows of the study, and what measures them: first their speeds, then their answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments import study
from experiments.compression import report, speed
from experiments.compression.models import RAW, RECOVERED, TUNED, Answers, Models, answers
from experiments.compression.report import BASELINE, BFLOAT16, INT8
from experiments.planning.flop import window_gflop
from nq.evaluation.gate import question_counts, relative_loss
from nq.evaluation.labels import same_answers
from nq.model.folder import load_config, load_settings

BATCH_SIZE = 16


@dataclass(frozen=True)
class Variant:
    """One row: a model and how it is computed.

    The whole model has no counts to ``prune`` to and no ``state``. ``references`` are the profiles
    of the baseline that are measured in the same rounds.
    """

    profile: str = BASELINE
    instances: int = 1
    prune: str = ""
    state: str = ""
    references: tuple[str, ...] = (BASELINE,)

    @property
    def key(self) -> dict[str, Any]:
        """What names the row in the results."""
        return {"state": self.state, **self.speed_key}

    @property
    def speed_key(self) -> dict[str, Any]:
        """What the speed depends on: training changes weights, but no shape."""
        return {"prune": self.prune, "profile": self.profile, "instances": self.instances}


def variants(prune: Sequence[str], states: Sequence[str]) -> list[Variant]:
    """Returns the rows that are known from the start, baseline first."""
    whole = [
        *(Variant(), Variant(BFLOAT16), Variant(INT8)),
        *(Variant(instances=2), Variant(INT8, instances=2)),
    ]
    pruned = [Variant(prune=text, state=state) for text in prune for state in states]
    return [*whole, *pruned]


def best_variants(rows: Sequence[study.Row]) -> list[Variant]:
    """Returns the best pruned model in 8 bits, and in bfloat16 beside the whole model in it."""
    best = report.best(rows)
    if best is None:
        return []
    prune, state = best["prune"], best["state"]
    return [
        Variant(INT8, prune=prune, state=state),
        Variant(BFLOAT16, prune=prune, state=state, references=(BASELINE, BFLOAT16)),
    ]


@dataclass(frozen=True)
class Compression:
    """Measures rows, those that are not among the known results and speeds.

    ``root`` is the folder of the runs of nq on the annotated files ``dev``; ``scores_profile``
    computes the answers of the rows whose profile is the baseline.
    """

    models: Models
    dev: Sequence[str]
    root: Path
    rounds: int
    scores_profile: str
    results: study.Results
    speeds: study.Results

    def time(self, variant: Variant) -> None:
        """Measures the speed of a variant, for which a pruned model need not recover."""
        if self.speeds.find(variant.speed_key) is None:
            folder = self.models.of(variant.prune, variant.prune and RAW)
            self.speeds.add({**variant.speed_key, **self._speed(variant, folder)})

    def judge(self, variant: Variant) -> None:
        """Measures the quality of a variant that is timed, and adds its row."""
        speed = self.speeds.find(variant.speed_key)
        if speed is not None and self.results.find(variant.key) is None:
            folder = self.models.of(variant.prune, variant.state)
            self.results.add({**variant.key, **self._quality(variant, folder), **speed})

    def _answers(self, variant: Variant, folder: Path) -> Answers:
        """Returns the answers of a variant.

        Those under the baseline's profile may be computed under another one in float32, and in one
        process, since the number of processes does not change them.
        """
        is_plain = variant.profile == BASELINE
        instances = variant.instances if variant.instances > 1 and not is_plain else None
        profile = self.scores_profile if is_plain else variant.profile
        return answers(self.dev, folder, profile, instances, BATCH_SIZE, self.root)

    def _quality(self, variant: Variant, folder: Path) -> dict[str, Any]:
        """Returns micro-F1 and relative loss on the odd half, and the answers that changed."""
        own, source = self._answers(variant, folder), self.models.source
        is_tuned = variant == Variant() or variant.state in (TUNED, RECOVERED)
        if is_tuned and variant.profile == BASELINE:
            own.tune(folder)
        gold, mine = own.odd_half(load_settings(folder if is_tuned else source).decision)
        baseline = self._answers(Variant(), source)
        _, others = baseline.odd_half(load_settings(source).decision)
        loss = relative_loss(question_counts(gold, mine), question_counts(gold, others))
        return {
            **{"micro_f1": loss.micro_f1, "baseline_micro_f1": loss.other_micro_f1},
            **{"loss": loss.loss, "low": loss.low, "high": loss.high, "questions": len(gold)},
            "changed": sum(not same_answers(mine[key], others[key]) for key in gold),
        }

    def _speed(self, variant: Variant, folder: Path) -> dict[str, Any]:
        """Returns seconds of the rounds, of the references too, and the size of the model."""
        source = self.models.source
        references = [speed.Computation(source, p, 1, BATCH_SIZE) for p in variant.references]
        own = speed.Computation(folder, variant.profile, variant.instances, BATCH_SIZE)
        timed, *others = speed.measure([own, *references], self.rounds)
        loaded, config = timed["loaded"], load_config(folder)
        first, seconds = loaded[0], [other["seconds"] for other in others]
        return {
            **{"weights": first["weights"], "gflop": window_gflop(config, first["length"])},
            **{"length": first["length"], "precision": first["precision"]},
            **{"windows": timed["windows"], "cores": [one["cores"] for one in loaded]},
            "seconds": timed["seconds"],
            "reference_seconds": dict(zip(variant.references, seconds, strict=True)),
            "reference_windows": BATCH_SIZE,
        }
