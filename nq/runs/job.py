"""What a run of the whole line is asked for, what it found, and the files it leaves."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from nq.config import DecisionConfig, WindowConfig
from nq.inference.profile import Profile
from nq.preprocess.request import CHUNK_BYTES, Request, chunks

PREDICTIONS, METRICS, DEAD_LETTERS = "predictions.json", "metrics.json", "dead_letters.jsonl"
JOB, RESULTS, SCORES = "job.json", "results", "scores"


@dataclass(frozen=True)
class Job:
    """What a run of the whole line is asked for.

    Args:
        files: input files, in order.
        model: model folder.
        profile: optimizations.
        windows: how pages become windows.
        decision: how scores become answers.
        batch_size: windows in a batch.
        output: the run's folder, or ``None`` for one under ``root`` named by content.
        root: where runs and shared windows lie.
        limit: answer the first records only.
        workers: processes for preprocessing.
        keep_scores: leave the scores of all windows in the run's folder when it has ended.
        formats: what to write besides the official predictions; see ``nq.formats.outputs``.
        chunk_bytes: input bytes after which a chunk of the input ends.
    """

    files: tuple[str, ...]
    model: Path
    profile: Profile
    windows: WindowConfig
    decision: DecisionConfig
    batch_size: int
    output: Path | None = None
    root: Path = Path("runs")
    limit: int | None = None
    workers: int | None = None
    keep_scores: bool = False
    formats: tuple[str, ...] = ()
    chunk_bytes: int = CHUNK_BYTES

    @property
    def requests(self) -> tuple[Request, ...]:
        """What preprocessing is asked for, one chunk after the other."""
        request = Request(self.files, str(self.model), self.windows, self.limit)
        return chunks(request, self.chunk_bytes)

    def to_dict(self) -> dict[str, Any]:
        """What a result depends on, as plain values; paths hold in any working folder."""
        return {
            "files": [str(Path(path).absolute()) for path in self.files],
            "model": str(self.model.absolute()),
            "profile": str(self.profile),
            "windows": self.windows.to_dict(),
            "decision": self.decision.to_dict(),
            "batch_size": self.batch_size,
            "limit": self.limit,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The job that ``to_dict`` described."""
        return cls(
            files=tuple(values["files"]),
            model=Path(values["model"]),
            profile=Profile.parse(values["profile"]),
            windows=WindowConfig.from_dict(values["windows"]),
            decision=DecisionConfig.from_dict(values["decision"]),
            batch_size=values["batch_size"],
            limit=values["limit"],
        )


@dataclass(frozen=True)
class Row:
    """One line of the readable table; ``right`` is ``None`` without gold."""

    question: str
    answer: str
    right: bool | None


@dataclass
class Report:
    """What a run found; filled as it goes on.

    ``time`` is in seconds per phase; ``metrics`` is empty without gold.
    """

    profile: str
    output: Path
    device: str = ""
    precision: str = ""
    examples: int = 0
    windows: int = 0
    resumed_windows: int = 0
    read_windows: int = 0
    float32_windows: int = 0
    rechecked: int = 0
    windows_per_s: float = 0.0
    answered: int = 0
    dead_letters: int = 0
    without_gold: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    time: dict[str, float] = field(default_factory=dict)
    run_id: str | None = None
    rows: list[Row] = field(default_factory=list)

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Adds what runs inside to ``time[phase]``."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.time[phase] = self.time.get(phase, 0.0) + time.perf_counter() - started

    def to_dict(self) -> dict[str, Any]:
        """Everything but the table's rows, as plain values."""
        hidden = ("rows",)
        values = {k: v for k, v in vars(self).items() if k not in hidden}
        return {**values, "output": str(self.output)}
