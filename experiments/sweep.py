"""``python -m experiments.sweep``: the same questions under every profile, side by side.

Each profile runs in a process of its own, ``nq answer``, several rounds of all profiles one
after the other, so that a machine that gets warm or busy treats all alike. The first process
of a profile is cold (it compiles); of the steady speed the median of all rounds counts. Every
run is held against baseline: what changed in the answers stands beside what changed in time.

    python -m experiments.sweep --data dev.jsonl --limit 60
    python -m experiments.sweep --data dev.jsonl --profiles baseline mixed+xla+grappler --rounds 5

One run per profile is recorded in MLflow, all under one tag ``sweep``; the table is printed and
written as ``sweep.json``, and drawn as ``sweep.png``, into ``--output``.
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

from nq import tracking
from nq.commands import terminal
from nq.errors import Error
from nq.inference.profile import BASELINE, THESIS, Profile, profiles

BEYOND = (
    "mixed+grappler+buckets",
    "mixed+grappler+frozen+buckets",
    "mixed+grappler+frozen+buckets+refine",
    "mixed+buckets+openvino",
    "mixed+buckets+openvino+recheck",
    "mixed+buckets+refine+openvino",
    "mixed+buckets+openvino+int8",
    "mixed+buckets+refine+openvino+int8",
)
MEASURE = """
import resource, sys
from nq.commands.main import console
code = console(["answer", *sys.argv[1:]])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
raise SystemExit(code)
"""


@dataclass(frozen=True)
class Row:
    """What the rounds of one profile showed.

    Args:
        profile: its name.
        cold_s: seconds of the first process from start to end, without preprocessing.
        warm_s: seconds that all windows take at the steady speed, and what is computed again.
        change: of ``warm_s`` against baseline, -0.5 for half the time.
        windows_per_s, examples_per_s: speeds by ``warm_s``.
        micro_f1: at the stored thresholds; ``None`` without gold.
        changed_share: of the answers, against baseline.
        max_drift: of a logit, against baseline.
        memory_mb: peak resident memory, median.
        phases: median seconds of each phase.
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


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.sweep",
        description="Runs the same questions under several profiles, interleaved, each run in a "
        "process of its own, and compares time, quality and memory. What it does not know it "
        "passes on to nq answer.",
    )
    parser.add_argument("--data", nargs="+", required=True, metavar="FILE")
    parser.add_argument(
        "--profiles",
        nargs="+",
        metavar="P",
        help="default: the thesis' eight and what goes beyond, as far as it is installed",
    )
    parser.add_argument("--rounds", type=terminal.positive, default=3, metavar="N")
    parser.add_argument("--output", type=Path, default=Path("runs/sweep"), metavar="DIR")
    terminal.add_tracking(parser)
    terminal.add_common(parser)
    return parser


def sweep(args: argparse.Namespace) -> int:
    """Runs the command."""
    names = _profiles(args.profiles)
    common = ["--data", *args.data, "--root", str(args.output), "--json", "--no-track"]
    common += ["--against", BASELINE, *args.unknown]
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    with terminal.bar("sweep", "runs") as bar:
        for _ in range(args.rounds):
            for name in names:
                found[name].append(measured(name, common))
                bar(1, args.rounds * len(names))
    rows = [summed_up(name, runs, found[BASELINE]) for name, runs in found.items()]
    _write(args.output, rows, args.rounds)
    if not args.no_track:
        _record(args, rows)
    if args.json:
        terminal.print_json({"rows": [asdict(row) for row in rows]})
    else:
        print(table(rows))
        print(f"written to {args.output}/sweep.json and sweep.png")
    return 0


def _profiles(asked: Sequence[str] | None) -> list[str]:
    """The profiles to run, baseline first, each once; those that cannot run are left out."""
    wanted = [Profile.parse(p) for p in asked or (*map(str, profiles(THESIS)), *BEYOND)]
    names = list(dict.fromkeys([BASELINE, *map(str, wanted)]))
    for name in list(names):
        missing = Profile.parse(name).missing()
        if missing:
            print(f"nq: {name} left out: {', '.join(missing)} not installed", file=sys.stderr)
            names.remove(name)
    return names


