"""Kills and interrupts runs at every phase, and checks that nothing is lost, repeated or left.

    python -m experiments.kills --kills 100 --interrupts 500 --load 4

A job answers some of the bundled questions under one of several profiles, in a process of its own
that records in MLflow. Kills: the process gets SIGKILL at a seeded random moment or at a seeded
event in its folder (a file appears or vanishes), is started again, is killed again, and so on; at
last it runs to its end. Its results must then be those of an undisturbed run, byte for byte, and
MLflow must have one finished run. Interrupts: the process group gets SIGINT as from a terminal, and
must end within ten seconds with exit code 130 and one line, or, if its results were written
already, in success or by the signal.

Windows computed twice are those that a killed process had computed and had not stored. They are
counted by what the process reported, less what it took from the store and what it added to the
store. Allowed are 5 % of the windows of the job, or one part of the store if that is more.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from experiments.text_tables import markdown
from nq.bundle import bundled_sample
from nq.commands import arguments, terminal
from nq.errors import Error
from nq.formats import outputs
from nq.interruption import MESSAGE
from nq.runs.result import DEAD_LETTERS, JOB, PREDICTIONS
from nq.storage import WORK

PROFILES = (
    "baseline",
    "mixed+grappler+buckets+prune",
    "mixed+grappler+buckets+rescore",
    "grappler+buckets+prune",
)
FORMATS = ("kaggle", "nbest")
RESULTS = (PREDICTIONS, DEAD_LETTERS, *(outputs.FORMATS[name].file for name in FORMATS))
PHASES = ("start", "preprocess", "load", "predict", "end", "finished")
LIMIT_S, PATIENCE_S, POLL_S = 10.0, 600.0, 0.002
SHARE = 0.05
MARKER = "NQ_KILLS"
# The real command; its progress goes to a file, one byte per window, instead of a bar.
COMMAND = """
import os, sys
from nq.commands import main, terminal
file = os.open(sys.argv[1], os.O_CREAT | os.O_APPEND | os.O_WRONLY)
terminal.ProgressBar.__call__ = lambda bar, new, total: os.write(file, b"." * new)
sys.exit(main.console(["answer", *sys.argv[2:]]))
"""


@dataclass(frozen=True)
class Job:
    """A job in a folder of its own.

    Args:
        profile: optimizations.
        limit: number of questions.
        folder: holds the output folder, the database of MLflow and the reports of progress.
    """

    profile: str
    limit: int
    folder: Path

    @property
    def output(self) -> Path:
        """The folder of the run."""
        return self.folder / "output"

    def stored_windows(self) -> int:
        """Returns how many windows are in the store of an unfinished run."""
        return sum(self.parts())

    def parts(self) -> list[int]:
        """Returns the number of windows in each part of the store."""
        sizes = []
        for path in sorted((self.output / WORK).glob("*.npz")):
            with contextlib.suppress(FileNotFoundError), np.load(path) as arrays:
                sizes.append(len(arrays["window_ids"]))
        return sizes

    def results(self) -> dict[str, bytes]:
        """Returns the content of the files that must not depend on interruptions."""
        return {name: (self.output / name).read_bytes() for name in RESULTS}

    def statuses(self) -> list[str]:
        """Returns the statuses of the runs in MLflow."""
        database = self.folder / "mlflow.db"
        if not database.exists():
            return []
        with contextlib.closing(sqlite3.connect(database)) as connection:
            return [status for (status,) in connection.execute("SELECT status FROM runs")]


class Process:
    """A process that runs a job, in a process group of its own."""

    def __init__(self, job: Job) -> None:
        self.job, self.marker = job, uuid.uuid4().hex
        self.reports = job.folder / f"{self.marker}.reports"
        self.errors = job.folder / f"{self.marker}.errors"
        self.stored_before = job.stored_windows()
        options = {
            "--data": str(bundled_sample()),
            "--profile": job.profile,
            "--limit": str(job.limit),
            "--batch-size": "1",
            "--output": str(job.output),
            "--formats": ",".join(FORMATS),
            "--tracking-uri": f"sqlite:///{job.folder / 'mlflow.db'}",
        }
        root = Path(__file__).parents[1]
        self.started = time.monotonic()
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-c", COMMAND, str(self.reports), *sum(options.items(), ())],
                cwd=job.folder,
                env={**os.environ, "PYTHONPATH": str(root), MARKER: self.marker},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()

    def seconds(self) -> float:
        """Returns the seconds since the start."""
        return time.monotonic() - self.started

    def computed_windows(self) -> int:
        """Returns how many windows the process has computed, those of the store not included."""
        reported = self.reports.stat().st_size if self.reports.exists() else 0
        return max(0, reported - self.stored_before)

    def others(self) -> list[int]:
        """Returns the numbers of the processes that this one has started and that still run."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                environment = (folder / "environ").read_bytes()
                state = (folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
                if f"{MARKER}={self.marker}".encode() in environment and state[0] != "Z":
                    found.append(int(folder.name))
        return found

    def leftovers(self) -> int:
        """Returns how many processes remain ``LIMIT_S`` after the end; ends them."""
        deadline = time.monotonic() + LIMIT_S
        while self.others() and time.monotonic() < deadline:
            time.sleep(0.1)
        left = self.others()
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(left)

    def finish(self) -> None:
        """Waits for the end, which must be a success.

        Raises:
            Error: the process failed; the text is what it wrote to stderr.
        """
        code = self.process.wait(PATIENCE_S)
        if code:
            text = self.errors.read_text("utf-8", "replace").strip()
            raise Error(f"{self.job.profile}: exit code {code}: {text[-500:]}")


def names(folder: Path) -> set[str]:
    """Returns the paths of all files below a folder."""
    found: set[str] = set()
    pending = [str(folder)]
    while pending:
        with contextlib.suppress(OSError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                found.add(entry.path)
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
    return found


def events(folder: Path) -> Iterator[int]:
    """Yields again and again how many files have appeared or vanished so far."""
    before, count = names(folder), 0
    while True:
        now = names(folder)
        count += len(now ^ before)
        before = now
        yield count
        time.sleep(POLL_S)


def phase(output: Path) -> str:
    """Returns what a run was doing, by the files in its folder."""
    files = {Path(path).name for path in names(output)}
    if JOB in files:
        return "finished"
    if PREDICTIONS in files:
        return "end"
    if WORK in files:
        return "predict"
    if "COMPLETED" in files:
        return "load"
    return "preprocess" if any(name.startswith(".unfinished") for name in files) else "start"


@dataclass(frozen=True)
class Pace:
    """An undisturbed run: its results, seconds, events in its folder, windows, and parts."""

    results: Mapping[str, bytes]
    seconds: float
    events: int
    windows: int
    largest_part: int

    @property
    def allowed(self) -> int:
        """How many windows may be computed twice after one kill."""
        return max(self.largest_part, int(SHARE * self.windows))


Stop = Callable[[Process, int], bool]
"""Tells from the process and the events so far whether to stop it now."""


def choose_stop(pace: Pace, rng: random.Random) -> Stop:
    """Returns a random moment, or a random event in the folder."""
    if rng.random() < 0.5:
        moment = rng.uniform(0, pace.seconds)
        return lambda process, _: process.seconds() >= moment
    event = rng.randint(1, pace.events)
    return lambda _, count: count >= event


def run_until(process: Process, stop: Stop) -> bool:
    """Waits until the process is to be stopped; returns whether it still runs."""
    for count in events(process.job.output):
        if process.process.poll() is not None:
            return False
        if stop(process, count):
            return True
    return False


def undisturbed(profile: str, limit: int, folder: Path) -> Pace:
    """Runs a job without a disturbance."""
    folder.mkdir()
    job = Job(profile, limit, folder)
    counts, largest = [0], [1]

    def observe(process: Process, count: int) -> bool:
        counts.append(count)
        largest.append(max(job.parts(), default=0) if count != counts[-2] else 0)
        return False

    with Process(job) as process:
        run_until(process, observe)
        seconds = process.seconds()
        process.finish()
    windows = json.loads((job.output / "metrics.json").read_bytes())["windows"]
    return Pace(job.results(), seconds, counts[-1], windows, max(largest))


@dataclass(frozen=True)
class Kill:
    """A kill and its cost.

    Args:
        profile: of the job.
        phase: what the process was doing.
        twice: windows computed twice.
        allowed: how many may be.
        leftovers: processes that outlived the killed one.
    """

    profile: str
    phase: str
    twice: int
    allowed: int
    leftovers: int


@dataclass(frozen=True)
class Interrupt:
    """A Ctrl-C.

    Args:
        profile: of the job.
        phase: what the process was doing.
        seconds: until the end.
        code: the exit code.
        lines: what was written to stderr, without the log.
        leftovers: processes that outlived the interrupted one.
    """

    profile: str
    phase: str
    seconds: float
    code: int
    lines: tuple[str, ...]
    leftovers: int

    @property
    def in_order(self) -> bool:
        """Whether it ended as one expects: after its results in success too, or, while Python
        ends, by the signal."""
        if self.code == 130:
            return len(self.lines) == 1 and self.lines[0].startswith(MESSAGE)
        return self.phase == "finished" and self.code in (0, -signal.SIGINT) and not self.lines

    @property
    def fine(self) -> bool:
        """Whether it ended in order and in time, and left nothing."""
        return self.in_order and self.seconds <= LIMIT_S and not self.leftovers


def kill_chain(job: Job, pace: Pace, kills: int, rng: random.Random) -> tuple[list[Kill], str]:
    """Kills a job several times, then lets it finish.

    Returns:
        The kills, and what is wrong with the results; empty if nothing is.
    """
    done: list[Kill] = []
    job.folder.mkdir()
    while not (job.output / JOB).exists():
        with Process(job) as process:
            if len(done) == kills or not run_until(process, choose_stop(pace, rng)):
                process.finish()
                break
        left, at = process.leftovers(), phase(job.output)
        stored = job.stored_windows() - process.stored_before
        twice = 0 if at == "finished" else process.computed_windows() - stored
        done.append(Kill(job.profile, at, twice, pace.allowed, left))
    different = [name for name, data in job.results().items() if data != pace.results[name]]
    runs = job.statuses()
    problems = [f"{name} differs" for name in different]
    if runs not in (["FINISHED"], ["RUNNING"] if done and done[-1].phase == "finished" else []):
        problems.append(f"MLflow has {', '.join(runs) or 'no run'}")
    return done, "; ".join(problems)


def interrupt(job: Job, pace: Pace, rng: random.Random) -> Interrupt | None:
    """Interrupts a job; returns ``None`` if it ended before."""
    job.folder.mkdir()
    with Process(job) as process:
        stop = choose_stop(pace, rng)
        # Before the process reports, it is Python's start that is interrupted, and not a command.
        if not run_until(process, lambda p, n: p.reports.exists() and stop(p, n)):
            process.finish()
            return None
        at, sent = phase(job.output), time.monotonic()
        os.killpg(process.process.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.process.wait(LIMIT_S * 6)
        seconds = time.monotonic() - sent
    lines = process.errors.read_text("utf-8", "replace").splitlines()
    last = (x for x in lines if not x.startswith("nq: ") or x.startswith(MESSAGE))
    code = process.process.returncode
    return Interrupt(job.profile, at, seconds, code, tuple(last), process.leftovers())


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keeps the machine busy with some processes."""
    running = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)
    ]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.kills",
        description="Kills and interrupts runs at every phase, and checks what they leave.",
    )
    parser.add_argument("--kills", type=arguments.count_from_0, default=40, metavar="N")
    parser.add_argument("--interrupts", type=arguments.count_from_0, default=60, metavar="N")
    parser.add_argument(
        "--load", type=arguments.count_from_0, default=0, metavar="N", help="busy processes beside"
    )
    parser.add_argument("--profiles", nargs="+", default=list(PROFILES), metavar="P")
    parser.add_argument("--chain", type=arguments.positive, default=5, metavar="N")
    arguments.add_limit(parser, "answer")
    parser.add_argument("--seed", type=arguments.count_from_0, default=0, metavar="N")
    arguments.add_common(parser)
    parser.set_defaults(limit=16)
    return parser


@dataclass
class Disturbances:
    """What has been done so far, and what went wrong with results and MLflow."""

    kills: list[Kill] = field(default_factory=list)
    interrupts: list[Interrupt] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.kills) + len(self.interrupts)

    def wrong(self) -> int:
        """Returns how many had consequences."""
        costly = sum(kill.twice > kill.allowed or bool(kill.leftovers) for kill in self.kills)
        return len(self.problems) + costly + sum(not i.fine for i in self.interrupts)


def run(args: argparse.Namespace) -> int:
    """Runs the command; an interruption prints what has been done so far."""
    done = Disturbances()
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # in the background of a shell
        signal.signal(signal.SIGINT, signal.default_int_handler)  # processes inherit SIG_IGN
    try:
        with tempfile.TemporaryDirectory(prefix="nq-kills-") as place, busy(args.load):
            disturb(args, Path(place), done)
    finally:
        report(done, args.json)
    if done.wrong():
        raise Error(f"{done.wrong()} of {len(done)} disturbances had consequences")
    return 0


def disturb(args: argparse.Namespace, root: Path, done: Disturbances) -> None:
    """Kills and interrupts jobs in folders below ``root``."""
    rng = random.Random(args.seed)
    paces = [
        undisturbed(profile, args.limit, root / f"undisturbed-{n}")
        for n, profile in enumerate(args.profiles)
    ]
    total = args.kills + args.interrupts
    with terminal.ProgressBar("disturb", "runs") as bar:
        for number in itertools.count():
            before, n = len(done), number % len(paces)
            job = Job(args.profiles[n], args.limit, root / str(number))
            if len(done.kills) < args.kills:
                chain = min(args.chain, args.kills - len(done.kills))
                kills, problem = kill_chain(job, paces[n], chain, rng)
                done.kills += kills
                at = [kill.phase for kill in kills]
                done.problems += [f"{job.profile}, {at}: {problem}"] * bool(problem)
            elif len(done.interrupts) < args.interrupts:
                done.interrupts += filter(None, [interrupt(job, paces[n], rng)])
            else:
                return
            bar(len(done) - before, total)


def report(done: Disturbances, as_json: bool) -> None:
    """Prints the tables, or one JSON object."""
    if as_json:
        terminal.print_json(asdict(done))
        return
    if done.kills:
        print(kill_table(done.kills))
    if done.interrupts:
        print(interrupt_table(done.interrupts))
    for problem in done.problems:
        print(problem)
    for i in done.interrupts:
        if not i.fine:
            text = " / ".join(i.lines)[-500:]
            print(f"{i.profile}, {i.phase}: code {i.code} after {i.seconds:.1f} s: {text}")


def kill_table(kills: Sequence[Kill]) -> str:
    """Returns a Markdown table of the kills, with a row for each phase."""
    head = ("phase", "kills", "windows computed twice, most", "beyond the limit", "processes left")
    rows = []
    for at in PHASES:
        if some := [kill for kill in kills if kill.phase == at]:
            beyond = sum(kill.twice > kill.allowed for kill in some)
            most, left = max(kill.twice for kill in some), sum(kill.leftovers for kill in some)
            rows.append((at, *map(str, (len(some), most, beyond, left))))
    return markdown(head, *rows)


def interrupt_table(interrupts: Sequence[Interrupt]) -> str:
    """Returns a Markdown table of the interrupts, with a row for each phase."""
    head = ("phase", "interrupts", "ended in order", "longest s", "processes left")
    rows = []
    for at in PHASES:
        if some := [interrupted for interrupted in interrupts if interrupted.phase == at]:
            right = sum(i.in_order for i in some)
            longest, left = max(i.seconds for i in some), sum(i.leftovers for i in some)
            rows.append((at, str(len(some)), str(right), f"{longest:.1f}", str(left)))
    return markdown(head, *rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    return terminal.run(run, parser(), argv)


if __name__ == "__main__":
    raise SystemExit(main())
