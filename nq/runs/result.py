"""The result of a run: its files, its counts, times and metrics."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, Protocol

import orjson

from nq import storage, tracking
from nq.evaluation.answers import PREDICTIONS, Answered, AnswerFiles, AnswerRow
from nq.evaluation.gate import Parity
from nq.formats import input_files, outputs
from nq.formats.input_files import shown
from nq.memo import Memo
from nq.runs.measure import SCORE, Clock, Totals, iso
from nq.runs.plan import Plan
from nq.runs.score_store import ScoreStore
from nq.storage import atomic_write

__all__ = ["JOB", "KEPT_SCORES", "METRICS", "PREDICTIONS", "Result"]

METRICS, JOB, DEAD_LETTERS, KEPT_SCORES = "metrics.json", "job.json", "skipped.jsonl", "scores"
REPORT = "report.html"


def write_metrics(folder: Path, values: Mapping[str, Any]) -> None:
    """Writes the ``metrics.json`` of a run."""
    with atomic_write(folder / METRICS) as file:
        file.write(orjson.dumps(values, option=orjson.OPT_INDENT_2) + b"\n")


@dataclass(frozen=True)
class Result:
    """The folder, counts, times and metrics of a run.

    Args:
        precision: compute type of the matrix products.
        windows: windows of all pages; ``second_model_windows`` counts those of a second model.
        resumed_windows: windows scored by an interrupted run before.
        read_windows: windows that the model computed in this run; less with pruning.
        float32_windows: windows computed again in float32 because logits were not finite.
        rescored: examples whose close decision was computed again in float32.
        windows_per_s: speed without compilation and warm-up.
        answered: predictions that are not null.
        dead_letters: records that could not be used.
        without_gold: examples without annotations.
        truncated_pages: pages with more blocks than ``max_contexts``; ``unread_blocks`` in all.
        peak_memory_bytes: largest resident memory of the process with all its descendants, read
            once a second, or of the process alone; pages that processes share count in each.
        metrics: of the official evaluation; empty without gold.
        time: seconds of each phase in all parts, which add up to ``total_s``; and
            ``preprocess_s``, the work of the preprocessing, which goes on beside other phases.
            What instances count themselves (``compile_s``, ``warmup_s``, ``rescore_s``,
            ``second_model_s``) is the mean of the instances, and all that the run does while one of
            them computes is ``predict_s``.
        run_id: of the MLflow run; ``how_to_open`` shows it.
        rows: the first answers as a table.
        parity: the comparison with another run, if one was required.
        run_bytes: size of the run's files, without the windows, which other runs may share.
        text_only: examples whose gold is text and not in their page.
        started_at, ended_at: start of the first part and end of the last one, ISO 8601 in UTC.
        parts: in how many processes the run was computed; more than one if it was resumed.
        machine: processor and number of cores.
        instances: processes that computed the windows; ``None`` if it was that of the run.
        threads: of each of them; ``None`` for those that TensorFlow and engines choose.
        not_comparable: why the speed cannot be compared with that of other runs.
        model_uri: MLflow's URI of the model that the run has, if it was required.
        beam: runner, name and ids of the job, number of workers among which few files were shared,
            and metrics of the pipeline, where a runner of Beam answered the questions. ``time`` has
            then the submission, the pipeline and the merging, ``preprocess_s`` the work of all
            workers, ``windows_per_s`` is the speed of the whole pipeline, and memory that of this
            machine.
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
    parts: int = 1
    machine: str = ""
    instances: int | None = None
    threads: int | None = None
    not_comparable: tuple[str, ...] = ()
    model_uri: str | None = None
    beam: Mapping[str, Any] | None = None

    @property
    def resumed(self) -> bool:
        """Whether an earlier run that was interrupted computed a part of it."""
        return self.parts > 1 or self.resumed_windows > 0

    @property
    def speed_comparable(self) -> str:
        """``yes``, or ``no`` with the reasons."""
        reasons = [*(["resumed"] if self.resumed else []), *self.not_comparable]
        return f"no: {', '.join(reasons)}" if reasons else "yes"

    def to_dict(self) -> dict[str, Any]:
        """Returns what ``metrics.json`` contains, as JSON values."""
        hidden = (
            *("folder", "rows", "parity", "how_to_open"),
            *("run_bytes", "windows_bytes", "not_comparable", "model_uri", "beam"),
        )
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in hidden}
        return {
            "profile": self.profile,
            "output": shown(str(self.folder)),
            **values,
            "speed_comparable": self.speed_comparable,
            **({} if self.beam is None else {"beam": self.beam}),
        }


