"""Compares each peer with the baseline, the best other peer and the peak of the machine."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.text_tables import markdown

HEAD = (
    *("peer", "type", "windows/s", "x baseline", "x best peer", "GFLOP/s", "of peak"),
    *("memory, MB", "drift"),
)


def rows(
    measured: Sequence[Mapping[str, Any]], gflop: float, peaks: Mapping[str, float]
) -> list[dict[str, Any]]:
    """Returns the figures of the peers, as JSON values.

    Args:
        measured: rows of ``experiments.peers.measure`` without failures, the baseline first.
        gflop: operations of one window, in 10^9.
        peaks: GFLOP/s of a large matrix product on the machine, by type.

    Returns:
        For each its speed as the median of the rounds, beside the baseline, beside the fastest
        other library with the same compute type (``None`` if there is no other), and as a share of
        the peak in that type (``None`` where that was not measured, as for 8 bits); ``drift`` is
        the largest difference of a logit from the baseline.
    """
    baseline = measured[0]["logits"]
    rounds = [[baseline.shape[1] / seconds for seconds in row["seconds"]] for row in measured]
    speeds = [statistics.median(windows_per_s) for windows_per_s in rounds]
    best: dict[str, float] = {}
    for row, speed in zip(measured, speeds, strict=True):
        if not row["peer"].is_nq:
            best[row["precision"]] = max(best.get(row["precision"], 0.0), speed)
    return [
        {
            **{"name": str(row["peer"]), "precision": row["precision"]},
            **{"windows_per_s": speed, "against_baseline": speed / speeds[0]},
            "against_best_peer": _ratio(speed, best.get(row["precision"])),
            "gflop_per_s": speed * gflop,
            "of_peak": _ratio(speed * gflop, peaks.get(row["precision"])),
            "drift": float(abs(row["logits"] - baseline).max()),
            **{"load_s": row["load_s"], "memory_mb": row["memory_mb"], "rounds": windows_per_s},
        }
        for row, speed, windows_per_s in zip(measured, speeds, rounds, strict=True)
    ]


def _ratio(value: float, reference: float | None) -> float | None:
    return None if reference is None else value / reference


def table(result: Mapping[str, Any]) -> str:
    """Returns the result of the command as a Markdown table with notes."""
    cells = [
        (
            *(f"`{row['name']}`", row["precision"], f"{row['windows_per_s']:.3g}"),
            *(f"{row['against_baseline']:.2f}", _if(row["against_best_peer"], ".2f")),
            *(f"{row['gflop_per_s']:.0f}", _if(row["of_peak"], ".0%")),
            *(f"{row['memory_mb']:.0f}", f"{row['drift']:.1e}"),
        )
        for row in result["peers"]
    ]
    peaks = ", ".join(f"{x:.0f} in {name}" for name, x in result["peak_gflop_per_s"].items())
    lines = [
        f"{result['model']}: {result['windows']} windows of {result['max_seq_length']} pieces, "
        f"{result['gflop_per_window']:.1f} GFLOP each, in batches of {result['batch_size']}. "
        f"Peak, measured by a large matrix product, in GFLOP/s: {peaks}."
    ]
    for title in ("skipped", "failed"):
        lines += [f"{title} {name}: {reason}" for name, reason in result[title].items()]
    return "\n".join([markdown(HEAD, *cells), *lines, ""])


def _if(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
