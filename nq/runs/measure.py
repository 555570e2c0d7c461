"""Measures a run: the seconds of its phases, which add up to its time, its memory, its machine.

The seconds are kept beside the scores, once a second and when the run ends or is interrupted, so
that the run that continues it adds its own.
"""

import contextlib
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import psutil

from nq import processor
from nq.inference.scorer import Counters, no_progress
from nq.memo import Memo

LOAD = "load_s"
WAIT = "preprocess_wait_s"
READ = "read_s"
PREDICT = "predict_s"
POSTPROCESS = "postprocess_s"
SCORE = "score_s"
SUBMIT = "submit_s"
PIPELINE = "pipeline_s"
MERGE = "merge_s"
COMPILE = "compile_s"
WARMUP = "warmup_s"
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
COMPILING = "compiling, computing the first windows"
"""What goes on when ``PREDICT`` begins for the first time, until ``compiled`` is called."""
BESIDE = ("total_s", "preprocess_s", "rescore_s", "reader_s")
"""Keys of ``time`` that are no phases of a run and must not be added to these."""
MIB = 1 << 20
BEAT_S = 1.0
TIMES = "times.json"
WARM = "TensorFlow was loaded before"
BUSY = "other programs took much of the processor"
BUSY_SHARE = 0.1
"""The reason where others worked for more than this share of the time of the cores."""

OnPhase = Callable[[str], None]  # receives the description of a phase when it begins


@dataclass
class Totals:
    """What a run has computed.

    Args:
        windows: of all pages, for the first model; ``resumed_windows`` of them were scored before
            an interruption. ``reader_windows`` are windows of the reader of two models.
        rescored: examples whose close decision was computed again in float32.
        dead_letters: records that cannot be used.
        truncated_pages: pages with more blocks than ``max_contexts``; ``unread_blocks`` in all.
        prepare_s: seconds of work of the preprocessing, which goes on beside other phases.
        devices, precisions: of all processes that computed windows.
    """

    windows: int = 0
    resumed_windows: int = 0
    reader_windows: int = 0
    rescored: int = 0
    dead_letters: int = 0
    truncated_pages: int = 0
    unread_blocks: int = 0
    prepare_s: float = 0.0
    devices: set[str] = field(default_factory=set)
    precisions: set[str] = field(default_factory=set)
    counters: Counters = field(default_factory=Counters)

    @property
    def device(self) -> str:
        return ", ".join(sorted(self.devices))

    @property
    def precision(self) -> str:
        return ", ".join(sorted(self.precisions))

    def to_dict(self) -> dict[str, Any]:
        """Returns the device and the counts as JSON values, without seconds."""
        return {
            "device": self.device,
            "precision": self.precision,
            "windows": self.windows,
            "read_windows": self.counters.computed_windows,
            "resumed_windows": self.resumed_windows,
            "reader_windows": self.reader_windows,
            "float32_windows": self.counters.float32_windows,
            "rescored": self.rescored,
            "dead_letters": self.dead_letters,
            "truncated_pages": self.truncated_pages,
            "unread_blocks": self.unread_blocks,
        }


@dataclass(frozen=True)
class Measured:
    """What a run has measured.

    Args:
        started: when it started, in seconds since 1970.
        time: seconds of each phase, those before an interruption too, which add up to ``total_s``.
            ``warmup_s`` is what first batches took longer than later ones; ``predict_s`` is all
            other time of windows, of which ``rescore_s`` and ``reader_s`` are parts, and all
            time while instances compute. ``preprocess_s``, the work of the preprocessing, goes on
            beside other phases.
        peak_memory_bytes: largest resident memory of the process with all its descendants, read
            once a second; pages that processes share count in each.
        reasons: why the speed cannot be compared with that of other runs.
    """

    started: float
    time: Mapping[str, float]
    peak_memory_bytes: int
    machine: str
    reasons: tuple[str, ...] = ()


