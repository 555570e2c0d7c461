"""Table, plot, metrics and verdicts of ``experiments.concurrency``, from its rows alone."""

import statistics
from typing import Any

from experiments.intervals import (
    CONFIRMED,
    NOT_TESTABLE,
    REFUTED,
    UNDECIDED,
    Interval,
    interval,
    kept,
    middle,
    overall,
    ratios,
    tested,
    verdict,
)
from experiments.study import Row, Rows, Study, beside, grouped, line, whole_numbers

SYNC = "sync"
ASYNCIO = "asyncio"
THREADS = "threads"
PROCESSES = "processes"
MEASURED, BUDGET = "measured", "budget reached"
OWN = "own"
SOURCE = {
    SYNC: (
        *(1162, 2393, 3535, 4847, 6234, 7512, 8611, 10213, 10853, 12412),
        *(13322, 15629, 16204, 17313, 18014, 19724, 20289, 22466, 23500),
    ),
    ASYNCIO: (
        *(1238, 2290, 3144, 5776, 9879, 12965, 14471, 17297, 20210, 23320),
        *(26363, 28720, 30790, 33227, 36067, 39550, 41876, 45015),
    ),
    THREADS: (
        *(1180, 2355, 3319, 4826, 6336, 7527, 8950, 10855, 12764, 15439),
        *(17803, 19769, 22660, 26509, 31320, 36482, 39581, 42895),
    ),
}
"""The source's times of N = 1, 2, … RemBERT models on an RTX 6000 Ada, in 10^-5 s.

The longer series ends with 19 models; the others ran out of memory there. The unit is taken to be
seconds, which the source does not say.
"""
MEMORY_NOISE = 0.02
"""Share by which the peak memory of equal runs differs."""
NAMES = ("shape", "length", "engine", "n")


def source_ratio(approach: str, count: int) -> float | None:
    """Returns the source's time of N models by an approach, as a multiple of sync's.

    >>> round(source_ratio("asyncio", 3), 2), source_ratio("asyncio", 19)
    (0.89, None)
    """
    times = SOURCE.get(approach, ())
    return times[count - 1] / SOURCE[SYNC][count - 1] if count <= len(times) else None


def against_sync(row: Row, rows: Rows) -> Interval | None:
    """Returns a row's time ÷ that of sync with its own weights in the same rounds."""
    sync = _sync(row, rows)
    if sync and sync["seconds"] and row["seconds"]:
        return interval(ratios(row["seconds"], sync["seconds"]))
    return None


def _sync(row: Row, rows: Rows) -> Row | None:
    return beside(row, rows, NAMES, approach=SYNC, weights=OWN)


def _name(row: Row) -> str:
    return str(row["approach"]) + ("" if row["weights"] == OWN else ", one copy")


def _cells(row: Row, rows: Rows) -> Row:
    ratio, name = against_sync(row, rows), _name(row)
    source = source_ratio(name, row["n"])
    timed = bool(row["seconds"])
    return {
        "shape": row["shape"],
        "length": row["length"],
        "engine": row["engine"],
        "N": row["n"],
        "approach": name,
        "s": f"{middle(row['seconds']):.4g}" if timed else row["status"],
        "x sync [90 %]": ratio,
        "s, source's clock": f"{middle(row['source_seconds']):.4g}" if timed else None,
        "peak MB": f"{row['memory_mb']:.0f}",
        "source x sync": f"{source:.2f}" if source else None,
        "sync is faster": verdict(ratio, above=1) if ratio and name != SYNC else None,
    }


def claims(rows: Rows) -> dict[str, str]:
    """Returns the source's claims with a verdict for each engine."""
    return {
        f"{engine}: {claim}": text
        for (engine,), some in grouped(rows, "engine").items()
        for claim, text in _claims(some).items()
    }


def _claims(rows: Rows) -> dict[str, str]:
    """Returns the verdicts on the rows of an engine, by claim."""
    shapes = [fastest(some) for some in grouped(rows, "shape").values()]
    if len(shapes) < 2 or NOT_TESTABLE in shapes:
        same = NOT_TESTABLE
    elif {CONFIRMED, REFUTED} <= {*shapes}:
        same = REFUTED
    else:
        same = UNDECIDED if UNDECIDED in shapes else CONFIRMED
    pairs = [(row, sync) for row in _rivals(rows) if (sync := _sync(row, rows))]
    least = 1 - MEMORY_NOISE
    less = [row["memory_mb"] < least * sync["memory_mb"] for row, sync in pairs]
    return {
        "sync is the fastest at every N": fastest(rows),
        "the gap to sync grows with N": gap_grows(rows),
        "the same holds for all shapes": same,
        "sync needs the least memory": overall(REFUTED if one else CONFIRMED for one in less),
        "sync fits the most models": most_models(rows),
        "asyncio ÷ threads at the largest N (no claim)": asyncio_by_threads(rows),
    }