def measured(profile: str, arguments: Sequence[str]) -> dict[str, Any]:
    """One run of ``nq answer`` in a process of its own: its report, wall time and memory.

    Raises:
        Error: it failed; tells its last line.
    """
    command = [sys.executable, "-c", MEASURE, "--profile", profile, *arguments]
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wall = time.perf_counter() - started
    lines = done.stderr.strip().splitlines()
    if done.returncode:
        told = [line for line in lines if line.startswith("nq: error")] or lines[-1:]
        raise Error(f"profile {profile}: {' '.join(told)}")
    report: dict[str, Any] = json.loads(done.stdout)
    return {**report, "wall_s": wall, "memory_mb": int(lines[-1]) / 1024}


def summed_up(
    profile: str, runs: Sequence[Mapping[str, Any]], baseline: Sequence[Mapping[str, Any]]
) -> Row:
    """The row of a profile from the reports of its rounds and those of baseline."""

    def median(name: str, of: Sequence[Mapping[str, Any]] = runs) -> float:
        return float(statistics.median(run[name] for run in of))

    speed, last = median("windows_per_s"), runs[-1]
    phases = {name: statistics.median(run["time"][name] for run in runs) for name in last["time"]}
    warm = last["windows"] / speed + phases.get("recheck_s", 0.0)
    return Row(
        profile,
        runs[0]["wall_s"] - runs[0]["time"]["preprocess_s"],
        warm,
        warm / (last["windows"] / median("windows_per_s", baseline)) - 1,
        last["windows"] / warm,
        last["examples"] / (phases["preprocess_s"] + warm + phases["postprocess_s"]),
        last["metrics"].get("micro_f1"),
        last["parity"]["changed_share"],
        last["parity"]["max_drift"],
        median("memory_mb"),
        phases,
    )


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table; the README's is made so."""
    head = (
        *("profile", "cold s", "warm s", "change", "windows/s", "micro-F1"),
        *("answers changed", "largest drift", "memory MB"),
    )
    lines = [head, tuple("---" for _ in head)]
    for row in rows:
        lines.append(
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
        )
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _write(folder: Path, rows: Sequence[Row], rounds: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    found = {"rounds": rounds, "rows": [asdict(row) for row in rows]}
    (folder / "sweep.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    plot(rows, folder / "sweep.png")


def plot(rows: Sequence[Row], path: Path) -> None:
    """Steady speed of each profile as bars, with the speed-up and what it costs beside them."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1 + 0.42 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    names = [row.profile for row in rows]
    speeds = [row.windows_per_s for row in rows]
    bars = axes.barh(names, speeds, color=[tracking.color(name) for name in names])
    notes = [
        f" {row.windows_per_s / rows[0].windows_per_s:.2f} x, {row.changed_share:.1%} changed"
        for row in rows
    ]
    axes.bar_label(bars, notes)
    axes.invert_yaxis()
    axes.set_xlim(0, max(speeds) * 1.35)
    axes.set_xlabel("windows a second, steady")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)


def _record(args: argparse.Namespace, rows: Sequence[Row]) -> None:
    """One run per profile in MLflow, all with the same tag."""
    name = f"sweep {time.strftime('%Y-%m-%d %H:%M:%S')}"
    for row in rows:
        with tracking.start(
            uri=args.tracking_uri,
            experiment=args.experiment,
            name=f"{row.profile} · sweep",
            profile=row.profile,
            source="experiments.sweep",
            tags={"sweep": name},
            system_metrics=False,
        ) as run:
            run.params({"profile": row.profile, "rounds": args.rounds})
            run.metrics(
                {
                    "quality/micro_f1": row.micro_f1,
                    "speed/cold_s": row.cold_s,
                    "speed/predict_s": row.warm_s,
                    "speed/windows_per_s": row.windows_per_s,
                    "speed/examples_per_s": row.examples_per_s,
                    "parity/changed_share": row.changed_share,
                    "parity/max_drift": row.max_drift,
                    "system/peak_memory_mb": row.memory_mb,
                    **{f"time/{phase}": spent for phase, spent in row.phases.items()},
                }
            )
            if row is rows[0]:
                run.artifacts([args.output / "sweep.json", args.output / "sweep.png"])


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return terminal.run(sweep, parser(), argv, pass_on=True)


if __name__ == "__main__":
    sys.exit(main())
