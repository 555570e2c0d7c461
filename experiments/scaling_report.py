"""Table, plot, metrics and verdicts of ``experiments.scaling``, from its rows alone."""

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from experiments.intervals import (
    CONFIRMED,
    NOT_TESTABLE,
    REFUTED,
    Interval,
    interval,
    middle,
    overall,
    ratios,
    verdict,
)
from experiments.study import Row, Study, beside, grouped, line, whole_numbers

THREADS, ENGINES, INSTANCES = "threads", "engines", "instances"
COPIES, DISPATCH = "copies", "dispatch"
ONE, QUEUE, SPLIT = "one instance", "one queue", "split by length"
SHORT, MIDDLE, LONG = 32, 128, 512
SOURCE_INSTANCES = {MIDDLE: 4}
"""The source's best number of instances for a batch of 8, by length."""
SAME, LINEAR = 1.1, 0.9
"""Latencies that differ by less are the same; a throughput of this share of N times is linear."""
PRICES = {48: 4.848, 8: 0.808}
"""The source's prices in $/h, by cores."""
HEAD = (
    *("part", "shape", "length", "engine", "N x threads", "batch", "pinned"),
    *("latency max s", "p95 s", "windows/s", "x one instance [90 %]", "source's choice"),
)


def largest(row: Row) -> list[float]:
    """Returns the largest latency of each round, in seconds."""
    return [max(latencies) for latencies in row["latencies"]]


def p95(row: Row, length: int | None = None) -> list[float]:
    """Returns the 95th percentile of the latencies of each round, in seconds.

    With a length, only dispatched requests of this length count, and rounds without any are left
    out.
    """
    import numpy as np

    rounds = row["latencies"]
    if length is not None:
        pairs = (zip(*pair, strict=True) for pair in zip(rounds, row["classes"], strict=True))
        rounds = [[s for s, own in pair if own == length] for pair in pairs]
    return [float(np.percentile(latencies, 95)) for latencies in rounds if latencies]


def windows_per_s(row: Row) -> float:
    """Returns the median throughput of all instances together."""
    return middle([row["windows"] / s for s in row["seconds"]])


def reference(row: Row, rows: Sequence[Row]) -> Row | None:
    """Returns the row that another one of its group is compared with."""
    names = ("part", "shape", "length", "group", "load")
    return beside(row, rows, names, reference=True)


def speed_up(row: Row, rows: Sequence[Row]) -> Interval | None:
    """Returns a row's throughput ÷ that of its reference; for dispatch, its p95 latency ÷."""
    other = reference(row, rows)
    if other is None:
        return None
    if row["part"] == DISPATCH:
        return interval(ratios(p95(row), p95(other)))
    factor = row["windows"] / other["windows"]
    return interval([factor * value for value in ratios(other["seconds"], row["seconds"])])


def _cells(row: Row, rows: Sequence[Row]) -> tuple[str, ...]:
    ratio = speed_up(row, rows)
    is_dispatch = row["part"] == DISPATCH
    part = f"{row['policy']}, load {row['load']:.0%}" if is_dispatch else row["part"]
    shape = f"{row['instances']} x {row['threads']}"
    chosen = row.get("policy") == SPLIT or (
        row["part"] == INSTANCES and SOURCE_INSTANCES.get(row["length"]) == row["instances"]
    )
    shown = "" if ratio is None else f"{ratio}"
    if shown and is_dispatch:
        shown += " (p95)"
    return (
        *(part, row["shape"], str(row["length"] or "mixed"), row["engine"], shape),
        *(str(row["batch"]), "yes" if row["pinned"] else "no"),
        f"{middle(largest(row)):.4g}",
        f"{middle(p95(row)):.4g}",
        f"{windows_per_s(row):.4g}",
        shown,
        "this" if chosen else "",
    )