class AnswerSource(Protocol):
    """What answers the questions of a run: this process, or the workers of a runner of Beam.

    Attributes:
        store: the scores of the unfinished run.
        pipeline: ``Result.beam``, once all answers are known.
        windows_bytes: size of the folders of windows.
    """

    @property
    def store(self) -> ScoreStore | None: ...
    @property
    def pipeline(self) -> dict[str, Any] | None: ...
    @property
    def windows_bytes(self) -> int: ...

    def answers(self, table_rows: int, dead_letters: IO[bytes]) -> Iterator[Answered]:
        """Yields the answers in the order of the input, and writes the lines of the dead letters.

        About the first ``table_rows`` answers have a row of the table of answers.
        """

    def totals(self) -> Totals:
        """Returns what was computed so far."""


def write_answers(plan: Plan, answering: AnswerSource, table_rows: int) -> AnswerFiles:
    """Writes answers and dead letters of a run to its folder, which is held.

    The mark of an earlier finished run is removed when the first answer is known.
    """
    files = AnswerFiles(plan.job.formats)
    with atomic_write(plan.folder / DEAD_LETTERS) as dead_letters:
        answers = answering.answers(table_rows, dead_letters)
        first = list(islice(answers, 1))
        (plan.folder / JOB).unlink(missing_ok=True)
        files.write(plan.folder, chain(first, answers))
    return files


def write_result(
    plan: Plan, clock: Clock, tracked: tracking.Run, files: AnswerFiles, answering: AnswerSource
) -> Result:
    """Writes the metrics of a run, and as the last file ``job.json``, which marks it as finished.

    The answers and dead letters are written before. The scores in the store of the unfinished run
    are kept if the job requires it.
    """
    totals, beam, store = answering.totals(), answering.pipeline, answering.store
    job, folder, evaluation = plan.job, plan.folder, files.evaluation
    clock.enter(SCORE)
    metrics = evaluation.metrics()
    Memo(folder / KEPT_SCORES).clear()
    measured, ended = clock.finish(totals), time.time()
    tracked.ended = ended
    result = Result(
        folder=folder,
        profile=str(job.profile),
        device=", ".join(sorted(totals.devices)),
        precision=", ".join(sorted(totals.precisions)),
        examples=files.examples,
        windows=totals.windows,
        resumed_windows=totals.resumed_windows,
        read_windows=totals.counters.computed_windows,
        float32_windows=totals.counters.float32_windows,
        rescored=totals.rescored,
        second_model_windows=totals.second_model_windows,
        windows_per_s=measured.windows_per_s(totals),
        answered=files.answered,
        dead_letters=totals.dead_letters,
        without_gold=evaluation.without_gold,
        text_only=evaluation.text_only,
        truncated_pages=totals.truncated_pages,
        unread_blocks=totals.unread_blocks,
        peak_memory_bytes=measured.peak_memory_bytes,
        metrics=metrics,
        time=measured.time,
        run_id=tracked.run_id,
        rows=tuple(files.rows),
        started_at=iso(measured.started),
        ended_at=iso(ended),
        parts=measured.parts,
        machine=measured.machine,
        instances=job.instances,
        threads=job.compute.threads,
        not_comparable=measured.reasons if beam is None else (f"answered by {beam['runner']}",),
        beam=beam,
        windows_bytes=answering.windows_bytes,
    )
    write_metrics(folder, result.to_dict())
    names = [PREDICTIONS, METRICS, DEAD_LETTERS, *(outputs.FORMATS[n].file for n in job.formats)]
    digests = {name: input_files.sha256(folder / name) for name in names}
    mark = {**plan.description, "files": digests, **({} if beam is None else {"beam": beam})}
    storage.write_json(folder / JOB, mark)
    if store is not None:  # not before, so that no interruption loses scores
        if job.keep_scores:
            store.memo.move(folder / KEPT_SCORES)
        store.memo.clear()
    return result
