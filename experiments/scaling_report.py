"""Table, plot, metrics and verdicts of ``experiments.scaling``, from its rows alone."""

import statistics
from collections.abc import Iterable
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
    tested,
)
from experiments.study import Row, Rows, Study, beside, grouped, line, whole_numbers

THREADS = "threads"
ENGINES = "engines"
INSTANCES = "instances"
COPIES, DISPATCH = "copies", "dispatch"
ONE = "one instance"
QUEUE = "one queue"
SPLIT = "split by length"
SHORT, MIDDLE, LONG = 32, 128, 512
SOURCE_INSTANCES = {MIDDLE: 4}
"""The source's best number of instances for a batch of 8, by length."""
SAME, LINEAR = 1.1, 0.9
"""Latencies that differ by less are the same; a throughput of this share of N times is linear."""
PRICES = {48: 4.848, 8: 0.808}
"""The source's prices in $/h, by cores."""


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


def reference(row: Row, rows: Rows) -> Row | None:
    """Returns the row that another one of its group is compared with."""
    names = ("part", "shape", "length", "group", "load")
    return beside(row, rows, names, reference=True)


def speed_up(row: Row, rows: Rows) -> Interval | None:
    """Returns a row's throughput ÷ that of its reference; for dispatch, its p95 latency ÷."""
    other = reference(row, rows)
    if other is None:
        return None
    if row["part"] == DISPATCH:
        return interval(ratios(p95(row), p95(other)))
    factor = row["windows"] / other["windows"]
    return interval([factor * value for value in ratios(other["seconds"], row["seconds"])])


def _cells(row: Row, rows: Rows) -> Row:
    ratio: Interval | str | None = speed_up(row, rows)
    part = row["part"]
    choice = part == INSTANCES and SOURCE_INSTANCES.get(row["length"]) == row["instances"]
    if part == DISPATCH:
        choice = row["policy"] == SPLIT
        part = f"{row['policy']}, load {row['load']:.0%}"
        ratio = ratio and f"{ratio} (p95)"
    return {
        "part": part,
        "shape": row["shape"],
        "length": row["length"] or "mixed",
        "engine": row["engine"],
        "N x threads": f"{row['instances']} x {row['threads']}",
        "batch": row["batch"],
        "pinned": "yes" if row["pinned"] else "no",
        "latency max s": f"{middle(largest(row)):.4g}",
        "p95 s": f"{middle(p95(row)):.4g}",
        "windows/s": f"{windows_per_s(row):.4g}",
        "x one instance [90 %]": ratio,
        "source's choice": "this" if choice else None,
    }


def claims(rows: Rows) -> dict[str, str]:
    """Returns the source's claims, by its letters, with their verdicts."""

    def faster(some: Iterable[Row], **bounds: float) -> str:
        return tested((speed_up(row, rows) for row in some), **bounds)

    torch_gains = []
    for some in grouped(_part(rows, ENGINES), "shape", "length").values():
        seconds = {row["engine"]: row["seconds"] for row in some}
        if {"torch", "tensorflow"} <= seconds.keys():
            torch_gains.append(interval(ratios(seconds["tensorflow"], seconds["torch"])))
    one_each, half = [], []
    for row in _part(rows, THREADS):
        threads, places = row["threads"], row["topology"]
        one_each += [row] if threads == places["cores"] < places["threads"] else []
        half += [row] if places["sockets"] == 2 and 2 * threads == places["threads"] else []
    short = faster((row for row in half if row["length"] in (SHORT, MIDDLE)), above=1)
    long = faster((row for row in half if row["length"] == LONG), below=1)
    several = [row for row in _part(rows, INSTANCES) if row["instances"] > 1]
    groups = grouped(several, "shape", "length", "group").values()
    best = [max(some, key=windows_per_s) for some in groups]
    policies = grouped(_part(rows, DISPATCH), "policy")
    split, queue = (policies.get((policy,), []) for policy in (SPLIT, QUEUE))
    second = [row for row in _part(rows, COPIES) if row["instances"] == 2]
    latencies = [(largest(row), other) for row in second if (other := reference(row, rows))]
    growths = [interval(ratios(own, largest(other))) for own, other in latencies]
    return {
        "(a) PyTorch is faster than TensorFlow": tested(torch_gains, above=1),
        "(b) a second hardware thread does not help": faster(one_each, above=1 / SAME),
        "(c) 32 and 128 pieces: one socket; 512: both": overall([short, long]),
        "(c, here) all threads against half of them": halves(rows),
        "(d) a second instance: the same latency": tested(growths, below=SAME),
        "(d) a second instance: twice the throughput": faster(second, above=2 * LINEAR),
        "(e) a batch of 8: more instances are faster than one": faster(best, above=1),
        "(e) the best number of instances": best_instances(best, rows),
        "(f) dispatch by length lowers the p95 latency": faster(split, below=1),
        "(f, here) one queue of all instances lowers it": faster(queue, below=1),
        "(g) 48 cores cost 6 times as much as 8": arithmetic(rows),
    }


