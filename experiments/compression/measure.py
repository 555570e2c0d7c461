"""The rows of the study, and what measures them: first their speeds, then their answers."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from experiments import Values, study, units, workloads
from experiments.compression import report
from experiments.compression.models import (
    RAW,
    RECOVERED,
    TUNED,
    Models,
    in_new_process,
    odd_half,
    run_once,
    tune,
)
from experiments.compression.report import BASELINE, BFLOAT16, INT8
from experiments.planning.models import window_gflop
from nq import processor
from nq.config import DecisionConfig
from nq.evaluation.gate import question_counts, relative_loss
from nq.evaluation.official import places
from nq.inference.profile import Profile
from nq.model.folder import ModelFolder
from nq.model.model import Model
from nq.progress import ProgressBar
from nq.runs.config import Compute
from nq.runs.folder import FinishedRun
from nq.runs.job import Job

BATCH_SIZE = 16


@dataclass(frozen=True)
class Computation:
    """A model that is computed by one process with all cores, or by several with a share each.

    A step of each of the ``instances`` is a batch of full windows.
    """

    folder: Path
    profile: str
    instances: int


def load(task: Computation) -> tuple[Values, units.Work]:
    """Loads a model; a command computes one batch of full windows of random pieces.

    The batch is computed once before, which compiles. A profile that is calibrated is so on this
    batch: the speed does not depend on the scales. The first reply has the number
    of ``weights``, the ``length`` of a window in pieces, the ``precision`` of the matrix products
    and the sets of ``cores`` that the threads may use.
    """
    from nq.inference.load import ScorerSpec, load_predictor
    from nq.model.model import Model
    from nq.model.runtime import import_tensorflow
    from nq.preprocess.tokenizers.load import load_tokenizer

    tokenizer = load_tokenizer(task.folder)
    windows = ModelFolder(task.folder).settings.windows
    rows = workloads.full_windows(tokenizer.pieces, BATCH_SIZE, windows.max_seq_length)
    threads = len(processor.cores()) if task.instances > 1 else None  # the engine chooses
    import_tensorflow(threads)
    predictor = load_predictor(
        ScorerSpec(
            Model.alone(ModelFolder(task.folder), windows, DecisionConfig()),
            Profile(task.profile),
            BATCH_SIZE,
            threads,
            calibration={task.folder: rows},
        )
    )
    predictor.scores(rows)
    loaded = {
        "weights": predictor.network.model.count_params(),
        "length": windows.max_seq_length,
        "precision": predictor.precision,
        "cores": units.thread_cores(),
    }
    return loaded, lambda command: units.seconds(lambda: predictor.scores(rows))


def measure(computations: Sequence[Computation], rounds: int) -> list[Values]:
    """Measures models in the same rounds; the processes of one compute together.

    Returns:
        For each model the first reply of each process (``loaded``), the ``windows`` of a round, in
        all processes together, and the ``seconds`` of each round.
    """
    pairs: list[tuple[Values, study.Step]] = []
    with contextlib.ExitStack() as stack:
        for computation in computations:
            shares = units.shares(processor.cores(), computation.instances)
            group = [stack.enter_context(units.started(load, computation, own)) for own in shares]
            windows = len(group) * BATCH_SIZE
            row = {"loaded": units.receive_all(group), "windows": windows, "seconds": []}
            pairs.append((row, partial(_step, group)))
        return study.timed(pairs, rounds)


def _step(group: Sequence[units.Unit]) -> dict[str, float]:
    return {"seconds": units.together(group, True)[0]}


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
    def key(self) -> Values:
        """What names the row in the results."""
        return {"state": self.state, **self.speed_key}

    @property
    def speed_key(self) -> Values:
        """What the speed depends on: training changes weights, but no shape."""
        return {"prune": self.prune, "profile": self.profile, "instances": self.instances}


def _missing(profile: str) -> str:
    names = ", ".join(Profile(profile).missing())
    return f"{names} not installed" if names else ""


def variants(prune: Sequence[str], states: Sequence[str]) -> list[Variant]:
    """Returns the rows that are known from the start, baseline first."""
    whole = [
        Variant(),
        Variant(BFLOAT16),
        Variant(INT8),
        Variant(instances=2),
        Variant(INT8, instances=2),
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

    def add(self, variants: Sequence[Variant]) -> None:
        """Measures the variants that are missing and can be measured here, the speeds first."""
        profiles = study.installed([*{row.profile: None for row in variants}], _missing)
        known = [row for row in variants if row.profile in profiles]
        with ProgressBar("compression", "rows") as bar:
            for measure in (self.time, self.judge):
                for variant in known:
                    measure(variant)
                    bar(1, 2 * len(known))

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

    def _answers(self, variant: Variant, folder: Path) -> FinishedRun:
        """Returns the run with the scores of a variant, which is run unless there is one.

        It does not depend on the decision of the folder, so that tuning repeats no run. Answers
        under the baseline's profile may be computed under another one in float32, and in one
        process, since the number of processes does not change them.
        """
        is_plain = variant.profile == BASELINE
        instances = variant.instances if variant.instances > 1 and not is_plain else None
        job = Job(
            self.dev,
            Model.open(folder, decision=DecisionConfig()),
            self.scores_profile if is_plain else variant.profile,
            root=self.root,
            keep_scores=True,
            compute=Compute(batch_size=BATCH_SIZE, instances=instances),
        )
        return FinishedRun(in_new_process(run_once, job))

    def _quality(self, variant: Variant, folder: Path) -> Values:
        """Returns micro-F1 and relative loss on the odd half, and the answers that changed."""
        own = self._answers(variant, folder)
        source = self.models.source
        is_tuned = variant == Variant() or variant.state in (TUNED, RECOVERED)
        if is_tuned and variant.profile == BASELINE:
            tune(own, folder)
        gold, mine = odd_half(own, ModelFolder(folder if is_tuned else source).settings.decision)
        baseline = self._answers(Variant(), source)
        _, others = odd_half(baseline, ModelFolder(source).settings.decision)
        loss = relative_loss(question_counts(gold, mine), question_counts(gold, others))
        return {
            "micro_f1": loss.micro_f1,
            "baseline_micro_f1": loss.other_micro_f1,
            "loss": loss.loss,
            "low": loss.low,
            "high": loss.high,
            "questions": len(gold),
            "changed": sum(places(mine[key]) != places(others[key]) for key in gold),
        }

    def _speed(self, variant: Variant, folder: Path) -> Values:
        """Returns seconds of the rounds, of the references too, and the size of the model."""
        source = self.models.source
        references = [Computation(source, p, 1) for p in variant.references]
        own = Computation(folder, variant.profile, variant.instances)
        timed, *others = measure([own, *references], self.rounds)
        loaded = timed["loaded"]
        config = ModelFolder(folder).config
        first = loaded[0]
        seconds = [other["seconds"] for other in others]
        return {
            "weights": first["weights"],
            "gflop": window_gflop(config, first["length"]),
            "length": first["length"],
            "precision": first["precision"],
            "windows": timed["windows"],
            "cores": [one["cores"] for one in loaded],
            "seconds": timed["seconds"],
            "reference_seconds": dict(zip(variant.references, seconds, strict=True)),
            "reference_windows": BATCH_SIZE,
        }
