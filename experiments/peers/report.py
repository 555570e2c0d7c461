"""Compares each peer with the baseline, the best other peer and the peak of the machine."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from experiments.text_tables import grid

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
    """The measurements of one peer.

    Args:
        name: of the peer.
        ours: whether it is an engine of ours.
        precision: its compute type.
        windows: number of windows in a round.
        windows_per_s: of each round.
        load_s: seconds to load the model.
        memory_mb: resident memory of its process.
        drift: largest difference of a logit from the baseline.
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
    """One line of the table.

    Args:
        name, precision, drift, load_s, memory_mb: see ``Measured``.
        windows_per_s: median of the rounds.
        against_baseline: speed relative to our baseline.
        against_best_peer: speed relative to the fastest other library with the same compute type;
            ``None`` if there is no other.
        gflop_per_s: operations of the model per second.
        of_peak: share of the speed of a large matrix product in that type; ``None`` where that was
            not measured, as for 8 bits.
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
    measured: Sequence[Measured], baseline: str, gflop: float, peaks: Mapping[str, float]
) -> tuple[Row, ...]:
    """Returns the table, in the order of ``measured``.

    Args:
        measured: the peers, with the baseline.
        baseline: name of the baseline.
        gflop: operations of one window, in 10^9.
        peaks: peak GFLOP/s of the machine, by type.
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
