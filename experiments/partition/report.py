"""Table, plot, metrics and verdicts of ``experiments.partition``, from its rows alone."""

import statistics
from collections.abc import Iterable
from typing import Any

from experiments.intervals import (
    CONFIRMED,
    NOT_TESTABLE,
    REFUTED,
    Interval,
    interval,
    kept,
    middle,
    overall,
    ratios,
    tested,
    verdict,
)
from experiments.study import Row, Rows, Study, beside, grouped, line

PERCEPTRON = "perceptron"
ENCODER = "encoder"
JAX = "tensor"
ONE = "one core"
ALL = "all cores"
INSTANCES = "instances"
PIPELINE, TENSOR = "pipeline", "tensor"
FORWARD, TRAINING = "forward", "training"

DRIFT, ERROR, NEAR_BEST, MICRO_BATCHES_PER_STAGE = 1e-5, 0.2, 1.05, 4
"""Largest drift of a logit; largest relative error of a prediction; time ÷ that of the best M."""
SOURCE_MINUTES = {ONE: 3.90, PIPELINE: 2.81, TENSOR: 2.57}
"""The source's Table 1: training of the perceptron, on one device and on two."""
SOURCE_GAIN = 1.45
"""What the source calls its average speed-up."""
CELL = ("part", "shape", "length", "batch", "task")


def seconds(row: Row) -> float:
    """Returns the median seconds of a row that is measured."""
    return middle(row["seconds"])


def bubble(row: Row) -> float:
    """Returns the median share of the processes' time in which they wait."""
    pairs = zip(row["busy_s"], row["seconds"], strict=True)
    return middle([1 - busy / (row["k"] * s) for busy, s in pairs])


def _cells(rows: Rows, part: str) -> list[list[Row]]:
    """Returns the measured rows of each cell of a part."""
    some = [row for row in rows if row["part"] == part and row["seconds"]]
    return list(grouped(some, *CELL).values())


def gain(row: Row, rows: Rows, way: str) -> Interval | None:
    """Returns how many times as fast as another way of its cell a row is."""
    other = beside(row, rows, CELL, way=way)
    return interval(ratios(other["seconds"], row["seconds"])) if other and row["seconds"] else None


def best(rows: Iterable[Row]) -> Row:
    """Returns the row with the smallest median."""
    return min(rows, key=seconds)


def _line(row: Row, rows: Rows) -> Row:
    s = seconds(row) if row["seconds"] else None
    bubbles = _text(row["predicted_bubble"], "({:.2f})")
    if row["way"] == PIPELINE and s:
        bubbles = f"{bubble(row):.2f} {bubbles}"

    def error(name: str) -> str:
        return f"{row[name] / s - 1:+.0%}" if row[name] and s else ""

    cells = {name: row[name] for name in ("part", "shape", "length", "task", "way")}
    return {
        **cells,
        "length": row["length"] or None,
        "K": row["k"],
        "M": row["m"],
        "cut": row["cut"],
        "planned s": _text(row["planned_s"], "{:.4g}"),
        "error of the plan": error("planned_s"),
        "predicted s": _text(row["predicted_s"], "{:.4g}"),
        "error": error("predicted_s"),
        "s": _text(s, "{:.4g}"),
        **{
            f"x {way} [90 %]": None if row["way"] == way else gain(row, rows, way)
            for way in (ONE, ALL, INSTANCES)
        },
        "bubble (predicted)": bubbles,
        "MB moved": f"{row['moved_bytes'] / 1e6:.3g}" if row["moved_bytes"] else None,
        "drift": _text(row["drift"], "{:.1e}"),
        "source": _source(row),
    }


