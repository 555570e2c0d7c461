"""The figures of a tuned decision as a table, and as text."""

from collections.abc import Mapping, Sequence
from typing import Any

from nq.text import grid, visible

GROUPS = {"all": "odd", "short pages": "odd_short_pages", "long pages": "odd_long_pages"}
PARTS = ("long", "short")
ROWS: dict[str, Sequence[str]] = {
    "micro-F1, at the stored / best threshold": ("micro_f1", "micro_f1_best"),
    "long answer F1, at the stored / best threshold": ("long_f1", "long_f1_best"),
    "short answer F1, at the stored / best threshold": ("short_f1", "short_f1_best"),
    "expected calibration error, long / short": [f"{name}_calibration_error" for name in PARTS],
    "area under the ROC curve, long / short": ("long_auc", "short_auc"),
}


def table(figures: Mapping[str, Any]) -> list[list[str]]:
    """Returns the figures of ``nq.tune`` as rows, of which the first is the head.

    The last row is how well the model tells yes from no on the even half, all others are figures
    of the odd half, of short and of long pages alone, too.
    """
    groups = {title: name for title, name in GROUPS.items() if f"{name}_examples" in figures}
    counts = (f"{title}: {figures[f'{one}_examples']}" for title, one in groups.items())
    rows = [["examples", *counts]]
    for title, names in ROWS.items():
        cells = ([f"{figures[f'{one}_{n}']:.3f}" for n in names] for one in groups.values())
        rows.append([title, *map(" / ".join, cells)])
    yes_no, others = f"{figures['yes_no_auc']:.3f}", [""] * (len(groups) - 1)
    return [*rows, ["area under the ROC curve, yes / no", yes_no, *others]]


def text(figures: Mapping[str, Any]) -> str:
    """Returns what was fitted, its figures and where it was written, as text."""
    long, short = figures["long_threshold"], figures["short_threshold"]
    thresholds = f"{long:.4g} for long answers and {short:.4g} for short ones"
    head, *rows = table(figures)
    lines = [f"fitted to the examples with even ids: weights, and thresholds of {thresholds}"]
    lines += ["measured on those with odd ids:", "", *grid(head, rows), ""]
    return "\n".join([*lines, visible(f"written to {figures['model']}/nq.json")])