def _name(row: Row) -> str:
    return f"{row['shape']} {row['length']} {row['engine']}"


def _part(rows: Rows, part: str) -> list[Row]:
    return [row for row in rows if row["part"] == part]


def _shown(rows: Rows) -> list[Row]:
    """Returns the rows whose figures stand beside a claim: TensorFlow's, or all without it."""
    return [row for row in rows if row["engine"] == "tensorflow"] or list(rows)


def halves(rows: Rows) -> str:
    """Returns how much faster all threads are than half of them, of some rows."""
    texts = []
    for row in _shown(_part(rows, THREADS)):
        other = reference(row, rows)
        if other is not None and 2 * row["threads"] == other["threads"]:
            gain = interval(ratios(row["seconds"], other["seconds"]))
            texts.append(f"{_name(row)}: {gain}")
    return "; ".join(texts) or NOT_TESTABLE


def best_instances(fastest: Rows, rows: Rows) -> str:
    """Returns in words the fastest number of instances of each shape, 1 included.

    ``fastest`` has the fastest row with several instances of each shape.
    """
    texts = []
    for row in _shown(fastest):
        other = reference(row, rows)
        one = other is not None and windows_per_s(other) >= windows_per_s(row)
        best = "1" if one else f"{row['instances']}{'' if row['pinned'] else ', not pinned'}"
        texts.append(f"{_name(row)}: {best}")
    return "; ".join(texts) or NOT_TESTABLE


def arithmetic(rows: Rows) -> str:
    """Returns whether the prices say so, and windows per second and core of some rows."""
    right = abs(PRICES[48] / PRICES[8] - 6) < 0.005
    texts = [f"{CONFIRMED if right else REFUTED} (arithmetic)"]
    for row in _shown(_part(rows, THREADS)):
        if row["reference"] or row["threads"] == 1:
            each = windows_per_s(row) / row["threads"]
            texts.append(f"{_name(row)}, {row['threads']} threads: {each:.3g} windows/(s core)")
    return "; ".join(texts)


def plot(rows: Rows, figure: Any) -> None:
    """Draws latency over threads, throughput over instances, and p95 by length of dispatch."""
    figure.set_size_inches(13, 4.5)
    left, center, right = figure.subplots(1, 3)
    left.set(xlabel="threads", ylabel="latency of one window, s", yscale="log")
    center.set(
        xlabel="pinned instances of a batch of 8",
        ylabel="windows/s",
        yscale="log",
    )
    right.set(xlabel="pieces of a window", ylabel="p95 latency, s", yscale="log")
    pinned = [row for row in _part(rows, INSTANCES) if row["pinned"]]
    names = ("shape", "length", "engine")
    for some in grouped(_part(rows, THREADS), *names).values():
        points = [(row["threads"], middle(largest(row))) for row in some]
        line(left, points, label=_name(some[0]))
    for some in grouped(pinned, *names).values():
        points = [(row["instances"], windows_per_s(row)) for row in some]
        line(center, points, label=_name(some[0]))
    for row in _part(rows, DISPATCH):
        lengths = {length for some in row["classes"] for length in some}
        points = [(length, statistics.median(p95(row, length))) for length in lengths]
        line(
            right,
            points,
            label=f"{row['policy']}, {row['shape']}, load {row['load']:.0%}",
        )
    whole_numbers(figure)


def metrics(row: Row) -> dict[str, float | None]:
    """Returns the metrics of a row's MLflow run."""
    return {
        "time.windows_per_s": windows_per_s(row),
        "time.latency_max_s": middle(largest(row)),
        "time.latency_p95_s": middle(p95(row)),
    }


STUDY = Study(
    "scaling",
    cells=_cells,
    claims=claims,
    plot=plot,
    params=(
        "part",
        "shape",
        "length",
        "engine",
        "instances",
        "threads",
        "batch",
        "pinned",
        "policy",
        "load",
    ),
    metrics=metrics,
)
