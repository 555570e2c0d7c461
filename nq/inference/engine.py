"""What every engine offers, and which there are."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from nq import extras
from nq.inference.batches import Shape
from nq.inference.network import Network
from nq.inference.profile import PACKAGES, Profile
from nq.inference.top_k import Selection
from nq.records import IntArray

Rows = Mapping[str, IntArray]
"""``input_ids``, ``input_mask``, ``segment_ids`` and ``token_map``, each int32 ``[B, L]``."""

Step = Callable[[Rows], Sequence[Any]]
"""Rows of one static shape -> the columns of ``WindowScores`` as arrays."""

COLUMNS = ("input_ids", "input_mask", "segment_ids", "token_map")


@dataclass(frozen=True, eq=False)
class Task:
    """What an engine is to compute.

    Args:
        network: the model, in the policy of the profile.
        profile: how.
        selection: which positions leave it.
        calibration: gives real windows to an engine that is calibrated.
    """

    network: Network
    profile: Profile
    selection: Selection
    calibration: Callable[[], Rows] = dict


class Engine(Protocol):
    """Computes a task.

    Attributes:
        precision: the type that the matrix products are computed in.
        device: where: ``CPU`` or ``GPU``.
    """

    precision: str
    device: str

    def compiled(self, shape: Shape) -> Step:
        """A step for rows of exactly that shape.

        Raises:
            ProfileNotInForceError: what was asked for is not what would run.
        """


def make(task: Task) -> Engine:
    """The engine that the task's profile names.

    Raises:
        Error: a package of the engine is not installed.
    """
    name = task.profile.changes.engine
    if name in PACKAGES:
        extras.require(name)
    module = importlib.import_module(f"nq.inference.engines.{name}")
    engine: Engine = module.Engine(task)
    return engine
