"""Kills and interrupts runs at every phase; nothing may be lost, repeated or left.

    python -m experiments.kills --kills 100 --interrupts 500

A job answers bundled questions in a process that records in MLflow. It gets SIGKILL at a random
moment or at a random event in its folder (a file appears or vanishes), is started again, is killed
again, and at last runs to its end. Its results must then be those of an undisturbed run, byte for
byte, and MLflow must have one finished run. A kill may lose 5 % of the windows, or one part of the
store if that is more: those that the process has reported and not stored.

SIGINT goes to the process group as from a terminal. It must end within ten seconds with exit code
130 and one line, or, if its results were written already, in success or by the signal.
"""

import argparse
import contextlib
import itertools
import math
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from experiments import command
from experiments.clusters import processes
from experiments.command import markdown
from nq.bundle import bundled_sample
from nq.commands import arguments
from nq.errors import Error
from nq.evaluation.answer_files import PREDICTIONS
from nq.interruption import MESSAGE
from nq.preprocess.shards import MANIFEST
from nq.progress import ProgressBar
from nq.runs.folder import JOB, KEPT_SCORES
from nq.storage import DEAD_LETTERS, WORK

PROFILES = (
    "baseline",
    "mixed+grappler+buckets+prune",
    "mixed+grappler+buckets+rescore",
    "grappler+buckets+prune",
)
RESULTS = (PREDICTIONS, DEAD_LETTERS, "kaggle.csv", "nbest.jsonl")
ROOT = Path(__file__).parents[1]
PHASES = {
    JOB: "finished",
    PREDICTIONS: "end",
    WORK: "predict",
    MANIFEST: "load",
    ".unfinished": "preprocess",
}
"""What a run does while the first of these is there, as the beginning of a name."""
CHAIN = 5
SHARE = 0.05
LIMIT_S = 10.0
PATIENCE_S = 600.0
POLL_S = 0.002
OPTIONS = (
    "--limit",
    "16",
    "--batch-size",
    "1",
    "--formats",
    "kaggle,nbest",
    "--output",
    "output",
    "--tracking-uri",
    "sqlite:///mlflow.db",
)
# The real command; its progress goes to a file, one byte per window, instead of a bar.
COMMAND = """
import os, sys
from nq.commands import main
from nq.progress import ProgressBar
file = os.open("reports", os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
ProgressBar.__call__ = lambda bar, new, total: os.write(file, b"." * new)
sys.exit(main.console(["answer", *sys.argv[1:]]))
"""


@dataclass(frozen=True)
class Row:
    """A signal in a phase of a run, whether it ended as it should, and details as text."""

    attack: str
    target: str
    is_right: bool
    text: str
    seconds: float = 0.0


class Job:
    """A job in a new folder, with one process at a time."""

    def __init__(self, profile: str, folder: Path) -> None:
        folder.mkdir()
        self.profile = profile
        self.folder = folder
        self.output = folder / "output"
        self.reports = folder / "reports"
        self.errors = folder / "errors"
        self.events, self.seconds = 0, 0.0

    @contextlib.contextmanager
    def running(self, *more: str) -> Iterator[subprocess.Popen[bytes]]:
        """Runs the job in a process group of its own, which is killed in the end."""
        self.reports.unlink(missing_ok=True)
        self.started = time.monotonic()
        options = ("--data", str(bundled_sample()), "--profile", self.profile, *OPTIONS, *more)
        mark = {"PYTHONPATH": str(ROOT), processes.MARK: str(self.folder.resolve())}
        with self.errors.open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-c", COMMAND, *options],
                cwd=self.folder,
                env={**os.environ, **mark},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def finish(self, process: subprocess.Popen[bytes]) -> None:
        """Waits for the end, which must be a success."""
        if code := process.wait(PATIENCE_S):
            text = self.errors.read_text("utf-8", "replace").strip()
            raise Error(f"{self.profile}: exit code {code}: {text[-500:]}")
        self.seconds = time.monotonic() - self.started

    def run_until(self, process: subprocess.Popen[bytes], moment_s: float, event: float) -> bool:
        """Waits until a moment or an event; returns whether the process still runs."""
        before, self.events = self.files(), 0
        end = self.started + moment_s
        while process.poll() is None and time.monotonic() < end and self.events < event:
            time.sleep(POLL_S)
            files = self.files()
            self.events, before = self.events + len(files ^ before), files
        return process.poll() is None

    def files(self) -> set[str]:
        """Returns the paths of all files and folders in the output folder."""
        walk = os.walk(self.output)
        return {f"{at}/{name}" for at, *names in walk for name in itertools.chain(*names)}

    def phase(self) -> str:
        """Returns what the run was doing, by the files in its folder."""
        names = [Path(path).name for path in self.files()]
        phases = (PHASES[start] for start in PHASES for name in names if name.startswith(start))
        return next(phases, "start")

    def parts(self) -> list[int]:
        """Returns the number of windows in each part of the store."""
        windows = [0]
        for path in self.output.glob("*/*.npz"):
            if path.parent.name in (WORK, KEPT_SCORES):
                with np.load(path) as arrays:
                    windows.append(len(arrays["window_ids"]))
        return windows

    def leftovers(self) -> int:
        """Returns how many processes remain ``LIMIT_S`` after the end; ends them."""
        deadline = time.monotonic() + LIMIT_S
        while processes.find(self.folder) and time.monotonic() < deadline:
            time.sleep(0.1)
        return processes.end(self.folder)


