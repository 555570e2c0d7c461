"""The figures of a tuned decision as a table, and as text."""

from collections.abc import Mapping
from typing import Any

from nq.report.skipped import unread_line
from nq.text import grid, visible

GROUPS = {"all": "odd", "short pages": "odd_short_pages", "long pages": "odd_long_pages"}
F1 = {"micro-F1": "micro", "long answer F1": "long", "short answer F1": "short"}
OF_SCORES = {"expected calibration error": "calibration_error", "area under the ROC curve": "auc"}


def table(figures: Mapping[str, Any]) -> list[list[str]]:
    """Returns the figures of ``nq.tune`` on the odd half as rows, of which the first is the head.

    Columns are all examples and, where there are both, those with short and with long pages. The
    area under the ROC curve tells how well scores rank right answers before wrong ones, and of the
    even half how well the model tells yes from no.
    """
    groups = {title: name for title, name in GROUPS.items() if f"{name}_examples" in figures}

    def row(title: str, *names: str) -> list[str]:
        cells = ([figures[f"{group}_{name}"] for name in names] for group in groups.values())
        return [title, *(" / ".join(f"{value:.3f}" for value in values) for values in cells)]

    rows = [
        ["examples", *(f"{title}: {figures[f'{one}_examples']}" for title, one in groups.items())]
    ]
    for title, name in F1.items():
        rows.append(
            row(f"{title}, at the stored / best threshold", f"{name}_f1", f"{name}_f1_best")
        )
    for title, name in OF_SCORES.items():
        rows.append(row(f"{title}, long / short", f"long_{name}", f"short_{name}"))
    yes_no, others = f"{figures['yes_no_auc']:.3f}", [""] * (len(groups) - 1)
    return [*rows, ["area under the ROC curve, yes / no", yes_no, *others]]


def text(figures: Mapping[str, Any]) -> str:
    """Returns what was fitted, its figures and where it was written, as text."""
    long, short = figures["long_threshold"], figures["short_threshold"]
    head, *rows = table(figures)
    thresholds = f"{long:.4g} for long answers and {short:.4g} for short ones"
    lines = [
        f"fitted to the examples with even ids: weights, and thresholds of {thresholds}",
        *("measured on those with odd ids:", "", *grid(head, rows), ""),
    ]
    if figures["unread_blocks"]:
        lines.append(unread_line(figures["truncated_pages"], figures["unread_blocks"]))
    return "\n".join([*lines, visible(f"written to {figures['model']}/nq.json")])
