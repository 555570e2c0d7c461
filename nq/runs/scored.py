"""files of questions -> windows -> scores, on disk: gone on with where a run was interrupted.

Memory stays flat: nothing here holds more than one page.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from nq.formats import inputs
from nq.model import checkpoint
from nq.model.runtime import import_tensorflow
from nq.postprocess.decision import RULES, check
from nq.preprocess.prefetch import ahead
from nq.preprocess.prepare import Prepared, Request, prepare
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.records import DeadLetter, Example, WindowScores
from nq.runs.examples import ByPlace, answered_examples, examples, unique
from nq.runs.job import RESULTS, Job, Report
from nq.runs.score_store import AGAIN, Results, alone, clear, write_part

if TYPE_CHECKING:
    from nq.inference.engine import Rows
    from nq.inference.loading import Loader
    from nq.inference.predictor import Columns, Predictor
    from nq.inference.rescore import Recheck

OnWindows = Callable[[int, int], None]
"""Told how many windows were scored just now, and how many there are."""


@dataclass(frozen=True)
class Scored:
    """The scores of a job's windows, on disk; iterating yields each example with its own.

    Args:
        job: what was asked.
        prepared: the windows, portion by portion.
        folder: of the scores.
        duplicates: filled while iterating: records whose ``example_id`` was there before.
    """

    job: Job
    prepared: list[Prepared]
    folder: Path
    duplicates: list[DeadLetter] = field(default_factory=list)

    @property
    def examples(self) -> int:
        """How many there are."""
        return sum(portion.examples for portion in self.prepared)

    def results(self) -> Results:
        """The scores by example."""
        shards = tuple(shard for portion in self.prepared for shard in portion.shards)
        return Results(self.folder, shards)

    def __iter__(self) -> Iterator[tuple[Example, WindowScores]]:
        self.duplicates.clear()
        results = self.results()
        for source, example in unique(examples(self.job), self.duplicates):
            yield example, results[source.file_index, source.line]

    def clear(self) -> None:
        """Removes the scores."""
        clear(self.folder)


@contextmanager
def score_windows(
    job: Job,
    report: Report,
    on_windows: OnWindows = lambda done, total: None,
    on_loaded: Callable[[], None] = lambda: None,
) -> Iterator[Scored]:
    """Prepares and scores all windows, going on where an equal job was interrupted.

    Until the block ends no other run may write to the run's folder.

    Args:
        job: what is asked.
        report: gets the run's folder, device, windows and the time of each phase.
        on_windows: told how many windows were scored just now, and how many there are.
        on_loaded: told when the model is loaded.
    """
    inputs.check_files(job.files)
    checkpoint.check(job.model)
    check(job.decision.rule, job.profile.names)
    asked = _asked(job)
    report.output = _named(job, asked)
    with alone(report.output):
        yield _score(job, asked, report, on_windows, on_loaded)


def _score(
    job: Job,
    asked: dict[str, Any],
    report: Report,
    on_windows: OnWindows,
    on_loaded: Callable[[], None],
) -> Scored:
    check = None
    work = [(request, _windows_folder(job, request)) for request in job.requests]
    with ahead(work, job.workers) as portions:
        with report.timed("load_s"):
            made = loader(job)
            if job.profile.changes.recheck:
                from nq.inference.rescore import Recheck

                check = Recheck(made, job.profile, job.decision)
            predictor = made.predictor(job.profile)
        on_loaded()
        scored = _predict(predictor, job, portions, asked, report, on_windows)
    if check:
        with report.timed("recheck_s"):
            report.rechecked = _recheck(scored, check)
    return scored


def _recheck(scored: Scored, check: Recheck) -> int:
    """Computes close calls again, beside their first scores; how many there were.

    An interrupted run has kept those that it did.
    """
    results = scored.results()
    done = sum(len(results[key]) for key in results.again)
    for source, example in answered_examples(scored.job):
        key = source.file_index, source.line
        found = None if key in results.again else check.scores(example, results[key])
        if found:
            keys = np.full((len(found["window_ids"]), 2), key, np.int32)
            write_part(scored.folder, AGAIN, done, {**found, "example_keys": keys})
            done += len(keys)
            results.again.add(key)
    return len(results.again)


def prepared_windows(job: Job) -> Prepared:
    """The first windows of a job, made now if they are not there."""
    request = job.requests[0]
    return prepare(request, _windows_folder(job, request), job.workers)


def _windows_folder(job: Job, request: Request) -> Path:
    return (job.output or job.root) / f"windows-{request.key()}"


def weights_digest(model: Path) -> str:
    """Changes with the weights in a model folder."""
    return "+".join(inputs.sha256(str(path)) for path in checkpoint.weight_files(model))


def loader(job: Job) -> Loader:
    """Makes predictors of a job's model, under any profile."""
    import_tensorflow()
    from nq.inference.batches import Shape
    from nq.inference.loading import Loader
    from nq.inference.predict import some_windows

    shape = Shape(job.batch_size, job.windows.max_seq_length)
    return Loader(
        job.model,
        load_tokenizer(job.model, job.windows.compat),
        job.windows,
        job.decision.rule,
        job.batch_size,
        lambda: some_windows(prepared_windows(job).shards, shape),
    )


