"""Time and bytes of the messages between devices that compute one model.

A message of n bytes takes ``latency + n / bandwidth``. The collectives use a ring of p devices, in
which all links are busy at once: Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms
for clusters of workstations"; Thakur, Rabenseifner and Gropp 2005.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Link:
    """A link from one device to the next.

    Args:
        bytes_per_s: of one direction.
        latency_s: seconds until the first byte of a message arrives.
    """

    bytes_per_s: float
    latency_s: float = 0.0


@dataclass(frozen=True)
class Transfer:
    """What a message costs.

    Args:
        seconds: until all devices have their part.
        moved_bytes: over all links together.
    """

    seconds: float = 0.0
    moved_bytes: float = 0.0

    def __add__(self, other: Transfer) -> Transfer:
        return Transfer(self.seconds + other.seconds, self.moved_bytes + other.moved_bytes)


def nothing(size: float, devices: int, link: Link) -> Transfer:
    """Returns the cost of no message."""
    return Transfer()


def send(size: float, link: Link) -> Transfer:
    """Returns the cost of a message from one device to another.

    Args:
        size: its bytes.
        link: between the two.
    """
    return Transfer(link.latency_s + size / link.bytes_per_s, size)


def all_gather(size: float, devices: int, link: Link) -> Transfer:
    """Returns the cost after which each device has the parts of all.

    In p - 1 steps each device passes on a part of n / p bytes: (p-1) (latency + n / p / bandwidth).

    Args:
        size: n, bytes of the whole.
        devices: p.
        link: of the ring.

    >>> all_gather(8e9, 4, Link(bytes_per_s=1e9))
    Transfer(seconds=6.0, moved_bytes=24000000000.0)
    """
    one = send(size / devices, link)
    steps = devices - 1
    return Transfer(steps * one.seconds, steps * devices * one.moved_bytes)


def reduce_scatter(size: float, devices: int, link: Link) -> Transfer:
    """Returns the cost after which each device has its part of the sum: that of an all-gather.

    Args:
        size: bytes of the sum.
        devices: that have a summand each.
        link: of the ring.
    """
    return all_gather(size, devices, link)


def all_reduce(size: float, devices: int, link: Link) -> Transfer:
    """Returns the cost after which each device has the whole sum.

    A reduce-scatter and an all-gather: 2 (p-1)/p * n / bandwidth + 2 (p-1) latency.

    Args:
        size: n, bytes of the sum.
        devices: p, that have a summand each.
        link: of the ring.

    >>> all_reduce(8e9, 4, Link(bytes_per_s=1e9, latency_s=0.5)).seconds
    15.0
    """
    return reduce_scatter(size, devices, link) + all_gather(size, devices, link)


def all_to_all(size: float, devices: int, link: Link) -> Transfer:
    """Returns the cost of another split: each device sends a part of its part to each other one.

    In p - 1 steps each device sends n / p^2 bytes: (p-1) (latency + n / p^2 / bandwidth).

    Args:
        size: n, bytes of the whole.
        devices: p.
        link: between each two of them.
    """
    one = send(size / devices**2, link)
    steps = devices - 1
    return Transfer(steps * one.seconds, steps * devices * one.moved_bytes)
