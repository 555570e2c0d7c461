"""Compares optimization profiles on the same questions: time, quality and memory.

    python -m experiments.sweep --data dev.jsonl --limit 60
    python -m experiments.sweep --data dev.jsonl --profiles baseline mixed+xla+grappler --rounds 5

Each run of ``nq answer`` is a process of its own. The rounds alternate between the profiles, so
that a change of the machine's speed affects all of them. The first run of a profile gives its cold
time, with compilation; the steady speed is the median of all rounds. Every run is compared with
baseline, so that the table shows changed answers beside changed times.

The table is printed, written to ``sweep.json`` and drawn in ``sweep.png`` in ``--output``. MLflow
gets one run per profile, all with the same tag ``study``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from experiments import study
from experiments.text_tables import markdown
from nq import extras, storage, tracking
from nq.commands import arguments, terminal
from nq.errors import Error
from nq.formats.input_files import find_files
from nq.inference.profile import BASELINE, THESIS, Profile, profiles

BEYOND_THESIS = (
    "mixed+grappler+buckets",
    "mixed+grappler+frozen+buckets",
    "mixed+grappler+frozen+buckets+prune",
    "mixed+buckets+openvino",
    "mixed+buckets+openvino+rescore",
    "mixed+buckets+prune+openvino",
    "mixed+buckets+openvino+int8",
    "mixed+buckets+prune+openvino+int8",
)
NAME, ROUNDS = "sweep", 3


@dataclass(frozen=True)
class Row:
    """The measurements of one profile.

    Args:
        profile: its name.
        cold_s: seconds of the first process from start to end, without the wait for windows.
        warm_s: seconds for all windows at the steady speed, with those that are rescored.
        change: relative change of ``warm_s`` from baseline; -0.5 is half the time.
        windows_per_s, examples_per_s: speeds that follow from ``warm_s``.
        micro_f1: at the stored thresholds; ``None`` without gold.
        changed_share: share of the answers that differ from baseline.
        max_drift: largest difference of nine logits a window from baseline (``nq.runs.parity``).
        memory_mb: median of the peak resident memory.
        phases: median seconds of each phase.
        changed: how many answers differ from baseline.
    """

    profile: str
    cold_s: float
    warm_s: float
    change: float
    windows_per_s: float
    examples_per_s: float
    micro_f1: float | None
    changed_share: float
    max_drift: float | None
    memory_mb: float
    phases: Mapping[str, float]
    changed: int | None = None


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command."""
    parser = terminal.Parser(
        prog="python -m experiments.sweep",
        description="Runs the same questions under several profiles, each run in a process of its "
        "own, and compares time, quality and memory. Other options are passed to nq answer.",
        pass_on=True,
    )
    arguments.add_data(parser)
    parser.add_argument(
        "--profiles",
        nargs="+",
        type=arguments.profile,
        metavar="P",
        help="default: the eight profiles of the thesis, and later ones that are installed",
    )
    study.add_options(parser, NAME, ROUNDS)
    return parser


def sweep(args: argparse.Namespace) -> int:
    """Runs the command."""
    with storage.hold(args.output, STUDY.kind, find_files(args.data)):
        return _sweep(args)


def _sweep(args: argparse.Namespace) -> int:
    """Runs the profiles; the caller holds the output folder."""
    started = time.time()
    extras.require("plots")  # not after hours of measuring
    names = installed(args.profiles or [*profiles(THESIS), *map(Profile.parse, BEYOND_THESIS)])
    common = ["--data", *args.data, "--root", str(args.output), "--json", "--no-track"]
    common += ["--against", BASELINE, *args.unknown]
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    with terminal.ProgressBar("sweep", "runs") as bar:
        for _ in range(args.rounds):
            for name in names:
                runs[name].append(answer(name, common))
                bar(1, args.rounds * len(names))
    rows = [summarize(name, runs[name], runs[BASELINE]) for name in names]
    (args.output / f"{NAME}.json").unlink(missing_ok=True)  # runs are resumed, not rows
    results = study.Results.of(STUDY, args)
    results.add(*map(asdict, rows))
    return study.finish(STUDY, args, results, started)


def installed(wanted: Sequence[Profile]) -> list[str]:
    """Returns the names of the profiles that can run here, baseline first, each once."""
    names = []
    for profile in dict.fromkeys([Profile(), *wanted]):
        if missing := profile.missing():
            print(f"nq: {profile} left out: {', '.join(missing)} not installed", file=sys.stderr)
        else:
            names.append(str(profile))
    return names