def _asked(job: Job) -> dict[str, Any]:
    """What makes scores comparable; an equal request goes on where one was interrupted."""
    wanted, changes = RULES[job.decision.rule], job.profile.changes
    return {
        "windows": "+".join(request.key() for request in job.requests),
        "weights": weights_digest(job.model),
        "profile": str(job.profile),
        "batch_size": job.batch_size,
        "positions": [wanted.k, wanted.text_only],
        **({"decision": job.decision.to_dict()} if changes.recheck or changes.refine else {}),
    }


def output_folder(job: Job) -> Path:
    """The folder of a run: that of the job, or one named by all that its results depend on."""
    return _named(job, _asked(job))


def _named(job: Job, asked: dict[str, Any]) -> Path:
    text = orjson.dumps([asked, job.decision.to_dict()], option=orjson.OPT_SORT_KEYS)
    return job.output or job.root / f"{job.profile}-{hashlib.sha256(text).hexdigest()[:10]}"


def _predict(
    predictor: Predictor,
    job: Job,
    portions: Iterable[Prepared],
    asked: dict[str, Any],
    report: Report,
    on_windows: OnWindows,
) -> Scored:
    """Scores every window, as they are made."""
    from nq.inference import predict

    report.device, report.precision = predictor.engine.device, predictor.engine.precision
    scored = Scored(job, [], report.output / RESULTS)
    waiting = iter(portions)

    def next_portion() -> Prepared | None:
        with report.timed("preprocess_s"):
            return next(waiting, None)

    first = next_portion()  # an engine in 8 bits looks at its windows when it is made

    def shards() -> Iterator[Path]:
        portion = first
        while portion:
            scored.prepared.append(portion)
            report.windows += portion.windows
            yield from portion.shards
            portion = next_portion()

    timing = predict.predict(
        predictor,
        shards(),
        scored.folder,
        asked,
        lambda done: on_windows(done, report.windows),
        **_refined(predictor, job),
    )
    report.time["compile_s"] = timing.compile_s
    report.time["warmup_s"] = timing.warmup_s
    report.time["predict_s"] = timing.steady_s
    report.resumed_windows = timing.resumed_windows
    report.read_windows = timing.read_windows
    report.float32_windows = timing.float32_windows
    report.windows_per_s = timing.windows_per_s
    return scored


def _refined(predictor: Predictor, job: Job) -> dict[str, Any]:
    """How ``predict`` is to score windows under ``refine``: of many pages, for full batches."""
    if not job.profile.changes.refine:
        return {}
    from nq.inference import prune
    from nq.inference.predict import PART_BATCHES

    pages = ByPlace(job)

    def score(rows: Rows, on_windows: Callable[[int], None]) -> Columns:
        asked = pages(rows["example_keys"])
        return prune.scores(predictor, rows, asked, job.decision, on_windows)

    return {"score": score, "part_batches": prune.PARTS_AT_ONCE * PART_BATCHES}
