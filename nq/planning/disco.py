"""How sparse the activations between devices may be until sending takes no longer than computing.

DISCO: Qin et al. 2023, "DISCO: distributed inference with sparse communications",
https://arxiv.org/abs/2302.11180. Each device sends only some of its features to the others; what is
not sent is not computed with either.
"""

from __future__ import annotations


def sending_seconds(size: float, bytes_per_s: float, sparsity: float) -> float:
    """Returns the time to send a layer's input: L_comm = F_s (1 - S_comm) / B.

    Args:
        size: F_s, bytes of the input.
        bytes_per_s: B, of the link.
        sparsity: S_comm, share of the bytes that are not sent.
    """
    return size * (1 - sparsity) / bytes_per_s


def computing_seconds(flop: float, devices: int, flop_per_s: float, sparsity: float = 0.0) -> float:
    """Returns the time to compute a layer: L_comp = C_c (1 - S_comp) / (N C).

    A device has 1/N of the input itself, so that sending less by S_comm saves
    S_comp = (N-1)/N S_comm of the operations.

    Args:
        flop: C_c, operations of the layer.
        devices: N.
        flop_per_s: C, of each device.
        sparsity: S_comm.
    """
    own = sparsity * (devices - 1) / devices
    return flop * (1 - own) / (devices * flop_per_s)


def balance(size: float, bytes_per_s: float, flop: float, devices: int, flop_per_s: float) -> float:
    """Returns the sparsity from which on sending takes no longer than computing.

    With A = (N C / C_c) (F_s / B), the ratio of both times of a dense layer, that is
    S_comm = N (A-1) / (N (A-1) + 1) for A >= 1, and 0 where sending is the shorter one anyway. The
    larger of both times goes on falling beyond it: it is where they cross, not an optimum.

    Args:
        size, bytes_per_s, flop, devices, flop_per_s: as for the two times.

    >>> balance(size=2e9, bytes_per_s=1e9, flop=2e12, devices=2, flop_per_s=1e12)
    0.6666666666666666
    """
    dense = computing_seconds(flop, devices, flop_per_s)
    excess = devices * (sending_seconds(size, bytes_per_s, 0.0) / dense - 1)
    return excess / (excess + 1) if excess > 0 else 0.0