def answer(profile: str, options: Sequence[str]) -> dict[str, Any]:
    """Runs ``nq answer`` in a process of its own.

    Returns:
        Its JSON result, and the seconds of the whole process as ``wall_s``.

    Raises:
        Error: the run failed; the text is its error line.
    """
    command = [sys.executable, "-m", "nq.answer", "--profile", profile, *options]
    started = time.perf_counter()
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    wall_s = time.perf_counter() - started
    if process.returncode:
        lines = process.stderr.strip().splitlines()
        errors = [line for line in lines if line.startswith("nq: error")] or lines[-1:]
        raise Error(f"profile {profile}: {' '.join(errors)}")
    result: dict[str, Any] = json.loads(process.stdout)
    return {**result, "wall_s": wall_s}


def summarize(
    profile: str, runs: Sequence[Mapping[str, Any]], baseline: Sequence[Mapping[str, Any]]
) -> Row:
    """Returns the row of a profile.

    Args:
        profile: its name.
        runs: the results of ``answer`` in all rounds.
        baseline: those of baseline.
    """
    first, last = runs[0], runs[-1]
    speed, baseline_speed, memory_bytes = (
        float(statistics.median(run[name] for run in some))
        for name, some in (
            ("windows_per_s", runs),
            ("windows_per_s", baseline),
            ("peak_memory_bytes", runs),
        )
    )
    phases = {name: statistics.median(run["time"][name] for run in runs) for name in last["time"]}
    warm_s = last["windows"] / speed + phases["rescore_s"]
    other_s = sum(phases[name] for name in ("preprocess_wait_s", "read_s", "postprocess_s"))
    return Row(
        profile,
        cold_s=first["wall_s"] - first["time"]["preprocess_wait_s"],
        warm_s=warm_s,
        change=warm_s / (last["windows"] / baseline_speed) - 1,
        windows_per_s=last["windows"] / warm_s,
        examples_per_s=last["examples"] / (warm_s + other_s),
        micro_f1=last["metrics"].get("micro_f1"),
        changed_share=last["parity"]["changed_share"],
        max_drift=last["parity"]["max_drift"],
        memory_mb=memory_bytes / 2**20,
        phases=phases,
        changed=last["parity"].get("changed"),
    )


def table(rows: Sequence[Row]) -> str:
    """Returns the rows as a Markdown table."""
    head = (
        *("profile", "cold s", "warm s", "change", "windows/s", "micro-F1"),
        *("answers changed", "largest drift", "memory MB"),
    )
    cells = (
        (
            row.profile,
            f"{row.cold_s:.1f}",
            f"{row.warm_s:.1f}",
            f"{row.change:+.0%}",
            f"{row.windows_per_s:.1f}",
            "" if row.micro_f1 is None else f"{row.micro_f1:.4f}",
            f"{row.changed_share:.1%}",
            "" if row.max_drift is None else f"{row.max_drift:.2g}",
            f"{row.memory_mb:.0f}",
        )
        for row in rows
    )
    return markdown(head, *cells)


def plot(rows: Sequence[Row], path: Path) -> None:
    """Draws the steady speed of each profile, labelled with speed-up and changed answers."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1 + 0.42 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    names = [row.profile for row in rows]
    speeds = [row.windows_per_s for row in rows]
    bars = axes.barh(names, speeds, color=[tracking.color(name) for name in names])
    labels = [
        f" {row.windows_per_s / rows[0].windows_per_s:.2f} x, {row.changed_share:.1%} changed"
        for row in rows
    ]
    axes.bar_label(bars, labels)
    axes.invert_yaxis()
    axes.set_xlim(0, max(speeds) * 1.35)
    axes.set_xlabel("windows per second, steady")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)


def metrics(row: Row) -> dict[str, float | None]:
    """Returns the metrics of a profile under the names that runs of ``nq answer`` use."""
    phases = {name: s for name, s in row.phases.items() if s or name in ("predict_s", "total_s")}
    phases.pop("preprocess_s", None)
    return {
        tracking.MICRO_F1: row.micro_f1,
        "time/cold_s": row.cold_s,
        "time/warm_s": row.warm_s,
        **{f"time/{phase}": seconds for phase, seconds in phases.items()},
        tracking.WINDOWS_PER_S: row.windows_per_s,
        tracking.PEAK_MB: row.memory_mb,
        tracking.CHANGED: row.changed,
        "parity/max_drift": row.max_drift,
    }


def _rows(rows: Sequence[study.Row]) -> list[Row]:
    return [Row(**row) for row in rows]


STUDY = study.Study(
    NAME,
    table=lambda rows: table(_rows(rows)),
    plot=lambda rows, path: plot(_rows(rows), path),
    title=lambda row: str(row["profile"]),
    params=lambda row: {tracking.PROFILE: row["profile"]},
    metrics=lambda row: metrics(Row(**row)),
    profile=lambda row: str(row["profile"]),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    return terminal.run(sweep, parser(), argv)


if __name__ == "__main__":
    raise SystemExit(main())
