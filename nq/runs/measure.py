"""Measures a run: the seconds of its phases, which add up to its time, its memory, its machine.

What is measured is kept beside the scores, once a second and when the run ends or is interrupted,
so that the run that continues it adds its own time to that of all its parts.
"""

import contextlib
import logging
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Self

from nq import processor
from nq.errors import DamagedError
from nq.inference.scorer import Counters
from nq.memo import Memo
from nq.report.tables import prediction_s

log = logging.getLogger(__name__)

LOAD, WAIT, READ = "load_s", "preprocess_wait_s", "read_s"
PREDICT, POSTPROCESS, SCORE = "predict_s", "postprocess_s", "score_s"
SUBMIT, PIPELINE, MERGE = "submit_s", "pipeline_s", "merge_s"
COMPILE, WARMUP = "compile_s", "warmup_s"
PHASES = (LOAD, WAIT, READ, COMPILE, WARMUP, PREDICT, POSTPROCESS, SCORE)
DESCRIPTIONS = {
    LOAD: "loading the model",
    WAIT: "preparing windows",
    PREDICT: "computing windows",
    SUBMIT: "reading the data, submitting the job",
    PIPELINE: "answering on workers",
    MERGE: "merging the answers",
}
"""What goes on in phases that can take long, for a progress bar."""
FIRST = {PREDICT: "compiling, computing the first windows"}
"""What goes on in such a phase until ``compiled`` is called, when it begins for the first time."""
BEAT_S, TIMES = 1.0, "times.json"
WARM = "TensorFlow was loaded before"
LOST, MACHINES = "times of earlier parts are lost", "parts on several machines"
BUSY, BUSY_SHARE = "other programs took much of the processor", 0.1
"""The reason where others worked for more than this share of the time of the cores."""
PROC, KIB, TICKS = Path("/proc"), 1 << 10, os.sysconf("SC_CLK_TCK")
IDLE, IO_WAIT = 3, 4  # among the counts of a core in /proc/stat

OnPhase = Callable[[str], None]  # receives the description of a phase when it begins


def no_report(*event: object) -> None:
    """Ignores phases and progress."""


@dataclass
class Totals:
    """The work of a run, summed over its chunks or over the records of Beam's workers.

    ``Result`` explains its fields; ``prepare_s`` is the work of the preprocessing.
    """

    windows: int = 0
    resumed_windows: int = 0
    second_model_windows: int = 0
    rescored: int = 0
    dead_letters: int = 0
    truncated_pages: int = 0
    unread_blocks: int = 0
    prepare_s: float = 0.0
    devices: set[str] = field(default_factory=set)
    precisions: set[str] = field(default_factory=set)
    counters: Counters = field(default_factory=Counters)


@dataclass(frozen=True)
class Measured:
    """The measurements of a run, over all processes that computed a part of it.

    Args:
        started: when the first part started, in seconds since 1970.
        time: as that of ``Result``.
        peak_memory_bytes: largest resident memory of a process with its descendants.
        reasons: why the speed cannot be compared with that of other runs.
    """

    started: float
    time: Mapping[str, float]
    peak_memory_bytes: int
    machine: str
    parts: int = 1
    reasons: tuple[str, ...] = ()

    def __add__(self, later: Self) -> Self:
        moved = () if self.machine == later.machine else (MACHINES,)
        return type(self)(
            self.started,
            {name: self.time.get(name, 0.0) + later.time[name] for name in later.time},
            max(self.peak_memory_bytes, later.peak_memory_bytes),
            self.machine,
            self.parts + later.parts,
            tuple(dict.fromkeys((*self.reasons, *moved, *later.reasons))),
        )

    def windows_per_s(self, totals: Totals) -> float:
        """Returns the speed: all windows, pruned ones too, divided by the seconds of prediction.

        Windows of a second model do not count, but its time does. Windows that an interrupted part
        has scored count unless its time is lost.
        """
        seconds = prediction_s(self.time)
        windows = totals.windows - (totals.resumed_windows if LOST in self.reasons else 0)
        return windows / seconds if seconds > 0 else 0.0


