"""The speed of model folders under profiles, in one process or several, in the same rounds."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from experiments import study, units, workloads
from nq import processor

CALIBRATION_WINDOWS = 16


@dataclass(frozen=True)
class Computation:
    """A model that is computed by one process with all cores, or by several with a share each.

    A step of each of the ``instances`` is a batch of full windows.
    """

    folder: Path
    profile: str
    instances: int
    batch_size: int

    def start(self, stack: contextlib.ExitStack) -> list[units.Unit]:
        """Starts the processes, which end with the stack."""
        shares = units.shares(processor.cores(), self.instances)
        return [stack.enter_context(units.started(load, self, cores)) for cores in shares]


def load(task: Computation) -> tuple[dict[str, Any], units.Work]:
    """Loads a model; a command computes one batch of full windows of random pieces.

    The batch is computed once before, which compiles. Where a profile is calibrated on windows,
    these are random too: the speed does not depend on the scales. The first reply has the number
    of ``weights``, the ``length`` of a window in pieces, the ``precision`` of the matrix products
    and the sets of ``cores`` that the threads may use.
    """
    from nq.config import DecisionConfig
    from nq.inference.load import ScorerSpec, load_predictor
    from nq.inference.profile import Profile
    from nq.model.folder import load_settings
    from nq.model.model_spec import ModelSpec
    from nq.model.runtime import import_tensorflow
    from nq.preprocess.tokenizers.load import load_tokenizer

    tokenizer, windows = load_tokenizer(task.folder), load_settings(task.folder).windows
    pieces = tokenizer.pieces, task.batch_size, windows.max_seq_length
    rows = workloads.full_windows(*pieces)
    threads = len(processor.cores()) if task.instances > 1 else None  # the engine chooses
    import_tensorflow(threads)
    some = workloads.full_windows(pieces[0], CALIBRATION_WINDOWS, pieces[2])
    predictor = load_predictor(
        ScorerSpec(
            ModelSpec(task.folder, windows, DecisionConfig()),
            Profile.parse(task.profile),
            task.batch_size,
            threads,
            calibration={task.folder: some},
        )
    )
    predictor.scores(rows)
    loaded = {
        **{"weights": predictor.network.model.count_params(), "length": windows.max_seq_length},
        **{"precision": predictor.precision, "cores": units.thread_cores()},
    }
    return loaded, lambda command: units.seconds(lambda: predictor.scores(rows))


def measure(computations: Sequence[Computation], rounds: int) -> list[dict[str, Any]]:
    """Measures models in the same rounds; the processes of one compute together.

    Returns:
        For each model the first reply of each process (``loaded``), the ``windows`` of a round, in
        all processes together, and the ``seconds`` of each round.
    """
    pairs: list[tuple[dict[str, Any], study.Step]] = []
    with contextlib.ExitStack() as stack:
        groups = [computation.start(stack) for computation in computations]
        for computation, group in zip(computations, groups, strict=True):
            windows = len(group) * computation.batch_size
            row = {"loaded": units.receive_all(group), "windows": windows, "seconds": []}
            pairs.append((row, partial(_step, group)))
        return study.timed(pairs, rounds)


def _step(group: Sequence[units.Unit]) -> dict[str, float]:
    return {"seconds": units.together(group, True)[0]}
