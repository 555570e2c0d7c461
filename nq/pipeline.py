"""The whole line: files of questions -> windows -> scores -> predictions -> metrics.

Stages are plain functions; this module feeds one's output to the next, times each, and
keeps memory flat: nothing here holds more than one page.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import orjson

from nq.config import DecisionConfig, WindowConfig
from nq.formats import inputs, outputs
from nq.formats.predictions import encode_prediction, write_predictions
from nq.formats.results import AGAIN, Results, alone, clear, move, write_part
from nq.model import checkpoint
from nq.model.profile import Profile
from nq.model.runtime import import_tensorflow
from nq.postprocess.decision import DECISIONS, decide, weighed
from nq.preprocess.ahead import ahead
from nq.preprocess.job import Prepared, Request, encode_dead_letter, prepare
from nq.preprocess.prepared import MANIFEST
from nq.preprocess.vocabulary import load_tokenizer
from nq.records import DeadLetter, Example, ExampleId, Prediction, Source, WindowScores, YesNo
from nq.scoring import Scorekeeper

if TYPE_CHECKING:
    from nq.model.loading import Loader
    from nq.model.predictor import Predictor
    from nq.recheck import Recheck

PREDICTIONS, METRICS, DEAD_LETTERS = "predictions.json", "metrics.json", "dead_letters.jsonl"
JOB, RESULTS, SCORES = "job.json", "results", "scores"

OnWindows = Callable[[int, int], None]
"""Told how many windows were scored just now, and how many there are."""


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

    @property
    def request(self) -> Request:
        """What preprocessing is asked for."""
        return Request(self.files, str(self.model), self.windows, self.limit)

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


def run(
    job: Job,
    rows: int = 0,
    on_windows: OnWindows = lambda done, total: None,
    run_id: Callable[[], str | None] = lambda: None,
    on_loaded: Callable[[], None] = lambda: None,
) -> Report:
    """Answers, scores and writes everything into the run's folder.

    Args:
        job: what is asked.
        rows: how many rows of the readable table to keep.
        on_windows: told how many windows were scored just now, and how many there are.
        run_id: of the tracked run, kept with the metrics; asked for at the end.
        on_loaded: told when the model is loaded, after which Python has little to do.
    """
    started = time.perf_counter()
    report = Report(str(job.profile), Path())
    with score_windows(job, report, on_windows, on_loaded) as scored:
        (report.output / JOB).unlink(missing_ok=True)
        _answer(job, scored, report, rows)
        clear(report.output / SCORES)
        if job.keep_scores:
            move(scored.folder, report.output / SCORES)
        scored.clear()  # only an interrupted run is gone on with
        report.time["total_s"] = time.perf_counter() - started
        report.run_id = run_id()
        text = orjson.dumps(report.to_dict(), option=orjson.OPT_INDENT_2)
        (report.output / METRICS).write_bytes(text + b"\n")
        _write_job(job, scored, report.output)
    return report


def run_once(job: Job, on_windows: OnWindows = lambda done, total: None) -> Path:
    """The folder of a run of ``job``, which is only made if there is none.

    Args:
        job: without ``output``, so that its folder is named by all that its results depend on.
        on_windows: as for ``run``.
    """
    key = job.request.key()
    folder = job.root / _run_name(job, _asked(job, key))
    kept = not job.keep_scores or (folder / SCORES).is_dir()
    return folder if (folder / JOB).is_file() and kept else run(job, on_windows=on_windows).output


@dataclass(frozen=True)
class Scored:
    """The scores of a job's windows, on disk; iterating yields each example with its own.

    Args:
        job: what was asked.
        prepared: the windows.
        folder: of the scores.
        duplicates: filled while iterating: records whose ``example_id`` was there before.
    """

    job: Job
    prepared: Prepared
    folder: Path
    duplicates: list[DeadLetter] = field(default_factory=list)

    def __iter__(self) -> Iterator[tuple[Example, WindowScores]]:
        self.duplicates.clear()
        results = Results(self.folder, self.prepared.shards)
        for source, example in _unique(_examples(self.job), self.duplicates):
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
    key = job.request.key()
    asked = _asked(job, key)
    report.output = job.output or job.root / _run_name(job, asked)
    with alone(report.output):
        yield _score(job, key, asked, report, on_windows, on_loaded)


def _score(
    job: Job,
    key: str,
    asked: dict[str, Any],
    report: Report,
    on_windows: OnWindows,
    on_loaded: Callable[[], None],
) -> Scored:
    check = None
    with ahead(job.request, _windows_folder(job, key), job.workers) as prepare_windows:
        with report.timed("load_s"):
            made = loader(job)
            if job.profile.changes.recheck:
                from nq.recheck import Recheck

                check = Recheck(made, job.profile, job.decision)
            predictor = made.predictor(job.profile)
        on_loaded()
        with report.timed("preprocess_s"):
            prepared = prepare_windows()
    report.windows = prepared.windows
    scored = Scored(job, prepared, _predict(predictor, asked, prepared, report, on_windows))
    if check:
        with report.timed("recheck_s"):
            report.rechecked = _recheck(scored, check)
    return scored


def _recheck(scored: Scored, check: Recheck) -> int:
    """Computes close calls again, beside their first scores; how many there were.

    An interrupted run has kept those that it did.
    """
    results = Results(scored.folder, scored.prepared.shards)
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
    """The windows of a job, made now if they are not there."""
    return prepare(job.request, _windows_folder(job, job.request.key()), job.workers)


def _windows_folder(job: Job, key: str) -> Path:
    return (job.output or job.root) / f"windows-{key}"


def weights_digest(model: Path) -> str:
    """Changes with the weights in a model folder."""
    return "+".join(inputs.digest(str(path)) for path in checkpoint.weight_files(model))


def loader(job: Job) -> Loader:
    """Makes predictors of a job's model, under any profile."""
    import_tensorflow()
    from nq.model.batches import Shape
    from nq.model.loading import Loader
    from nq.model.predict import some_windows

    shape = Shape(job.batch_size, job.windows.max_seq_length)
    return Loader(
        job.model,
        load_tokenizer(job.model, job.windows.compat),
        job.windows,
        job.decision.rule,
        job.batch_size,
        lambda: some_windows(prepared_windows(job).shards, shape),
    )


