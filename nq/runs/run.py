"""The whole line: files of questions -> windows -> scores -> predictions -> metrics.

Stages are plain functions; this module feeds one's output to the next, and times each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

from nq.formats import outputs
from nq.formats.predictions import encode_prediction, write_predictions
from nq.postprocess.decision import RULES, decide, weighed
from nq.preprocess.store import MANIFEST, encode_dead_letter
from nq.records import Example, Prediction, YesNo
from nq.runs.job import DEAD_LETTERS, JOB, METRICS, PREDICTIONS, SCORES, Job, Report, Row
from nq.runs.score_store import clear, move
from nq.runs.scored import OnWindows, Scored, output_folder, score_windows
from nq.runs.scoring import Scorekeeper


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
    folder = output_folder(job)
    kept = not job.keep_scores or (folder / SCORES).is_dir()
    return folder if (folder / JOB).is_file() and kept else run(job, on_windows=on_windows).output


def _answer(job: Job, scored: Scored, report: Report, rows: int) -> None:
    """Decides and scores example by example; writes predictions and dead letters."""
    score = Scorekeeper()
    with_bytes = RULES[job.decision.rule].with_bytes

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


def _write_dead_letters(scored: Scored, output: Path) -> int:
    files = [portion.dead_letter_file for portion in scored.prepared]
    lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    lines += map(encode_dead_letter, scored.duplicates)
    (output / DEAD_LETTERS).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return len(lines)


def _write_job(job: Job, scored: Scored, output: Path) -> None:
    """What the run was asked for, with the digests of what it read; marks it as finished."""
    manifests = [orjson.loads((p.folder / MANIFEST).read_bytes()) for p in scored.prepared]
    requests = [manifest["request"] for manifest in manifests]
    inputs = [one for request in requests for one in request["inputs"]]
    asked = {"job": job.to_dict(), "request": {**requests[0], "inputs": inputs}}
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
