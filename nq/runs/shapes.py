"""Measures one profile in batches and windows of several sizes, as ``nq compare`` does.

Every run of ``nq answer`` is a process of its own; the cells of the table run in turn, round by
round. Round 0 compiles, converts and prepares, and does not count. What is measured is kept at
once; an equal measurement runs what is missing.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from nq.errors import check_argument, is_count
from nq.inference.profile import Profile
from nq.progress import reporting
from nq.report.comparison import figure
from nq.runs.compare import answer_in_process, open_measured
from nq.runs.measure import OnPhase
from nq.runs.scoring import RunProgress
from nq.text import grid

Cell = tuple[int | None, int | None]
"""Windows in a batch and pieces in a window, ``None`` for the default."""


def compare_shapes(
    data: Iterable[str | Path],
    profile: Profile | str,
    batch_sizes: Sequence[int] = (),
    max_seq_lengths: Sequence[int] = (),
    *,
    model: str | Path | None = None,
    rounds: int = 3,
    output: str | Path | None = None,
    options: Sequence[str] = (),
    progress: RunProgress | None = None,
    on_phase: OnPhase | None = None,
) -> list[dict[str, Any]]:
    """Measures a profile with each batch size at each window length, on the same questions.

    Args:
        batch_sizes: windows in a batch; by default that of ``nq answer`` alone.
        max_seq_lengths: pieces in a window; by default those of the model alone.
        model, rounds, output, options, progress, on_phase: as those of ``nq.compare``.

    Returns:
        A row for each cell: ``batch_size`` and ``max_seq_length`` (``None`` for the default),
        ``windows_per_s`` and ``questions_per_s`` (medians of the rounds), ``micro_f1``.

    Raises:
        Error: the folder has another measurement, or a run failed.
        ValueError, OSError: an argument is wrong, or a file cannot be read or written.
    """
    check_argument(is_count(rounds), "rounds", rounds, "a whole number from 1 on")
    name = str(Profile.of(profile))
    sizes: Sequence[int | None] = batch_sizes or [None]
    lengths: Sequence[int | None] = max_seq_lengths or [None]
    cells = list(dict.fromkeys(itertools.product(sizes, lengths)))
    with (
        reporting(progress, on_phase, "compare", "runs") as (report, phase),
        open_measured("shapes", data, model, options, output, profile=name) as (files, root, memo),
    ):
        arguments = ["--data", *files, *options, "--root", str(root)]
        arguments += [] if model is None else ["--model", str(model)]

        def measured(number: int, cell: Cell) -> dict[str, Any]:
            phase(f"{_label(*cell)}, round {number} of {rounds}")
            part = f"{number:03d}-{'-'.join(map(str, cell))}.json"
            return memo.computed(part, lambda: _measured(name, cell, arguments))

        runs = dict[Cell, list[dict[str, Any]]]()
        for number, cell in itertools.product(range(rounds + 1), cells):
            runs.setdefault(cell, []).append(measured(number, cell))
            report(1, len(cells) * (rounds + 1))
    return [_row(cell, own) for cell, own in runs.items()]


def _measured(profile: str, cell: Cell, options: Sequence[str]) -> dict[str, Any]:
    batch_size, length = cell
    size = [] if batch_size is None else ["--batch-size", str(batch_size)]
    size += [] if length is None else ["--set", f"max_seq_length={length}"]
    result = answer_in_process(profile, [*options, *size])
    speed, windows = result["windows_per_s"], max(1, result["windows"])
    return {
        "windows_per_s": speed,
        "questions_per_s": speed * result["examples"] / windows,
        "micro_f1": result["metrics"].get("micro_f1"),
    }


def _row(cell: Cell, runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    speeds = {
        name: median(run[name] for run in runs[1:]) for name in ("windows_per_s", "questions_per_s")
    }
    shape = dict(zip(("batch_size", "max_seq_length"), cell, strict=True))
    return {**shape, **speeds, "micro_f1": runs[0]["micro_f1"]}


def _label(batch_size: int | None, length: int | None) -> str:
    return f"batch of {batch_size or 'default size'}, {length or 'default'} pieces"


def shapes_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns the table of batch size by window length, and a line on the fastest cell."""
    sizes = list(dict.fromkeys(row["batch_size"] for row in rows))
    lengths = list(dict.fromkeys(row["max_seq_length"] for row in rows))
    by_cell = {(row["batch_size"], row["max_seq_length"]): row for row in rows}
    tables = []
    for unit, name in (("windows/s", "windows_per_s"), ("questions/s", "questions_per_s")):
        heads = [f"{unit}, batch", *(f"{length or 'default'} pieces" for length in lengths)]
        body = [
            [size or "default", *(figure(by_cell[size, length][name]) for length in lengths)]
            for size in sizes
        ]
        tables.append("\n".join(grid(heads, body)))
    best = max(rows, key=lambda row: row["questions_per_s"])
    f1 = "" if best["micro_f1"] is None else f", micro-F1 {best['micro_f1']:.4f}"
    label, speed = _label(best["batch_size"], best["max_seq_length"]), best["questions_per_s"]
    return "\n\n".join([*tables, f"Fastest: {label}: {figure(speed)} questions/s{f1}."])