def _asked(job: Job, windows_key: str) -> dict[str, Any]:
    """What makes scores comparable; an equal request goes on where one was interrupted."""
    wanted = DECISIONS[job.decision.rule]
    return {
        "windows": windows_key,
        "weights": weights_digest(job.model),
        "profile": str(job.profile),
        "batch_size": job.batch_size,
        "positions": [wanted.k, wanted.text_only],
        **({"decision": job.decision.to_dict()} if job.profile.changes.recheck else {}),
    }


def _run_name(job: Job, asked: dict[str, Any]) -> str:
    text = orjson.dumps([asked, job.decision.to_dict()], option=orjson.OPT_SORT_KEYS)
    return f"{job.profile}-{hashlib.sha256(text).hexdigest()[:10]}"


def _predict(
    predictor: Predictor,
    asked: dict[str, Any],
    prepared: Prepared,
    report: Report,
    on_windows: OnWindows,
) -> Path:
    """Scores every window; the folder of the results."""
    from nq.model import predict

    report.device, report.precision = predictor.engine.device, predictor.engine.precision
    folder = report.output / RESULTS
    timing = predict.predict(
        predictor, prepared.shards, folder, asked, lambda done: on_windows(done, prepared.windows)
    )
    report.time["compile_s"] = timing.compile_s
    report.time["warmup_s"] = timing.warmup_s
    report.time["predict_s"] = timing.steady_s
    report.resumed_windows = timing.resumed_windows
    report.read_windows = timing.read_windows
    report.float32_windows = timing.float32_windows
    report.windows_per_s = timing.windows_per_s
    return folder


def _answer(job: Job, scored: Scored, report: Report, rows: int) -> None:
    """Decides and scores example by example; writes predictions and dead letters."""
    score = Scorekeeper()
    with_bytes = DECISIONS[job.decision.rule].with_bytes

    def encoded(write_others: outputs.Write) -> Iterator[dict[str, Any]]:
        for example, scores in scored:
            prediction = decide(example, scores, job.decision)
            record = encode_prediction(prediction, example.token_bytes if with_bytes else None)
            right = score.add(example, record)
            write_others(example, prediction, weighed(example, scores, job.decision))
            report.examples += 1
            report.answered += prediction.answered
            if len(report.rows) < rows:
                report.rows.append(Row(example.question, answer_text(example, prediction), right))
            yield record

    with report.timed("postprocess_s"):
        with outputs.write(report.output, job.formats) as others:
            write_predictions(report.output / PREDICTIONS, encoded(others))
        report.dead_letters = _write_dead_letters(scored, report.output)
        report.without_gold = score.without_gold
    with report.timed("score_s"):
        report.metrics = score.metrics()


def _examples(job: Job) -> Iterator[tuple[Source, Example]]:
    """The good records of the input, in order; the bad ones are dead letters already."""
    left = job.limit
    for index, path in enumerate(job.files):
        for source, item in inputs.read_examples(path, index, limit=left):
            if left is not None:
                left -= 1
            if isinstance(item, Example):
                yield source, item


def answered_examples(job: Job) -> Iterator[tuple[Source, Example]]:
    """The examples that a run of ``job`` answers, each once, in order."""
    return _unique(_examples(job), [])


def _unique(
    examples: Iterator[tuple[Source, Example]], duplicates: list[DeadLetter]
) -> Iterator[tuple[Source, Example]]:
    """The first example of every id; later ones become dead letters."""
    seen: set[ExampleId] = set()
    for source, example in examples:
        if example.example_id in seen:
            reason = f"example_id {example.example_id} was there before"
            duplicates.append(DeadLetter(source, reason, example.question))
        else:
            seen.add(example.example_id)
            yield source, example


def _write_dead_letters(scored: Scored, output: Path) -> int:
    lines = scored.prepared.dead_letter_file.read_text(encoding="utf-8").splitlines()
    lines += map(encode_dead_letter, scored.duplicates)
    (output / DEAD_LETTERS).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return len(lines)


def _write_job(job: Job, scored: Scored, output: Path) -> None:
    """What the run was asked for, with the digests of what it read; marks it as finished."""
    manifest = orjson.loads((scored.prepared.folder / MANIFEST).read_bytes())
    asked = {"job": job.to_dict(), "request": manifest["request"]}
    (output / JOB).write_bytes(orjson.dumps(asked, option=orjson.OPT_INDENT_2) + b"\n")


def answer_text(example: Example, prediction: Prediction) -> str:
    """The answer as a person reads it: YES or NO, the short answers, the long one, or none."""
    if prediction.yes_no is not YesNo.NONE:
        return str(prediction.yes_no)
    if prediction.shorts:
        return "; ".join(example.text(span) for span in prediction.shorts)
    if prediction.long:
        return example.text(prediction.long)
    return ""
