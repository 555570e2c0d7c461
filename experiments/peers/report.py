"""Compares each peer with the baseline, the best other peer and the peak of the machine."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from experiments.peers.measure import Ready
from experiments.peers.models import Peer
from nq.text import grid

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


@dataclass(frozen=True, eq=False)
class Measurement:
    """A peer, its report after loading, and the seconds of its rounds."""

    peer: Peer
    ready: Ready
    seconds: Sequence[float]


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Args:
        name: of the peer.
        precision: its compute type.
        windows_per_s: median of the rounds.
        against_baseline: speed relative to our baseline.
        against_best_peer: speed relative to the fastest other library with the same compute type;
            ``None`` if there is no other.
        gflop_per_s: operations of the model per second.
        of_peak: share of the speed of a large matrix product in that type; ``None`` where that was
            not measured, as for 8 bits.
        drift: largest difference of a logit from the baseline.
        load_s: seconds to load the model.
        memory_mb: resident memory of its process.
        rounds: windows per second of each round.
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
    """The result of the command.

    Args:
        model: name of the model.
        max_seq_length: pieces in a window.
        batch_size: windows in a batch.
        windows: number of windows in a round.
        gflop_per_window: operations of one window.
        peak_gflop_per_s: speed of a large matrix product, by type.
        peers: the table.
        skipped: peers whose packages are missing, with what to install.
        failed: peers that could not be measured, with the reason.
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
        """Returns everything as JSON values."""
        return dataclasses.asdict(self)


def rows(
    measurements: Sequence[Measurement], gflop: float, peaks: Mapping[str, float]
) -> tuple[Row, ...]:
    """Returns the table, in the order of ``measurements``.

    Args:
        measurements: of the peers, the baseline first.
        gflop: operations of one window, in 10^9.
        peaks: peak GFLOP/s of the machine, by type.
    """
    baseline = measurements[0].ready.logits
    rounds = [tuple(baseline.shape[1] / seconds for seconds in m.seconds) for m in measurements]
    speeds = [statistics.median(windows_per_s) for windows_per_s in rounds]
    best: dict[str, float] = {}
    for m, speed in zip(measurements, speeds, strict=True):
        if not m.peer.is_nq:
            best[m.ready.precision] = max(best.get(m.ready.precision, 0.0), speed)
    return tuple(
        Row(
            name=str(m.peer),
            precision=m.ready.precision,
            windows_per_s=speed,
            against_baseline=speed / speeds[0],
            against_best_peer=_ratio(speed, best.get(m.ready.precision)),
            gflop_per_s=speed * gflop,
            of_peak=_ratio(speed * gflop, peaks.get(m.ready.precision)),
            drift=float(abs(m.ready.logits - baseline).max()),
            load_s=m.ready.load_s,
            memory_mb=m.ready.memory_mb,
            rounds=windows_per_s,
        )
        for m, speed, windows_per_s in zip(measurements, speeds, rounds, strict=True)
    )


def _ratio(value: float, reference: float | None) -> float | None:
    return None if reference is None else value / reference


def table(report: Report) -> str:
    """Returns the report as text."""
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
        lines += [f"{title} {name}: {reason}" for name, reason in peers.items()]
    return "\n".join(line.rstrip() for line in lines)


def _foot(report: Report) -> list[str]:
    rounds = max((len(row.rounds) for row in report.peers), default=0)
    peaks = ", ".join(f"{x:.0f} GFLOP/s in {name}" for name, x in report.peak_gflop_per_s.items())
    s = "" if rounds == 1 else "s"
    return [
        f"{report.model}: {report.windows} windows of {report.max_seq_length} pieces, "
        f"{report.gflop_per_window:.1f} GFLOP each, in batches of {report.batch_size}; "
        f"median of {rounds} round{s}",
        f"peak, measured by a large matrix product: {peaks}",
        "best peer: the fastest other library with the same compute type",
        "drift: largest difference of a logit from the baseline",
    ]


def _if(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
