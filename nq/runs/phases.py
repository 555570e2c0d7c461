"""The phases of a run, whose seconds add up to the time of the run at every moment."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

TRIALS, LOAD, WAIT, READ = "trials_s", "load_s", "preprocess_wait_s", "read_s"
PREDICT, POSTPROCESS, SCORE = "predict_s", "postprocess_s", "score_s"
SUBMIT, PIPELINE, MERGE = "submit_s", "pipeline_s", "merge_s"
DESCRIPTIONS = {
    TRIALS: "trying profiles",
    LOAD: "loading the model",
    WAIT: "preparing windows",
    PREDICT: "computing windows",
    SUBMIT: "reading the data, submitting the job",
    PIPELINE: "answering on workers",
    MERGE: "merging the answers",
}
"""What goes on in phases that can take long, for a progress bar."""
FIRST = {PREDICT: "compiling, computing the first windows"}
"""What goes on when such a phase begins for the first time."""

OnPhase = Callable[[str], None]
"""Receives the description of a phase when it begins."""


def no_report(phase: str) -> None:
    """Ignores phases."""


class PhaseTimer:
    """Divides time into phases, of which one goes on at every moment.

    >>> timer = PhaseTimer(LOAD)
    >>> with timer(WAIT):
    ...     sorted(timer.seconds)
    ['load_s', 'preprocess_wait_s']

    Args:
        phase: the first phase, which begins now.
        on_phase: receives the phases that begin and have a description.
    """

    def __init__(self, phase: str = LOAD, on_phase: OnPhase = no_report) -> None:
        self._ended: dict[str, float] = {}
        self._phase, self._since = phase, time.perf_counter()
        self._beside: str | None = None
        self._lock, self.on_phase = threading.Lock(), on_phase
        self._report(phase)

    def enter(self, phase: str) -> str:
        """Ends the phase that goes on and begins another; returns the one that has ended."""
        with self._lock:
            self._end_phase()
            ended, self._phase = self._phase, phase
        if self._beside is None:
            self._report(phase)
        return ended

    def cover(self, phase: str | None) -> None:
        """Gives all time to one phase, whatever others begin and end, until ``None`` is given.

        It is for work of other processes, beside which this one reads and decides.
        """
        with self._lock:
            self._end_phase()
            before, self._beside = self._beside, phase
        if phase is not None and phase != before:
            self._report(phase)

    @property
    def _counted(self) -> str:
        """The phase that time is given to."""
        return self._phase if self._beside is None else self._beside

    def _end_phase(self) -> None:
        now, phase = time.perf_counter(), self._counted
        self._ended[phase] = self._ended.get(phase, 0.0) + now - self._since
        self._since = now

    def _report(self, phase: str) -> None:
        if phase in DESCRIPTIONS:
            words = DESCRIPTIONS if phase in self._ended else DESCRIPTIONS | FIRST
            self.on_phase(words[phase])

    @contextlib.contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Gives the time of a block to a phase instead of the one that goes on."""
        outer = self.enter(phase)
        try:
            yield
        finally:
            self.enter(outer)

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds of each phase so far, with those of the one that goes on."""
        with self._lock:
            phase = self._counted
            now = self._ended.get(phase, 0.0) + time.perf_counter() - self._since
            return {**self._ended, phase: now}