def prediction_s(time: Mapping[str, float]) -> float:
    """Returns the divisor of windows/s: seconds of prediction or, with Beam, of the pipeline.

    >>> prediction_s({"predict_s": 2.0}), prediction_s({"pipeline_s": 4.0}), prediction_s({})
    (2.0, 4.0, 0.0)
    """
    return time.get("pipeline_s", time.get("predict_s", 0.0))


def phases(time: Mapping[str, float]) -> tuple[dict[str, float], float]:
    """Returns the seconds of the phases of a run that have a duration, and the seconds of all.

    >>> phases({"load_s": 1.0, "predict_s": 3.0, "preprocess_s": 9.0, "total_s": 4.0})
    ({'load': 1.0, 'predict': 3.0}, 4.0)
    """
    seconds = {
        name.removesuffix("_s").replace("_", " "): value
        for name, value in time.items()
        if value > 0 and name not in BESIDE
    }
    return seconds, max(time.get("total_s", 0.0), sum(seconds.values()))


def prediction_phases(seconds: float, counters: Counters) -> dict[str, float]:
    """Returns the seconds of compilation, warm-up and prediction, and those of parts of the latter.

    Warm-up is what the first batch of every shape takes longer than later ones with as many windows
    would, so that the prediction has the time of all windows at their steady speed. Where there are
    no later ones, there is no warm-up.

    >>> prediction_phases(9.0, Counters(1.0, warmup_s=4.0, warmup_windows=2, computed_windows=10))
    {'compile_s': 1.0, 'warmup_s': 3.0, 'predict_s': 5.0, 'rescore_s': 0.0, 'reader_s': 0.0}
    """
    first_s = counters.warmup_s
    first = counters.warmup_windows
    parts = {"rescore_s": counters.rescore_s, "reader_s": counters.reader_s}
    compile_s = counters.compile_s
    later = counters.computed_windows - first
    later_s = max(0.0, seconds - compile_s - first_s - sum(parts.values()))
    warmup_s = max(0.0, first_s - later_s * first / later) if later > 0 else 0.0
    return {COMPILE: compile_s, WARMUP: warmup_s, PREDICT: seconds - compile_s - warmup_s, **parts}


