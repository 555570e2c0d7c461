"""The interface of all engines, and the choice of the one that a profile names."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from nq.inference.batches import Shape
from nq.inference.network import Network
from nq.inference.profile import Profile
from nq.inference.reduction import Reduction
from nq.inference.scorer import Rows

Step = Callable[[Rows], Sequence[Any]]
"""Maps rows of one static shape to the columns of the reduction as arrays."""


@dataclass(frozen=True, eq=False)
class Computation:
    """What an engine computes.

    Args:
        network: the model, under the dtype policy of the profile.
        profile: the optimizations.
        reduction: reduces the logits.
        calibration: windows of real data, for an engine that is calibrated.
        threads: that compute one operation; by default as many as the engine chooses.
    """

    network: Network
    profile: Profile
    reduction: Reduction
    calibration: Rows = field(default_factory=dict)
    threads: int | None = None


class Engine(Protocol):
    """Compiles and runs a computation.

    Attributes:
        precision: compute type of the matrix products.
        device: ``CPU`` or ``GPU``.
    """

    precision: str
    device: str

    def compiled(self, shape: Shape) -> Step:
        """Returns a step for rows of exactly this shape.

        Raises:
            ProfileNotInForceError: the compiled step is not what the profile requires.
        """


def make_engine(computation: Computation) -> Engine:
    """Returns the engine that the computation's profile names.

    Raises:
        Error: a package of the engine is not installed.
    """
    computation.profile.require()
    name = computation.profile.changes.engine
    module = importlib.import_module(f"nq.inference.engines.{name}")
    engine: Engine = module.Engine(computation)
    return engine
