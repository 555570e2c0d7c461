"""The rows of the study: which model, how it is computed, beside what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experiments import study
from experiments.compression import report
from experiments.compression.report import BASELINE, BFLOAT16, INT8

ZEROS = 0.5


@dataclass(frozen=True)
class Variant:
    """One row: a model and how it is computed.

    Args:
        profile: its optimizations.
        instances: processes that share the windows.
        prune: the counts that are kept, as text; empty for the whole model.
        state: of a pruned model, one of ``STATES``.
        zeros: share of the weights that are set to zero.
        references: profiles of the baseline that are measured in the same rounds.
    """

    profile: str = BASELINE
    instances: int = 1
    prune: str = ""
    state: str = ""
    zeros: float = 0.0
    references: tuple[str, ...] = (BASELINE,)

    @property
    def key(self) -> dict[str, Any]:
        """What names the row in the results."""
        return {"prune": self.prune, "state": self.state, **self._computed}

    @property
    def speed_key(self) -> dict[str, Any]:
        """What the speed depends on: training changes weights, but no shape."""
        return {"prune": self.prune, **self._computed}

    @property
    def _computed(self) -> dict[str, Any]:
        return {"profile": self.profile, "instances": self.instances, "zeros": self.zeros}


def variants(prune: Sequence[str], states: Sequence[str]) -> list[Variant]:
    """Returns the rows that are known from the start, baseline first."""
    whole = [
        *(Variant(), Variant(BFLOAT16), Variant(INT8)),
        *(Variant(instances=2), Variant(INT8, instances=2)),
    ]
    pruned = [Variant(prune=text, state=state) for text in prune for state in states]
    return [*whole, Variant(zeros=ZEROS), *pruned]


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