def _rivals(rows: Rows) -> list[Row]:
    return [row for row in rows if _name(row) in (ASYNCIO, THREADS)]


def fastest(rows: Rows) -> str:
    """Returns whether asyncio and threads are slower than sync in all rows with several models."""
    return tested((against_sync(row, rows) for row in _rivals(rows) if row["n"] > 1), above=1)


def gap_grows(rows: Rows) -> str:
    """Returns whether time ÷ sync is higher at the largest N than at the smallest above 1."""
    growths = []
    rivals = [r for r in _rivals(rows) if r["n"] > 1 and against_sync(r, rows) is not None]
    for some in grouped(rivals, "shape", "length", "approach").values():
        few = min(some, key=lambda row: row["n"])
        many = max(some, key=lambda row: row["n"])
        if few["n"] < many["n"]:
            pairs = [(row, _sync(row, rows) or row) for row in (many, few)]
            both = [ratios(row["seconds"], sync["seconds"]) for row, sync in pairs]
            growths.append(interval([a / b for a, b in zip(*both, strict=True)]))
    return tested(growths, above=1)


def most_models(rows: Rows) -> str:
    """Returns whether sync fits as many models into the budget as others, where it was reached."""
    verdicts = []
    for some in grouped((r for r in rows if r["weights"] == OWN), "shape", "length").values():
        if any(row["models"] < row["n"] for row in some):
            most = {
                name: max((r["models"] for r in some if r["approach"] == name), default=0)
                for name in (SYNC, ASYNCIO, THREADS)
            }
            verdicts.append(CONFIRMED if most[SYNC] == max(most.values()) else REFUTED)
    return overall(verdicts)


def asyncio_by_threads(rows: Rows) -> str:
    """Returns asyncio's time ÷ threads' at the largest N, of each shape and length."""
    rivals = [row for row in _rivals(rows) if row["seconds"]]
    texts = []
    for (shape, length), some in grouped(rivals, "shape", "length").items():
        most = max(row["n"] for row in some)
        seconds = {row["approach"]: row["seconds"] for row in some if row["n"] == most}
        if len(seconds) == 2:
            quotient = interval(ratios(seconds[ASYNCIO], seconds[THREADS]))
            texts.append(f"{shape} {length}: {quotient}")
    return "; ".join(texts) or NOT_TESTABLE


def plot(rows: Rows, figure: Any) -> None:
    """Draws seconds and memory over N; dotted are the source's ratios times our sync."""
    panels = grouped(rows, "shape", "length", "engine")
    figure.set_size_inches(3.2 * len(panels), 6)
    grid = figure.subplots(2, len(panels), squeeze=False)
    grid[0][0].set_ylabel("seconds for one window of each model")
    grid[1][0].set_ylabel("peak memory, MB")
    for upper, lower, (panel, some) in zip(*grid, panels.items(), strict=True):
        upper.set_title("{}, {} pieces\n{}".format(*panel), fontsize="medium")
        lower.set_xlabel("models")
        sync_s = {r["n"]: middle(r["seconds"]) for r in some if _name(r) == SYNC and r["seconds"]}
        for number, name in enumerate(dict.fromkeys(map(_name, some))):
            own = [row for row in some if _name(row) == name]
            color = f"C{number}"
            seconds = {row["n"]: middle(row["seconds"]) for row in own if row["seconds"]}
            line(upper, list(seconds.items()), label=name, color=color)
            line(lower, [(row["n"], row["memory_mb"]) for row in own], color=color)
            if name != SYNC:
                ratio_of = {n: source_ratio(name, n) for n in seconds.keys() & sync_s.keys()}
                source_s = [(n, ratio * sync_s[n]) for n, ratio in ratio_of.items() if ratio]
                line(upper, source_s, color=color, linestyle=":", marker="")
    whole_numbers(figure)


def metrics(row: Row) -> dict[str, float | None]:
    """Returns the metrics of a row's MLflow run."""
    timed = kept(row["seconds"])
    return {
        "time.median_s": statistics.median(timed) if timed else None,
        "time.mean_s": statistics.fmean(timed) if timed else None,
        "peak_mb": row["memory_mb"],
    }


STUDY = Study(
    "concurrency",
    cells=_cells,
    claims=claims,
    plot=plot,
    params=(*NAMES, "approach", "weights"),
    metrics=metrics,
)
