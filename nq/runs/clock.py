"""Measures a run: its start and end, the seconds of its phases, its memory.

What is measured is kept beside the scores, once a second and when the run ends or is interrupted,
so that the run that continues it adds its own time to that of all its parts.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from nq import storage
from nq.errors import DamagedError
from nq.runs import phases
from nq.runs.machine import machine, own_peak_bytes, tree_memory_bytes
from nq.runs.phases import OnPhase, PhaseTimer, no_report
from nq.runs.score_store import TIMES
from nq.runs.scoring import Scoring

log = logging.getLogger(__name__)

BEAT_S = 1.0
CACHED, WARM = "cached windows", "TensorFlow was loaded before"
LOST, MACHINES = "times of earlier parts are lost", "parts on several machines"


@dataclass(frozen=True)
class Measured:
    """What all parts of a run have measured, each in a process of its own.

    Args:
        started: when the first part started, in seconds since 1970.
        time: seconds of each phase, which add up to ``total_s``; and ``preprocess_s``.
        warmup_windows: windows in the first batches of each shape.
        peak_memory_bytes: largest resident memory of a process with its descendants.
        machine: of the first part.
        parts: how many parts there were.
        reasons: why the speed cannot be compared with that of other runs.
    """

    started: float
    time: Mapping[str, float]
    warmup_windows: int
    peak_memory_bytes: int
    machine: str
    parts: int = 1
    reasons: tuple[str, ...] = ()

    def __add__(self, later: Measured) -> Measured:
        moved = () if self.machine == later.machine else (MACHINES,)
        others = (reason for reason in later.reasons if reason != CACHED)  # the first part's
        return Measured(
            self.started,
            {name: self.time.get(name, 0.0) + later.time[name] for name in later.time},
            self.warmup_windows + later.warmup_windows,
            max(self.peak_memory_bytes, later.peak_memory_bytes),
            self.machine,
            self.parts + later.parts,
            tuple(dict.fromkeys((*self.reasons, *moved, *others))),
        )


class Clock:
    """Measures one part of a run, from its creation until its block ends.

    Args:
        on_phase: receives the phases that begin.

    Attributes:
        timer: of the phases.
    """

    def __init__(self, on_phase: OnPhase = no_report) -> None:
        self.timer = PhaseTimer(on_phase=on_phase)
        self._started = time.time()
        self._reasons = (WARM,) if "tensorflow" in sys.modules else ()
        self._memory_bytes = 0
        self._scoring: Scoring | None = None
        self._earlier: Measured | None = None
        self._keeping = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="nq-clock", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    @contextlib.contextmanager
    def kept(self, scoring: Scoring) -> Iterator[None]:
        """Keeps what is measured beside the scores until ``finish`` is called or the block ends."""
        self._earlier = _read(scoring.scorer.store.folder / TIMES)
        with self._keeping:
            self._scoring = scoring
            self._keep()
        try:
            yield
        finally:
            with self._keeping:
                self._keep()
                self._scoring = None

    def finish(self) -> Measured:
        """Ends the measurement; returns what all parts have measured."""
        with self._keeping:
            if self._scoring is None:
                raise ValueError("the run has ended already")
            measured = self._measured(self._scoring)
            self._write(self._scoring, measured)
            stored, self._scoring = self._scoring.scorer.stored_windows, None
        if stored and self._earlier is None:
            measured = replace(measured, reasons=(*measured.reasons, LOST))
        return measured

    def note(self, reason: str) -> None:
        """Adds a reason why the speed cannot be compared with that of other runs."""
        self._reasons = (*self._reasons, reason)

    @property
    def started(self) -> float:
        """When the first part started, in seconds since 1970."""
        return self._earlier.started if self._earlier else self._started

    def peak_memory_bytes(self) -> int:
        """Returns the largest resident memory so far of this process with its descendants."""
        return max(self._memory_bytes, tree_memory_bytes(os.getpid()), own_peak_bytes())

    def _measured(self, scoring: Scoring) -> Measured:
        cached = (CACHED,) if any(chunk.reused for chunk in scoring.chunks.ready) else ()
        own = Measured(
            self._started,
            _phases(scoring, self.timer.seconds),
            scoring.scorer.counters.warmup_windows,
            self.peak_memory_bytes(),
            machine(),
            reasons=(*cached, *self._reasons),
        )
        return self._earlier + own if self._earlier else own

    def _beat(self) -> None:
        while not self._ended.wait(BEAT_S):
            self._memory_bytes = max(self._memory_bytes, tree_memory_bytes(os.getpid()))
            with self._keeping:
                self._keep()

    def _keep(self) -> None:
        if self._scoring is not None:
            self._write(self._scoring, self._measured(self._scoring))

    def _write(self, scoring: Scoring, measured: Measured) -> None:
        """Writes what is measured; a failure costs no more than the time of this part."""
        with contextlib.suppress(OSError):
            storage.write_json(scoring.scorer.store.folder / TIMES, asdict(measured))


def _read(path: Path) -> Measured | None:
    """Returns what earlier parts have measured; ``None`` without any."""
    try:
        values = storage.read_json(path)
        return Measured(**{**values, "reasons": tuple(values["reasons"])})
    except FileNotFoundError:
        return None
    except (DamagedError, TypeError, KeyError) as error:
        log.warning("%s; the time of the earlier parts of the run is not known", error)
        return None


def _phases(scoring: Scoring, seconds: Mapping[str, float]) -> dict[str, float]:
    """Returns the seconds of each phase, their sum, and the work of the preprocessing.

    Args:
        scoring: with the seconds that its scorers have counted themselves.
        seconds: of the phases that a timer has measured.
    """
    counters = scoring.scorer.counters
    counted = {
        "compile_s": counters.compile_s,
        "warmup_s": counters.warmup_s,
        "reader_s": counters.reader_s,
        "rescore_s": counters.rescore_s,
    }
    first = (phases.TRIALS, phases.LOAD, phases.WAIT, phases.READ)
    before = {n: seconds.get(n, 0.0) for n in first}
    predict = seconds.get(phases.PREDICT, 0.0) - sum(counted.values())
    after = {n: seconds.get(n, 0.0) for n in (phases.POSTPROCESS, phases.SCORE)}
    return {
        **before,
        **counted,
        phases.PREDICT: predict,
        **after,
        "total_s": sum(seconds.values()),
        "preprocess_s": sum(c.seconds for c in scoring.chunks.ready if not c.reused),
    }


def iso(moment: float) -> str:
    """Returns a moment as ISO 8601 in UTC.

    >>> iso(0.25)
    '1970-01-01T00:00:00.250+00:00'
    """
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")
