"""Seconds of rounds -> a table: each peer beside the baseline, its best rival and the machine."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from experiments.errors.text import grid

HEAD = (
    "peer",
    "type",
    "windows/s",
    "x baseline",
    "x best peer",
    "GFLOP/s",
    "of peak",
    "memory, MB",
    "drift",
)


@dataclass(frozen=True)
class Measured:
    """A peer's rounds.

    Args:
        name: of the peer.
        ours: whether it is one of ours.
        precision: the type that it computes in.
        windows: in a round.
        windows_per_s: of each round.
        load_s: seconds until it could compute.
        memory_mb: that its process holds.
        drift: largest difference of a logit from the baseline's.
    """

    name: str
    ours: bool
    precision: str
    windows: int
    windows_per_s: tuple[float, ...]
    load_s: float
    memory_mb: float
    drift: float


@dataclass(frozen=True)
class Row:
    """A line of the table.

    Args:
        name, precision, drift, load_s, memory_mb: as measured.
        windows_per_s: median of the rounds.
        against_baseline: times the speed of our baseline.
        against_best_peer: times that of the fastest of the others in the same type; ``None``
            where there is no other.
        gflop_per_s: operations of the model, whatever type they are computed in.
        of_peak: share of what a large matrix product reaches in that type; ``None`` where none
            was measured, as for 8 bits.
        rounds: windows per second of each.
    """

    name: str
    precision: str
    windows_per_s: float
    against_baseline: float
    against_best_peer: float | None
    gflop_per_s: float
    of_peak: float | None
    drift: float
    load_s: float
    memory_mb: float
    rounds: tuple[float, ...]


@dataclass(frozen=True)
class Report:
    """Everything that the command tells.

    Args:
        model: its name.
        max_seq_length: pieces in a window.
        batch_size: windows in a batch.
        windows: in a round.
        gflop_per_window: operations.
        peak_gflop_per_s: of a large matrix product, by type.
        peers: the table.
        skipped: peers whose packages are missing, and what to install.
        failed: peers that could not be measured, and why.
        versions: of the packages.
    """

    model: str
    max_seq_length: int
    batch_size: int
    windows: int
    gflop_per_window: float
    peak_gflop_per_s: Mapping[str, float]
    peers: tuple[Row, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return dataclasses.asdict(self)


def rows(
    measured: Sequence[Measured], baseline: str, gflop: float, peaks: Mapping[str, float]
) -> tuple[Row, ...]:
    """The table, in the order of ``measured``.

    Args:
        measured: the peers, the baseline among them.
        baseline: its name.
        gflop: of one window, in 10^9 operations.
        peaks: GFLOP/s that the machine reaches, by type.
    """
    speed = {m.name: statistics.median(m.windows_per_s) for m in measured}
    best: dict[str, float] = {}
    for m in measured:
        if not m.ours:
            best[m.precision] = max(best.get(m.precision, 0.0), speed[m.name])
    return tuple(
        Row(
            m.name,
            m.precision,
            speed[m.name],
            speed[m.name] / speed[baseline],
            speed[m.name] / best[m.precision] if m.precision in best else None,
            speed[m.name] * gflop,
            speed[m.name] * gflop / peaks[m.precision] if m.precision in peaks else None,
            m.drift,
            m.load_s,
            m.memory_mb,
            m.windows_per_s,
        )
        for m in measured
    )


def table(report: Report) -> str:
    """The report as a terminal shows it."""
    shown = [
        [
            row.name,
            row.precision,
            f"{row.windows_per_s:.3g}",
            f"{row.against_baseline:.2f}",
            _if(row.against_best_peer, ".2f"),
            f"{row.gflop_per_s:.0f}",
            _if(row.of_peak, ".0%"),
            f"{row.memory_mb:.0f}",
            f"{row.drift:.1e}" if row.drift else "0",
        ]
        for row in report.peers
    ]
    lines = [*grid(HEAD, shown), "", *_foot(report)]
    for title, peers in (("skipped", report.skipped), ("failed", report.failed)):
        lines += [f"{title} {name}: {why}" for name, why in peers.items()]
    return "\n".join(line.rstrip() for line in lines)


def _foot(report: Report) -> list[str]:
    rounds = max((len(row.rounds) for row in report.peers), default=0)
    peaks = ", ".join(f"{x:.0f} GFLOP/s in {name}" for name, x in report.peak_gflop_per_s.items())
    s = "" if rounds == 1 else "s"
    return [
        f"{report.model}: {report.windows} windows of {report.max_seq_length} pieces, "
        f"{report.gflop_per_window:.1f} GFLOP each, in batches of {report.batch_size}; "
        f"median of {rounds} round{s}",
        f"peak, by a large matrix product: {peaks}",
        "best peer: the fastest of the others that computes in the same type",
        "drift: largest difference of a logit from the baseline's",
    ]


def _if(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