def stop(pace: Job, rng: random.Random) -> tuple[float, float]:
    """Returns a random moment or a random event of an undisturbed job."""
    if rng.random() < 0.5:
        return rng.uniform(0, pace.seconds), math.inf
    return math.inf, rng.randint(1, pace.events)


def undisturbed(profile: str, folder: Path) -> Job:
    """Runs a job without a disturbance."""
    job = Job(profile, folder)
    with job.running("--keep-scores") as process:
        job.run_until(process, math.inf, math.inf)
        job.finish(process)
    return job


def kill_chain(job: Job, pace: Job, kills: int, rng: random.Random) -> Iterator[Row]:
    """Kills a job several times, then lets it finish; yields the kills and the end."""
    phase = "start"
    allowed = max(*pace.parts(), int(SHARE * sum(pace.parts())))
    while not (job.output / JOB).exists():
        with job.running() as process:
            if not kills or not job.run_until(process, *stop(pace, rng)):
                job.finish(process)
                break
        kills, phase, left = kills - 1, job.phase(), job.leftovers()
        reported = job.reports.stat().st_size if job.reports.exists() else 0
        lost = 0 if phase == "finished" else reported - sum(job.parts())
        text = f"{job.profile}: {lost} windows lost, {left} processes left"
        yield Row("SIGKILL", phase, lost <= allowed and not left, text)
    names = [n for n in RESULTS if (job.output / n).read_bytes() != (pace.output / n).read_bytes()]
    with contextlib.closing(sqlite3.connect(job.folder / "mlflow.db")) as connection:
        runs = [status for (status,) in connection.execute("SELECT status FROM runs")]
    last = runs.pop() if runs else ""
    is_recorded = last == "FINISHED" or (last == "RUNNING" and phase == "finished")
    is_recorded &= {*runs} <= {"KILLED"}
    text = f"{job.profile}: MLflow has {[*runs, last]}, these files differ: {names}"
    yield Row("none, after kills", phase, is_recorded and not names, text)


def interrupt(job: Job, pace: Job, rng: random.Random) -> Iterator[Row]:
    """Interrupts a job; yields nothing if it ended before."""
    with job.running() as process:
        while process.poll() is None and not job.reports.exists():
            time.sleep(POLL_S)  # it is Python's start that would be interrupted, and no command
        if not job.run_until(process, *stop(pace, rng)):
            job.finish(process)
            return
        phase, sent = job.phase(), time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(LIMIT_S * 6)
        seconds = time.monotonic() - sent
    lines = job.errors.read_text("utf-8", "replace").splitlines()
    last = [x for x in lines if not x.startswith("nq: ") or x.startswith(MESSAGE)]
    code, left = process.returncode, job.leftovers()
    is_over = phase == "finished" and code in (0, -signal.SIGINT) and not last
    is_right = code == 130 and len(last) == 1 and last[0].startswith(MESSAGE)
    is_in_time = not left and seconds <= LIMIT_S
    text = f"{job.profile}: code {code}, {left} processes left: {' / '.join(last)[-500:]}"
    yield Row("SIGINT", phase, is_in_time and (is_right or is_over), text, seconds)


def rows(args: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """Disturbs jobs of all profiles in turn."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # in the background of a shell
        signal.signal(signal.SIGINT, signal.default_int_handler)  # processes inherit SIG_IGN
    paces = itertools.cycle([undisturbed(p, folder / p) for p in args.profiles])
    rng = random.Random(args.seed)
    counts = Counter[str]()
    for number in itertools.count():
        pace = next(paces)
        kills = min(CHAIN, args.kills - counts["SIGKILL"])
        if kills <= 0 and counts["SIGINT"] >= args.interrupts:
            return
        job = Job(pace.profile, folder / str(number))
        for row in kill_chain(job, pace, kills, rng) if kills > 0 else interrupt(job, pace, rng):
            counts[row.attack] += 1
            yield row


def _options(parser: argparse.ArgumentParser) -> None:
    command.add_list(parser, "profiles", PROFILES, PROFILES)
    for name, default, text in (
        ("kills", 40, "runs that are killed"),
        ("interrupts", 60, "runs that are interrupted"),
        ("seed", 1, "of all random choices"),
    ):
        command.add_option(parser, name, default, text, type=arguments.count_from_0)


def measure(args: argparse.Namespace) -> int:
    """Runs the command; an interruption prints what has been done so far."""
    done: list[Row] = []
    try:
        with ProgressBar("kill", "runs") as bar, tempfile.TemporaryDirectory() as folder:
            for row in rows(args, Path(folder)):
                done.append(row)
                bar(1, len(done))
    finally:
        command.show({"rows": [*map(asdict, done)]}, args, lambda _: table(done))
    if wrong := sum(not row.is_right for row in done):
        raise Error(f"{wrong} of {len(done)} runs did not end as expected")
    return 0


def table(done: Sequence[Row]) -> str:
    """Returns the rows as a Markdown table, equal ones counted, and what went wrong."""
    equal = defaultdict[tuple[str, str], list[Row]](list)
    for row in done:
        equal[row.attack, row.target].append(row)
    lines = []
    for key, some in equal.items():
        wrong = sum(not row.is_right for row in some)
        longest_s = max(row.seconds for row in some)
        lines.append((*key, str(len(some)), str(wrong), f"{longest_s:.1f}"))
    details = [f"{r.attack}, {r.target}: {r.text}\n" for r in done if not r.is_right]
    return markdown(("signal", "phase", "runs", "wrong", "longest s"), *lines) + "".join(details)


main = command.main(measure, _options)