def prediction_phases(seconds: float, counters: Counters) -> dict[str, float]:
    """Returns the seconds of compilation, warm-up and prediction, and those of parts of the latter.

    Warm-up is what the first batch of every shape takes longer than later ones with as many windows
    would, so that the prediction has the time of all windows at their steady speed. Where there are
    no later ones, there is no warm-up.

    >>> prediction_phases(9.0, Counters(1.0, warmup_s=4.0, warmup_windows=2, computed_windows=10))
    {'compile_s': 1.0, 'warmup_s': 3.0, 'predict_s': 5.0, 'rescore_s': 0.0, 'second_model_s': 0.0}
    """
    first_s, first = counters.warmup_s, counters.warmup_windows
    parts = {"rescore_s": counters.rescore_s, "second_model_s": counters.second_model_s}
    compile_s, later = counters.compile_s, counters.computed_windows - first
    later_s = max(0.0, seconds - compile_s - first_s - sum(parts.values()))
    warmup_s = max(0.0, first_s - later_s * first / later) if later > 0 else 0.0
    return {COMPILE: compile_s, WARMUP: warmup_s, PREDICT: seconds - compile_s - warmup_s, **parts}


class Clock:
    """Divides the time of one part of a run into phases, of which one goes on at every moment.

    Within its ``with`` block it also watches the memory of the process and its descendants. It
    compares their work with that of all programs on the cores that this process may use.

    >>> clock = Clock()
    >>> with clock(WAIT):
    ...     sorted(clock.seconds)
    ['load_s', 'preprocess_wait_s']
    """

    def __init__(self, on_phase: OnPhase = no_report) -> None:
        self.on_phase, self._started = on_phase, time.time()
        self._phase, self._covering, self._since = LOAD, "", time.perf_counter()
        self._seconds: dict[str, float] = defaultdict(float)
        self._reasons = (WARM,) if "tensorflow" in sys.modules else ()
        self._memory_bytes, self._is_compiled = 0, False
        self._works_before = cores_work_s(), tree_use(os.getpid())[1]
        self._earlier: Measured | None = None
        self._kept: tuple[Memo, Callable[[], Totals]] | None = None
        self._lock, self._keep_lock = threading.Lock(), threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="nq-clock", daemon=True)
        self._report(LOAD)

    def enter(self, phase: str) -> str:
        """Ends the phase that goes on and begins another; returns the one that has ended."""
        with self._lock:
            self._add_seconds()
            ended, self._phase = self._phase, phase
        if not self._covering:
            self._report(phase)
        return ended

    @contextlib.contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Gives the time of a block to a phase instead of the one that goes on."""
        outer = self.enter(phase)
        try:
            yield
        finally:
            self.enter(outer)

    def cover(self, phase: str) -> None:
        """Counts all time for one phase, whatever others begin, until called with an empty one.

        It is for work of other processes, beside which this one reads and decides.
        """
        with self._lock:
            self._add_seconds()
            before, self._covering = self._covering, phase
        if phase != before:
            self._report(phase)

    def compiled(self) -> None:
        """Reports that the first windows are computed, so that most of what follows only computes.

        Any thread may call it, and more than once.
        """
        if not self._is_compiled:
            self._is_compiled = True
            self.on_phase(DESCRIPTIONS[PREDICT])

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds of each phase so far, the one that goes on included."""
        with self._lock:
            self._add_seconds()
            return dict(self._seconds)

    def _add_seconds(self) -> None:
        now = time.perf_counter()
        self._seconds[self._covering or self._phase] += now - self._since
        self._since = now

    def _report(self, phase: str) -> None:
        if phase in DESCRIPTIONS:
            is_first = phase in FIRST and phase not in self._seconds
            self.on_phase(FIRST[phase] if is_first else DESCRIPTIONS[phase])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def started(self) -> float:
        """When the first part started, in seconds since 1970."""
        return self._earlier.started if self._earlier else self._started

    @contextlib.contextmanager
    def kept(self, memo: Memo, totals: Callable[[], Totals]) -> Iterator[None]:
        """Writes the measurements to a memo regularly until ``finish`` or the end of the block.

        Another thread calls ``totals``, which returns what the run has computed so far.
        """
        self._earlier = read_times(memo)
        self._kept = memo, totals
        self._keep()
        try:
            yield
        finally:
            self._keep(is_last=True)

    def finish(self, totals: Totals) -> Measured:
        """Ends the measurement; returns what all parts have measured."""
        self._keep(is_last=True)
        measured = self._measured(totals)
        if totals.resumed_windows and self._earlier is None:
            measured = replace(measured, reasons=(*measured.reasons, LOST))
        return measured

    def _measured(self, totals: Totals) -> Measured:
        own_s = self._watch_memory()
        all_before, own_before = self._works_before
        others_s = cores_work_s() - all_before - (own_s - own_before)
        is_busy = others_s > BUSY_SHARE * len(processor.cores()) * (time.time() - self._started)
        seconds, counters = self.seconds, totals.counters
        phases = seconds
        if PIPELINE not in seconds:
            phases = {name: seconds.get(name, 0.0) for name in PHASES}
            phases |= prediction_phases(phases[PREDICT], counters)
        own = Measured(
            self._started,
            {**phases, "total_s": sum(seconds.values()), "preprocess_s": totals.prepare_s},
            max(self._memory_bytes, own_peak_bytes()),
            machine(),
            reasons=(*self._reasons, *([BUSY] if is_busy else [])),
        )
        return self._earlier + own if self._earlier else own

    def _watch_memory(self) -> float:
        """Updates the largest memory; returns the CPU seconds with those of descendants."""
        memory_bytes, work_s = tree_use(os.getpid())
        self._memory_bytes = max(self._memory_bytes, memory_bytes)
        return work_s

    def _beat(self) -> None:
        while not self._stop.wait(BEAT_S):
            self._watch_memory()
            self._keep()

    def _keep(self, is_last: bool = False) -> None:
        """Writes the measurements; a failure to write is ignored."""
        with self._keep_lock:  # not the lock of the phases, so that no phase waits for the disk
            if self._kept is not None:
                memo, totals = self._kept
                with contextlib.suppress(OSError):
                    memo.write_values(TIMES, asdict(self._measured(totals())))
            if is_last:
                self._kept = None