def claims(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Returns the source's claims, by its letters, with their verdicts."""

    def tested(some: Iterable[Row], **bounds: float) -> str:
        found = (speed_up(row, rows) for row in some)
        return overall(verdict(ratio, **bounds) for ratio in found if ratio is not None)

    torch_first = []
    for some in grouped(_part(rows, ENGINES), "shape", "length").values():
        seconds = {row["engine"]: row["seconds"] for row in some}
        if {"torch", "tensorflow"} <= seconds.keys():
            quotient = interval(ratios(seconds["tensorflow"], seconds["torch"]))
            torch_first.append(verdict(quotient, above=1))
    one_each, half = [], []
    for row in _part(rows, THREADS):
        threads, places = row["threads"], row["topology"]
        one_each += [row] if threads == places["cores"] < places["threads"] else []
        half += [row] if places["sockets"] == 2 and 2 * threads == places["threads"] else []
    short = [row for row in half if row["length"] in (SHORT, MIDDLE)]
    long = [row for row in half if row["length"] == LONG]
    several = [row for row in _part(rows, INSTANCES) if row["instances"] > 1]
    groups = grouped(several, "shape", "length", "group").values()
    best = [max(some, key=windows_per_s) for some in groups]
    split, queue = (
        [row for row in _part(rows, DISPATCH) if row["policy"] == policy]
        for policy in (SPLIT, QUEUE)
    )
    sockets = overall([tested(short, above=1), tested(long, below=1)])
    return [
        ("(a) PyTorch is faster than TensorFlow", overall(torch_first)),
        ("(b) a second hardware thread does not help", tested(one_each, above=1 / SAME)),
        ("(c) 32 and 128 pieces: one socket; 512: both", sockets),
        ("(c, here) all threads against half of them", halves(rows)),
        ("(d) a second instance: the same latency", copies(rows, latency=True)),
        ("(d) a second instance: twice the throughput", copies(rows, latency=False)),
        ("(e) a batch of 8: more instances are faster than one", tested(best, above=1)),
        ("(e) the best number of instances", best_instances(best, rows)),
        ("(f) dispatch by length lowers the p95 latency", tested(split, below=1)),
        ("(f, here) one queue of all instances lowers it", tested(queue, below=1)),
        ("(g) 48 cores cost 6 times as much as 8", arithmetic(rows)),
    ]


def _part(rows: Sequence[Row], part: str) -> list[Row]:
    return [row for row in rows if row["part"] == part]


def _shown(rows: Sequence[Row]) -> list[Row]:
    """Returns the rows whose figures stand beside a claim: TensorFlow's, or all without it."""
    return [row for row in rows if row["engine"] == "tensorflow"] or list(rows)


def halves(rows: Sequence[Row]) -> str:
    """Returns how much faster all threads are than half of them, of some rows."""
    texts = []
    for row in _shown(_part(rows, THREADS)):
        other = reference(row, rows)
        if other is not None and 2 * row["threads"] == other["threads"]:
            gain = interval(ratios(row["seconds"], other["seconds"]))
            texts.append(f"{row['shape']} {row['length']} {row['engine']}: {gain}")
    return "; ".join(texts) or NOT_TESTABLE


def copies(rows: Sequence[Row], latency: bool) -> str:
    """Returns whether a second instance on other cores keeps the latency, or doubles the speed."""
    verdicts = []
    for row in _part(rows, COPIES):
        other = reference(row, rows)
        if other is None or row["instances"] != 2:
            continue
        if latency:
            growth = interval(ratios(largest(row), largest(other)))
            verdicts.append(verdict(growth, below=SAME))
        else:
            gain = speed_up(row, rows)
            verdicts.append(NOT_TESTABLE if gain is None else verdict(gain, above=2 * LINEAR))
    return overall(verdicts)


def best_instances(fastest: Sequence[Row], rows: Sequence[Row]) -> str:
    """Returns in words the fastest number of instances of each shape, 1 included.

    ``fastest`` has the fastest row with several instances of each shape.
    """
    texts = []
    for row in _shown(fastest):
        other = reference(row, rows)
        one = other is not None and windows_per_s(other) >= windows_per_s(row)
        best = "1" if one else f"{row['instances']}{'' if row['pinned'] else ', not pinned'}"
        texts.append(f"{row['shape']} {row['length']} {row['engine']}: {best}")
    return "; ".join(texts) or NOT_TESTABLE


def arithmetic(rows: Sequence[Row]) -> str:
    """Returns whether the prices say so, and windows per second and core of some rows."""
    right = abs(PRICES[48] / PRICES[8] - 6) < 0.005
    texts = [f"{CONFIRMED if right else REFUTED} (arithmetic)"]
    for row in _shown(_part(rows, THREADS)):
        if row["reference"] or row["threads"] == 1:
            each = windows_per_s(row) / row["threads"]
            name = f"{row['shape']} {row['length']} {row['engine']}, {row['threads']} threads"
            texts.append(f"{name}: {each:.3g} windows/(s core)")
    return "; ".join(texts)


def plot(rows: Sequence[Row], figure: Any) -> None:
    """Draws latency over threads, throughput over instances, and p95 by length of dispatch."""
    figure.set_size_inches(13, 4.5)
    left, center, right = figure.subplots(1, 3)
    left.set(xlabel="threads", ylabel="latency of one window, s", yscale="log")
    center.set(xlabel="pinned instances of a batch of 8", ylabel="windows/s", yscale="log")
    right.set(xlabel="pieces of a window", ylabel="p95 latency, s", yscale="log")
    for name, some in grouped(_part(rows, THREADS), "shape", "length", "engine").items():
        points = [(row["threads"], middle(largest(row))) for row in some]
        line(left, points, label=" ".join(map(str, name)))
    pinned = [row for row in _part(rows, INSTANCES) if row["pinned"]]
    for name, some in grouped(pinned, "shape", "length", "engine").items():
        points = [(row["instances"], windows_per_s(row)) for row in some]
        line(center, points, label=" ".join(map(str, name)))
    for row in _part(rows, DISPATCH):
        lengths = {length for some in row["classes"] for length in some}
        points = [(length, statistics.median(p95(row, length))) for length in lengths]
        line(right, points, label=f"{title(row)} {row['load']:.0%}")
    whole_numbers(figure)


def metrics(row: Row) -> dict[str, float | None]:
    """Returns the metrics of a row's MLflow run."""
    return {
        "time.windows_per_s": windows_per_s(row),
        "time.latency_max_s": middle(largest(row)),
        "time.latency_p95_s": middle(p95(row)),
    }


def title(row: Row) -> str:
    """Returns the name of a row's MLflow run."""
    what = row.get("policy") or row["part"]
    size = f"{row['instances']} x {row['threads']}"
    return f"{what} {row['shape']} {row['length'] or 'mixed'} {row['engine']} {size}"


STUDY = Study(
    "scaling",
    head=HEAD,
    cells=_cells,
    claims=claims,
    plot=plot,
    title=title,
    params=(
        *("part", "shape", "length", "engine", "instances", "threads", "batch", "pinned"),
        *("policy", "load"),
    ),
    metrics=metrics,
)
