"""Table, plot, metrics and verdicts of ``experiments.compression``, from its rows alone."""

from collections.abc import Iterable
from typing import Any

from experiments.intervals import (
    CONFIRMED,
    NOT_TESTABLE,
    REFUTED,
    UNDECIDED,
    Interval,
    interval,
    middle,
    overall,
    ratios,
    tested,
)
from experiments.study import Row, Rows, Study, line
from nq import tracking
from nq.evaluation.gate import FAILED, PASSED, Gate

BASELINE = "baseline"
BFLOAT16 = "mixed"
INT8 = "openvino+int8"
PROFILES = {BFLOAT16: "bfloat16", INT8: "int8"}
MAX_LOSS, SOURCE_SPEED = 0.02, 1.3
SOURCE = "1.30x, at most 2% lost"
OUTCOMES = {PASSED: CONFIRMED, FAILED: REFUTED}
RANKS = (PASSED, UNDECIDED, FAILED)


def name(row: Row) -> str:
    """Returns what a row is.

    >>> name({"prune": "heads=9", "state": "raw", "profile": "mixed", "instances": 2})
    'heads=9 (raw) + bfloat16 + 2 instances'
    """
    parts = [f"{row['prune']} ({row['state']})"] if row["prune"] else []
    profile = str(row["profile"])
    parts += [PROFILES.get(profile, profile)] if profile != BASELINE else []
    parts += [f"{row['instances']} instances"] if row["instances"] > 1 else []
    return " + ".join(parts) or BASELINE


def windows_per_s(row: Row) -> float:
    """Returns the median throughput of all processes together."""
    return middle([row["windows"] / s for s in row["seconds"]])


def speed_up(row: Row, reference: str = BASELINE) -> Interval | None:
    """Returns a row's throughput ÷ that of the whole model under a profile, in the same rounds."""
    others = row["reference_seconds"].get(reference)
    if others is None:
        return None
    factor = row["windows"] / row["reference_windows"]
    return interval([factor * value for value in ratios(others, row["seconds"])])


def gate(row: Row) -> Gate:
    """Returns the gate of a row."""
    return Gate(
        row["micro_f1"],
        row["baseline_micro_f1"],
        row["loss"],
        row["low"],
        row["high"],
        row["questions"],
        MAX_LOSS,
    )


def best(rows: Rows) -> Row | None:
    """Returns the fastest pruned model under the baseline's profile of those with the best gate.

    A gate that is passed is better than an undecided one, and that than a failed one.
    """
    pruned = [row for row in rows if row["prune"] and row["profile"] == BASELINE]

    def rank(row: Row) -> tuple[int, float]:
        return RANKS.index(str(gate(row).verdict)), -(speed_up(row) or Interval(0, 0, 0)).median

    return min(pruned, key=rank, default=None)


def _cells(row: Row, rows: Rows) -> Row:
    own = gate(row)
    points = 100 * (row["micro_f1"] - row["baseline_micro_f1"])
    cells = {
        "row": name(row),
        "weights M": f"{row['weights'] / 1e6:.1f}",
        "GFLOP/window": f"{row['gflop']:.3g}",
        "windows/s": f"{windows_per_s(row):.4g}",
        "x baseline [90 %]": speed_up(row),
        "micro-F1": f"{row['micro_f1']:.4f}",
    }
    of_loss = {
        "points": f"{points:+.2f}",
        "relative loss [90 %]": f"{own.loss:.1%} [{own.low:.1%}, {own.high:.1%}]",
        "answers changed": f"{row['changed'] / row['questions']:.1%}",
        "gate": own.verdict,
        "source": SOURCE if _is_claim(row) else None,
    }
    return cells | (dict.fromkeys(of_loss) if name(row) == BASELINE else of_loss)


def _is_claim(row: Row) -> bool:
    return not row["prune"] and row["profile"] == INT8 and row["instances"] > 1