def read_times(memo: Memo) -> Measured | None:
    """Returns what earlier parts have measured; ``None`` without any."""
    try:
        values = memo.values(TIMES)
        return Measured(**{**values, "reasons": tuple(values["reasons"])})
    except FileNotFoundError:
        return None
    except (DamagedError, TypeError, KeyError) as error:
        log.warning("%s; the time of the earlier parts of the run is not known", error)
        return None


def machine() -> str:
    """Returns the processor and the number of its cores that this process may use."""
    return f"{processor.name()}, {len(processor.cores())} cores"


def tree_use(root: int) -> tuple[int, float]:
    """Returns the resident memory of a process and its descendants in bytes, and their CPU seconds.

    Pages that several processes share count in each of them. The seconds are those since the start
    of the processes, with those of children that have ended.
    """
    children: dict[int, list[int]] = defaultdict(list)
    pages, ticks = dict[int, int](), dict[int, int]()
    for path in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended
            fields = (path / "stat").read_bytes().rpartition(b")")[2].split()
            children[int(fields[1])].append(int(path.name))
            pages[int(path.name)] = int(fields[21])
            ticks[int(path.name)] = sum(map(int, fields[11:15]))
    tree = [root]
    for process in tree:
        tree += children[process]
    memory, work = (sum(count.get(process, 0) for process in tree) for count in (pages, ticks))
    return memory * os.sysconf("SC_PAGE_SIZE"), work / TICKS


def cores_work_s() -> float:
    """Returns the seconds that the cores of this process have worked for all programs.

    They count since the machine's start, with those that a virtual machine had to wait; 0 if
    unknown.
    """
    cores = {f"cpu{number}" for number in processor.cores()}
    with contextlib.suppress(OSError):
        lines = map(str.split, (PROC / "stat").read_text(encoding="utf-8").splitlines())
        counts = [list(map(int, line[1:9])) for line in lines if line[0] in cores]
        return sum(sum(one) - one[IDLE] - one[IO_WAIT] for one in counts) / TICKS
    return 0.0


def own_peak_bytes() -> int:
    """Returns the largest resident memory of this process since its start, 0 if unknown.

    ``resource.getrusage`` would count the process that started this one too.
    """
    with contextlib.suppress(OSError, StopIteration):
        lines = (PROC / "self/status").read_text(encoding="utf-8").splitlines()
        return KIB * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
    return 0
