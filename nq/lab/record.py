"""Records comparisons and reports in MLflow."""

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from nq import storage, tracking
from nq.config import TrackingConfig
from nq.formats.input_files import shown
from nq.lab.choose import COMPARED
from nq.lab.page import Comparison
from nq.lab.rows import Row, cells
from nq.lab.run_page import write_report
from nq.runs.folder import FinishedRun
from nq.runs.job import Job
from nq.runs.measure import BUSY, machine
from nq.runs.record import DIGITS, logged_model, measured_run, params, quality, run_name
from nq.runs.result import Result

log = logging.getLogger(__name__)


def record_report(tracked: tracking.Run, job: Job, result: Result) -> None:
    """Writes the report of a run with gold and records it.

    With a runner of Beam this process would have to read all pages, as ``nq report`` does.
    """
    if not result.metrics or job.beam is not None:
        return
    try:
        report = write_report(result.folder, files=list(job.files))  # copies of pipes, too
    except Exception as error:  # the run is complete, and its results do not depend on the report
        log.warning("the report was not written: %s: %s", type(error).__name__, error)
    else:
        tracked.artifacts([report.page])


def record_difference(tracked: tracking.Run, difference: Comparison) -> None:
    """Records how the answers of two runs differ, in the run of the first one."""
    row, other = difference
    tracked.tags({"parity.against": other.label})
    figures = {tracking.CHANGED: row.changed, "max_drift": row.max_drift}
    tracked.metrics({name: x for name, x in figures.items() if x is not None})
    if gate := difference.gate:
        if gate.verdict:
            tracked.tags({"gate.verdict": gate.verdict, "gate.max_loss": gate.max_loss})
        ends = {"gate.loss_low": gate.low, "gate.loss_high": gate.high}
        tracked.metrics({"gate.relative_loss": gate.loss, **ends})


def record(
    track: TrackingConfig,
    rows: Comparison,
    values: Mapping[str, Any],
    finished: Mapping[str, FinishedRun],
    started: float,
) -> None:
    """Records one run and one model for each row, below a run of the whole comparison.

    A comparison that measured nothing new is not recorded again, unless in a run that is given.
    What each round has measured is a step of a metric of its own, so that all others have one
    value, by which MLflow compares the models. The run of the comparison has the table and the
    page. The first failure, which is logged, ends the recording; without one, the file with the
    ``values`` of the comparison tells which runs are recorded.
    """
    runs = values["runs"]
    earlier = values["recorded"]
    new = {f"{run['label']}, {run['wall_s']} s" for run in runs} - {*earlier}
    if not new and not tracking.has_given_run():
        return
    now = time.time()
    folder = rows.folder
    first = next(iter(finished.values()))
    files = list(map(shown, first.job.files))
    dataset = files, [file["sha256"] for file in first.read["inputs"]]
    about = {tracking.MACHINE: machine()}
    with measured_run(track, folder.name, "nq.compare", about, (started, now)) as whole:
        whole.tags(
            {
                tracking.DESCRIPTION: rows.reason,
                "take": rows.take,
                "output": str(folder.absolute()),
            }
        )
        whole.dataset(*dataset)
        heads, body = cells(rows)
        columns = zip(*body, strict=True)
        whole.table(dict(zip(heads, columns, strict=True)), "comparison.json")
        whole.artifacts([rows.page, folder / COMPARED])
        about[tracking.PARENT] = whole.run_id or ""
        track = replace(track, experiment=whole.experiment)  # a given run may be in another
    if not whole.available:
        return
    for one in (one for one in rows if not one.error):
        rounds = [run for run in runs if run["label"] == one.label and run["round"]]
        last = finished[one.label]
        job = last.job
        precision = last.metrics["precision"]
        tags = {
            **about,
            tracking.SPEED_COMPARABLE: f"no: {BUSY}" if one.busy else "yes",
            "parity.against": one.against,
        }
        if one.decision:
            tags["decision"] = one.decision
        profile = one.label.removeprefix(f"{one.model} · ")  # with batch and pieces
        title = run_name(profile, one.model or job.model.name, files[0])
        period = now - sum(run["wall_s"] for run in rounds), now
        with measured_run(track, title, "nq.compare", tags, period) as recorded:
            recorded.params({**params(job, precision), "rounds": len(rounds)})
            recorded.dataset(*dataset)
            recorded.model(**logged_model(job, precision))
            recorded.metrics(_figures(one, last))
            for run, name in product(rounds, ("predict_s", "windows_per_s")):
                recorded.metrics({f"rounds.{name}": round(run[name], DIGITS)}, run["round"])
            text = f"One of {len(rows)} rows of a comparison. {rows.reason}"
            recorded.tags({tracking.DESCRIPTION: text})
        if not recorded.available:
            return
    storage.write_json(folder / COMPARED, {**values, "recorded": [*earlier, *sorted(new)]})


def _figures(one: Row, last: FinishedRun) -> dict[str, float]:
    """Returns the metrics of a row and its last run; MLflow's pages begin with the first."""
    figures = {
        **quality(last.metrics["metrics"]),
        **{f"fitted.{name}": x for name, x in one.fitted.items()},
        tracking.PREDICT_S: one.predict_s,
        tracking.WINDOWS_PER_S: one.windows_per_s,
        "questions_per_s": one.questions_per_s,
        tracking.CHANGED: one.changed,
        tracking.PEAK_MB: one.memory_mb,
        tracking.SIZE_MB: last.job.model.size_mb,
        tracking.QUESTIONS: last.metrics["examples"],
        "first_start_s": one.first_start_s,
    }
    return {name: round(x, DIGITS) for name, x in figures.items() if x is not None}