def claims(rows: Rows) -> dict[str, str]:
    """Returns the source's claim, its parts and what follows from it, with their verdicts."""
    claimed = [row for row in rows if _is_claim(row)]
    pruned = [row for row in rows if row["prune"]]
    alone = [row for row in pruned if row["profile"] == BASELINE]
    sixteen = [row for row in pruned if BFLOAT16 in row["reference_seconds"]]
    return {
        "int8 and 2 instances: 1.30 times as fast": overall(map(fast, claimed)),
        "int8 and 2 instances: at most 2 % lost": overall(map(accurate, claimed)),
        "the claim: both": overall(map(both, claimed)),
        "a pruned model: both, in float32": any_of(map(both, alone)),
        "the best pruned model in bfloat16: both, against the whole model in bfloat16": any_of(
            both(row, BFLOAT16) for row in sixteen
        ),
    }


def fast(row: Row, reference: str = BASELINE) -> str:
    """Returns whether a row is 1.30 times as fast as the whole model under a profile."""
    return tested([speed_up(row, reference)], above=SOURCE_SPEED)


def accurate(row: Row) -> str:
    """Returns whether a row loses at most 2 % of the micro-F1 of the baseline."""
    return OUTCOMES.get(str(gate(row).verdict), UNDECIDED)


def both(row: Row, reference: str = BASELINE) -> str:
    """Returns whether a row is as fast as the source says, at the source's loss."""
    return overall([fast(row, reference), accurate(row)])


def any_of(verdicts: Iterable[str]) -> str:
    """Returns the verdict of a claim that one row is enough for.

    >>> any_of(["refuted", "confirmed"]), any_of(["refuted", "undecided"]), any_of(["refuted"])
    ('confirmed', 'undecided', 'refuted')
    >>> any_of([])
    'not testable here'
    """
    found = set(verdicts)
    ordered = (CONFIRMED, UNDECIDED, REFUTED)
    return next((text for text in ordered if text in found), NOT_TESTABLE)


def plot(rows: Rows, figure: Any) -> None:
    """Draws the speed over the relative loss, with the gate and the source's figures."""
    figure.set_size_inches(9, 6)
    axes = figure.add_subplot()
    for row in rows:
        loss, low, high = (100 * row[key] for key in ("loss", "low", "high"))
        if ratio := speed_up(row):
            point = (loss, ratio.median)
            ends = [[loss - low], [high - loss]]
            axes.errorbar(*point, xerr=ends, fmt="o", lw=0.8)
            style = {"textcoords": "offset points", "fontsize": "xx-small"}
            axes.annotate(name(row), point, xytext=(4, 4), **style)
    axes.axvline(100 * MAX_LOSS, color="grey", ls="--", lw=1, label="gate: 2 % lost")
    claim = [(100 * MAX_LOSS, SOURCE_SPEED)]
    line(axes, claim, marker="*", ms=12, ls="", color="black", label=f"source: {SOURCE}")
    axes.set(
        xlabel="relative loss of micro-F1, %",
        ylabel="windows/s, x baseline",
        yscale="log",
    )


def metrics(row: Row) -> dict[str, float | None]:
    """Returns the metrics of a row's MLflow run."""
    ratio = speed_up(row)
    return {
        tracking.WINDOWS_PER_S: windows_per_s(row),
        tracking.MICRO_F1: row["micro_f1"],
        tracking.CHANGED: row["changed"],
        "time.x_baseline": ratio.median if ratio else None,
        "gate.relative_loss": row["loss"],
        "gate.loss_low": row["low"],
        "gate.loss_high": row["high"],
        "model/gflop": row["gflop"],
        "model/weights": row["weights"],
    }


STUDY = Study(
    "compression",
    cells=_cells,
    claims=claims,
    plot=plot,
    params=("prune", "state", "profile", "instances", "precision", "length"),
    metrics=metrics,
)
