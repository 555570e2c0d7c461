"""The result of a run: its files, its counts, times and metrics."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from nq.evaluation.answer_files import AnswerRow
from nq.evaluation.gate import Parity
from nq.formats.input_files import shown
from nq.report import run_text
from nq.runs.folder import DEAD_LETTERS
from nq.text import counted

MAX_SHOWN = 10  # rows in a notebook


@dataclass(frozen=True, repr=False)
class Result:
    """The folder, counts, times and metrics of a run.

    Args:
        precision: compute type of the matrix products.
        windows: windows of all pages; ``second_model_windows`` counts those of a second model.
        resumed_windows: windows scored by an interrupted run before.
        read_windows: windows that the model computed in this run; less with pruning.
        float32_windows: windows computed again in float32 because logits were not finite.
        rescored: examples whose close decision was computed again in float32.
        windows_per_s: ``windows`` divided by the seconds of prediction.
        without_gold: examples without annotations.
        truncated_pages: pages with more blocks than ``max_contexts``; ``unread_blocks`` in all.
        peak_memory_bytes: largest resident memory of the process with all its descendants, read
            once a second; pages that processes share count in each.
        metrics: of the official evaluation; empty without gold.
        verdicts: how many answers are right, passage, wrong, missed and extra
            (``nq.evaluation.evaluate.JudgedPrediction``); empty without gold.
        time: seconds of each phase, those before an interruption too, which add up to ``total_s``.
            ``warmup_s`` is what first batches took longer than later ones; ``predict_s`` is all
            other time of windows, of which ``rescore_s`` and ``second_model_s`` are parts, and all
            time while instances compute. ``preprocess_s``, the work of the preprocessing, goes on
            beside other phases.
        run_id: of the MLflow run.
        run_bytes: size of the run's files, without the windows, which other runs may share.
        text_only: examples whose gold is text and not in their page.
        started_at, ended_at: when this process began and ended the run, ISO 8601 in UTC.
        instances: processes that computed the windows; ``None`` if it was that of the run.
        threads: of each of them; ``None`` for those that TensorFlow and engines choose.
        not_comparable: why the speed cannot be compared with that of other runs.
        model_uri: MLflow's URI of the model that the run has, if it was required.
        advice: the profile and why the run took it, where it was ``auto``; or what is faster.
        beam: runner, name and ids of the job, number of workers and metrics of the pipeline, where
            a runner of Beam answered the questions. ``time`` has then other phases,
            ``windows_per_s`` is the speed of the whole pipeline, memory that of this machine.
    """

    folder: Path
    profile: str
    device: str
    precision: str
    examples: int
    windows: int
    resumed_windows: int
    read_windows: int
    float32_windows: int
    rescored: int
    windows_per_s: float
    answered: int
    dead_letters: int
    without_gold: int
    truncated_pages: int
    unread_blocks: int
    peak_memory_bytes: int
    metrics: Mapping[str, float]
    verdicts: Mapping[str, int]
    time: Mapping[str, float]
    run_id: str | None = None
    rows: tuple[AnswerRow, ...] = ()
    parity: Parity | None = None
    how_to_open: str | None = None
    run_bytes: int = 0
    windows_bytes: int = 0
    second_model_windows: int = 0
    text_only: int = 0
    started_at: str = ""
    ended_at: str = ""
    machine: str = ""
    instances: int | None = None
    threads: int | None = None
    not_comparable: tuple[str, ...] = ()
    model_uri: str | None = None
    beam: Mapping[str, Any] | None = None
    advice: str = ""

    @property
    def skipped(self) -> Path:
        """The file of the bad records."""
        return self.folder / DEAD_LETTERS

    @property
    def resumed(self) -> bool:
        """Whether an earlier run that was interrupted computed a part of it."""
        return self.resumed_windows > 0

    @property
    def speed_comparable(self) -> str:
        """``yes``, or ``no`` with the reasons."""
        reasons = [*(["resumed"] if self.resumed else []), *self.not_comparable]
        return f"no: {', '.join(reasons)}" if reasons else "yes"

    def to_dict(self) -> dict[str, Any]:
        """Returns what ``metrics.json`` contains, as JSON values."""
        hidden = (
            *("folder", "rows", "parity", "how_to_open"),
            *("run_bytes", "windows_bytes", "not_comparable", "model_uri", "beam", "advice"),
        )
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in hidden}
        return {
            "profile": self.profile,
            "output": shown(str(self.folder)),
            **values,
            "speed_comparable": self.speed_comparable,
            **({} if self.beam is None else {"beam": self.beam}),
        }

    def __repr__(self) -> str:
        f1 = f"micro-F1 {self.metrics['micro_f1']:.3f}, " if "micro_f1" in self.metrics else ""
        counts = f"{counted(self.examples, 'question')}, {self.answered} answered"
        speed = f"{self.windows_per_s:.1f} windows/s, profile {self.profile}"
        return f"Result({str(self.folder)!r}: {counts}, {f1}{speed})"

    def __str__(self) -> str:
        """Returns the table of answers and the summary, which ``nq answer`` prints."""
        table = [*run_text.table(self.rows, self.examples), ""] if self.rows else []
        return "\n".join([*table, *run_text.summary(self)])

    def _repr_html_(self) -> str:
        """Returns the summary and the first answers, as notebooks show them."""
        return run_text.html(run_text.summary(self), self.rows[:MAX_SHOWN], self.examples)
