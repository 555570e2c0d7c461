"""Time and bytes of the messages between devices that compute one model.

A message of n bytes takes ``latency + n / bandwidth``. The collectives use a ring of p devices, in
which all links are busy at once: Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms
for clusters of workstations"; Thakur, Rabenseifner and Gropp 2005.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Link:
    """A link from one device to the next: bandwidth of one direction, time to the first byte."""

    bytes_per_s: float
    latency_s: float = 0.0


@dataclass(frozen=True)
class Transfer:
    """The cost of messages: seconds until all devices have their part, bytes over all links."""

    seconds: float = 0.0
    moved_bytes: float = 0.0

    def __add__(self, other: Transfer) -> Transfer:
        return Transfer(self.seconds + other.seconds, self.moved_bytes + other.moved_bytes)


def send(size: float, link: Link) -> Transfer:
    """Returns the cost of a message of ``size`` bytes from one device to another."""
    return Transfer(link.latency_s + size / link.bytes_per_s, size)


def all_gather(size: float, devices: int, link: Link) -> Transfer:
    """Returns the cost after which each of p devices has all n bytes, of which each had a part.

    In p - 1 steps each device passes on a part of n / p bytes: (p-1) (latency + n / p / bandwidth).

    >>> all_gather(8e9, 4, Link(bytes_per_s=1e9))
    Transfer(seconds=6.0, moved_bytes=24000000000.0)
    """
    one, steps = send(size / devices, link), devices - 1
    return Transfer(steps * one.seconds, steps * devices * one.moved_bytes)


def all_reduce(size: float, devices: int, link: Link) -> Transfer:
    """Returns the cost after which each of p devices has the sum, of n bytes, of a summand of each.

    A reduce-scatter, which costs as much as an all-gather, and an all-gather:
    2 (p-1)/p * n / bandwidth + 2 (p-1) latency.

    >>> all_reduce(8e9, 4, Link(bytes_per_s=1e9, latency_s=0.5)).seconds
    15.0
    """
    half = all_gather(size, devices, link)
    return half + half