class Clock:
    """Divides the time of a run into phases, of which one goes on at every moment.

    Within its ``with`` block it also watches the memory of the process and its descendants. It
    compares their work with that of all programs on the cores that this process may use.

    >>> clock = Clock()
    >>> with clock(WAIT):
    ...     sorted(clock.seconds)
    ['load_s', 'preprocess_wait_s']
    """

    def __init__(self, on_phase: OnPhase = no_progress) -> None:
        self.on_phase = on_phase
        self.started = time.time()
        self._phase = LOAD
        self._override = ""
        self._since = time.perf_counter()
        self._seconds: dict[str, float] = defaultdict(float)
        self._reasons = (WARM,) if "tensorflow" in sys.modules else ()
        self._memory_bytes = 0
        self._is_compiled = False
        self._works_before = cores_work_s(), tree_use()[1]
        self._earlier: Mapping[str, float] = {}
        self._kept: tuple[Memo, Callable[[], Totals]] | None = None
        self._lock = threading.Lock()
        self._keep_lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="nq-clock", daemon=True)
        self._report(LOAD)

    def enter(self, phase: str) -> str:
        """Ends the phase that goes on and begins another; returns the one that has ended."""
        with self._lock:
            self._add_seconds()
            ended = self._phase
            self._phase = phase
        if not self._override:
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

    def override(self, phase: str) -> None:
        """Counts all time for one phase, whatever others begin, until called with an empty one.

        It is for work of other processes, beside which this one reads and decides.
        """
        with self._lock:
            self._add_seconds()
            before = self._override
            self._override = phase
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
        self._seconds[self._override or self._phase] += now - self._since
        self._since = now

    def _report(self, phase: str) -> None:
        if phase in DESCRIPTIONS:
            is_first = phase == PREDICT and phase not in self._seconds
            self.on_phase(COMPILING if is_first else DESCRIPTIONS[phase])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    @contextlib.contextmanager
    def kept(self, memo: Memo, totals: Callable[[], Totals]) -> Iterator[None]:
        """Keeps the seconds in a memo until ``finish`` is called or the block ends.

        Those of an interrupted run that it has are added. Another thread calls ``totals``, which
        returns what the run has computed so far.
        """
        loss = "the seconds before the interruption are not known"
        self._earlier = memo.found(TIMES, loss) or {}
        self._kept = memo, totals
        try:
            yield
        finally:
            self._keep(is_last=True)

    def finish(self, totals: Totals) -> Measured:
        self._keep(is_last=True)
        own_s = self._watch_memory()
        all_before, own_before = self._works_before
        others_s = cores_work_s() - all_before - (own_s - own_before)
        reasons: tuple[str, ...] = self._reasons
        if others_s > BUSY_SHARE * len(processor.cores()) * (time.time() - self.started):
            reasons += (BUSY,)
        memory_bytes = max(self._memory_bytes, own_peak_bytes())
        return Measured(self.started, self._time(totals), memory_bytes, machine(), reasons)

    def _time(self, totals: Totals) -> dict[str, float]:
        phases = seconds = self.seconds
        if PIPELINE not in seconds:
            phases = {name: seconds.get(name, 0.0) for name in PHASES}
            phases |= prediction_phases(phases[PREDICT], totals.counters)
        own = {**phases, "total_s": sum(seconds.values()), "preprocess_s": totals.prepare_s}
        return {name: value + self._earlier.get(name, 0.0) for name, value in own.items()}

    def _watch_memory(self) -> float:
        """Updates the largest memory; returns the CPU seconds with those of descendants."""
        memory_bytes, work_s = tree_use()
        self._memory_bytes = max(self._memory_bytes, memory_bytes)
        return work_s

    def _beat(self) -> None:
        while not self._stop.wait(BEAT_S):
            self._watch_memory()
            self._keep()

    def _keep(self, is_last: bool = False) -> None:
        """Writes the seconds; a failure costs no more than those of this process."""
        with self._keep_lock:  # not the lock of the phases, so that no phase waits for the disk
            if self._kept is not None:
                memo, totals = self._kept
                with contextlib.suppress(OSError):
                    memo.write_values(TIMES, self._time(totals()))
            if is_last:
                self._kept = None


def machine() -> str:
    """Returns the processor and the number of its cores that this process may use."""
    return f"{processor.name()}, {len(processor.cores())} cores"


def tree_use() -> tuple[int, float]:
    """Returns the resident memory of this process and its descendants in bytes, and CPU seconds.

    Pages that several processes share count in each of them. The seconds are those since the start
    of the processes, with those of children that have ended.
    """
    this = psutil.Process()
    memory = 0
    work = 0.0
    for process in (this, *this.children(recursive=True)):
        with contextlib.suppress(psutil.Error):  # it has just ended
            memory += process.memory_info().rss
            work += sum(process.cpu_times()[:4])  # user and system, own and of children
    return memory, work


def cores_work_s() -> float:
    """Returns the seconds that the cores of this process have worked for all programs.

    They count since the machine's start, with those that a virtual machine had to wait.
    """
    times = psutil.cpu_times(percpu=True)
    own = (times[number] for number in processor.cores() if number < len(times))
    idle = ("idle", "iowait", "guest", "guest_nice")  # guests are part of user and nice
    return float(sum(sum(one) - sum(getattr(one, name, 0.0) for name in idle) for one in own))


def own_peak_bytes() -> int:
    """Returns the largest resident memory of this process since its start, 0 if unknown.

    ``resource.getrusage`` would count the process that started this one too.
    """
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
    return 0