def _text(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


def _source(row: Row) -> str:
    if row["part"] == PERCEPTRON and row["task"] == TRAINING and row["way"] in SOURCE_MINUTES:
        minutes = SOURCE_MINUTES[row["way"]]
        return f"{SOURCE_MINUTES[ONE] / minutes:.2f} x one device"
    many = MICRO_BATCHES_PER_STAGE * row["k"]
    return f"M >= {many}" if row["way"] == PIPELINE and row["m"] == many else ""


def claims(rows: Rows) -> dict[str, str]:
    """Returns the claims of the source and of the study, with their verdicts."""
    parts = PERCEPTRON, ENCODER, JAX
    gained, tensor_first = perceptron(rows)
    return {
        f"two devices train the perceptron {SOURCE_GAIN} times as fast as one": gained,
        "the tensor split of the perceptron is faster than its pipeline": tensor_first,
        "M = 4 K micro-batches: within 5 % of the best M": four_per_stage(rows),
        "logits of split models: within 1e-5 of the unsplit one's": same_logits(rows),
        "the tensor split has 2 all-reduces in each layer": all_reduces(rows),
        **{
            f"{part}: predictions within 20 % of the time": near(rows, part, "predicted_s")
            for part in parts
        },
        f"{ENCODER}: what the planner says within 20 % of the time": near(
            rows, ENCODER, "planned_s"
        ),
        **{f"{part}: faster than one instance on each core": copies(rows, part) for part in parts},
    }


def perceptron(rows: Rows) -> tuple[str, str]:
    """Returns the verdicts on the training of the perceptron, of its fastest rows."""
    best_of = {r["way"]: r for r in _split(rows, PERCEPTRON) if r["task"] == TRAINING}
    one = beside(best_of[TENSOR], rows, CELL, way=ONE) if len(best_of) == 2 else None
    if one is None:
        return NOT_TESTABLE, NOT_TESTABLE
    each = [ratios(one["seconds"], row["seconds"]) for row in best_of.values()]
    mean = interval([statistics.mean(pair) for pair in zip(*each, strict=True)])
    ratio = interval(ratios(best_of[PIPELINE]["seconds"], best_of[TENSOR]["seconds"]))
    return f"{verdict(mean, above=SOURCE_GAIN)}: {mean}", f"{verdict(ratio, above=1)}: {ratio}"


def _split(rows: Rows, part: str) -> list[Row]:
    """Returns the fastest row of each split way of each cell."""
    found = []
    for cell in _cells(rows, part):
        for way in (PIPELINE, TENSOR):
            some = [row for row in cell if row["way"] == way]
            found += [best(some)] if some else []
    return found


def four_per_stage(rows: Rows) -> str:
    """Returns whether 4 micro-batches for each stage are about as fast as the best number."""
    found, texts = list[Interval](), list[str]()
    for cell in _cells(rows, ENCODER):
        some = [row for row in cell if row["way"] == PIPELINE]
        own = [row for row in some if row["m"] == MICRO_BATCHES_PER_STAGE * row["k"]]
        if own:
            ratio = interval(ratios(own[0]["seconds"], best(some)["seconds"]))
            found.append(ratio)
            texts.append(f"{own[0]['shape']} {own[0]['length']}: M = {best(some)['m']}, {ratio}")
    return "; ".join([tested(found, below=NEAR_BEST), *texts])


def same_logits(rows: Rows) -> str:
    """Returns whether no logit drifts further than it may."""
    drifts = [row["drift"] for row in rows if row["drift"] is not None]
    if not drifts:
        return NOT_TESTABLE
    return f"{CONFIRMED if max(drifts) <= DRIFT else REFUTED}: {max(drifts):.1e}"


def all_reduces(rows: Rows) -> str:
    """Returns whether the program of a device has two all-reduces for each layer."""
    some = [row for row in rows if row["all_reduces"] is not None]
    if not some:
        return NOT_TESTABLE
    right = all(row["all_reduces"] == 2 * row["layers"] for row in some)
    counts = dict.fromkeys(
        f"{row['shape']}: {row['all_reduces']} in {row['layers']} layers, "
        f"{row['compiled_all_reduces']} after XLA"
        for row in some
    )
    return "; ".join([CONFIRMED if right else REFUTED, *counts])


def near(rows: Rows, part: str, name: str) -> str:
    """Returns whether the predictions ``name`` of a part are near enough to the times."""
    some = [r for r in rows if r["part"] == part and r["seconds"] and r[name]]
    if not some:
        return NOT_TESTABLE
    verdicts = [
        verdict(
            interval([r[name] / s for s in kept(r["seconds"])]), above=1 - ERROR, below=1 + ERROR
        )
        for r in some
    ]
    errors = [r[name] / seconds(r) - 1 for r in some]
    right = verdicts.count(CONFIRMED)
    largest = max(errors, key=abs)
    return f"{overall(verdicts)}: {right} of {len(some)} rows, largest error {largest:+.0%}"


def copies(rows: Rows, part: str) -> str:
    """Returns whether the split ways are faster than as many instances, in all cells of a part."""
    gains = {
        f"{row['way']} {row['shape']} {row['length'] or row['task']}": gain(row, rows, INSTANCES)
        for row in _split(rows, part)
    }
    texts = [f"{name}: {ratio}" for name, ratio in gains.items()]
    return "; ".join([tested(gains.values(), above=1), *texts])


def plot(rows: Rows, figure: Any) -> None:
    """Draws the time of the pipelines over M, predicted and measured, beside the instances."""
    axes = figure.add_subplot()
    for number, cell in enumerate(_cells(rows, ENCODER)):
        name = f"{cell[0]['shape']} {cell[0]['length']}"
        some = [row for row in cell if row["way"] == PIPELINE]
        color = f"C{number}"
        line(axes, [(row["m"], seconds(row)) for row in some], color=color, label=name)
        predicted = [(row["m"], row["predicted_s"]) for row in some]
        line(axes, predicted, ls="--", marker="", color=color, label=f"{name}, predicted")
        for row in (row for row in cell if row["way"] == INSTANCES):
            axes.axhline(seconds(row), ls=":", color=color, label=f"{name}, instances")
    axes.set(xlabel="micro-batches M", ylabel="s", yscale="log")
    axes.set_xscale("log", base=2)


def metrics(row: Row) -> dict[str, float | None]:
    """Returns the metrics of a row's MLflow run."""
    measured = bool(row["seconds"])
    return {
        "time.step_s": seconds(row) if measured else None,
        "time.predicted_s": row["predicted_s"],
        "time.planned_s": row["planned_s"],
        "time.bubble": bubble(row) if measured and row["way"] == PIPELINE else None,
        "split/moved_mb": row["moved_bytes"] / 1e6,
        "max_drift": row["drift"],
        "split/all_reduces": row["all_reduces"],
    }


STUDY = Study(
    "partition",
    cells=_line,
    claims=claims,
    plot=plot,
    params=("part", "shape", "length", "batch", "task", "way", "k", "m", "cut"),
    metrics=metrics,
)
