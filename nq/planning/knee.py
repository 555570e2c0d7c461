"""How many cores, or other units of a device, a model should have: the knee of its speed.

D-STACK: Dhakal, Kulkarni and Ramakrishnan 2023, https://arxiv.org/abs/2304.13541. With the run time
E(S) of a model on S units, its efficiency is 1 / (E S). Under Amdahl's law, E = s + p / S, this
falls with every unit. The magnitude of its derivative by E, 1 / (E² S), has a maximum instead, at
S = p / s: up to there a unit more pays for itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Amdahl:
    """The run time of a model by the number of its units, E(S) = s + p / S.

    Args:
        serial_s: s, seconds that more units do not shorten.
        parallel_s: p, seconds on one unit that they divide.
    """

    serial_s: float
    parallel_s: float

    def seconds(self, units: float) -> float:
        """Returns E(S).

        >>> Amdahl(1.0, 8.0).seconds(4)
        3.0
        """
        return self.serial_s + self.parallel_s / units

    def gain(self, units: float) -> float:
        """Returns 1 / (E² S), which the knee maximizes."""
        return 1 / (self.seconds(units) ** 2 * units)

    def knee(self, most: int) -> int:
        """Returns the whole number of units with the largest gain.

        Args:
            most: units that there are.

        >>> Amdahl(serial_s=1.0, parallel_s=8.0).knee(most=48)
        8
        """
        return max(range(1, most + 1), key=self.gain)


def fit(units: Sequence[int], seconds: Sequence[float]) -> Amdahl:
    """Returns the law that fits measured run times best: least squares, s and p not negative.

    Args:
        units: S of each measurement; at least two different ones.
        seconds: E of each.

    >>> fit([1, 2, 4], [9.0, 5.0, 3.0]).knee(most=48)
    8
    """
    import numpy as np
    from scipy.optimize import nnls

    inverse = 1 / np.asarray(units, dtype=float)
    factors = np.stack([np.ones_like(inverse), inverse], axis=1)
    (serial, parallel), _ = nnls(factors, np.asarray(seconds, dtype=float))
    return Amdahl(float(serial), float(parallel))
