"""Records a comparison in MLflow."""

import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from nq import storage, tracking
from nq.comparison.page import Comparison
from nq.comparison.verdict import advice
from nq.config import TrackingConfig
from nq.formats import input_files
from nq.report.comparison import cells
from nq.runs.folder import FinishedRun
from nq.runs.measure import BUSY, machine
from nq.runs.profile_choice import COMPARED
from nq.runs.record import DIGITS, logged_model, measured_run, params, quality, run_name


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
    runs, earlier = values["runs"], values["recorded"]
    new = {f"{run['label']}, {run['wall_s']} s" for run in runs} - {*earlier}
    if not new and not tracking.has_given_run():
        return
    (take, reason), now, folder = advice(rows), time.time(), rows.folder
    period, about = (started, now), {tracking.MACHINE: machine()}
    files = next(iter(finished.values())).job.files
    dataset = [*map(input_files.shown, files)], [*map(storage.sha256, files)]
    with measured_run(track, folder.name, "nq.compare", about, period) as whole:
        whole.tags({tracking.DESCRIPTION: reason, "take": take, "output": str(folder.absolute())})
        whole.dataset(*dataset)
        heads, body = cells(rows)
        whole.table(dict(zip(heads, zip(*body, strict=True), strict=True)), "comparison.json")
        whole.artifacts([rows.page, folder / COMPARED])
        about |= {tracking.PARENT: whole.run_id or ""}
        track = replace(track, experiment=whole.experiment)  # a given run may be in another
    if not whole.available:
        return
    for one in (one for one in rows if not one.error):
        rounds = [run for run in runs if run["label"] == one.label and run["round"]]
        period = now - sum(run["wall_s"] for run in rounds), now
        comparable = f"no: {BUSY}" if one.busy else "yes"
        tags = {**about, tracking.SPEED_COMPARABLE: comparable, "parity.against": one.against}
        if one.decision:
            tags["decision"] = one.decision
        last = finished[one.label]
        job, precision = last.job, last.metrics["precision"]
        profile = one.label.removeprefix(f"{one.model} · ")  # with batch and pieces
        title = run_name(profile, one.model or job.model.name, files[0])
        with measured_run(track, title, "nq.compare", tags, period) as recorded:
            recorded.params({**params(job, precision), "rounds": len(rounds)})
            recorded.dataset(*dataset)
            recorded.model(**logged_model(job, precision))
            figures = {  # MLflow's pages begin with the first
                **quality(last.metrics["metrics"]),
                **{f"fitted.{name}": x for name, x in one.fitted.items()},
                tracking.PREDICT_S: one.predict_s,
                tracking.WINDOWS_PER_S: one.windows_per_s,
                "questions_per_s": one.questions_per_s,
                tracking.CHANGED: one.changed,
                tracking.PEAK_MB: one.memory_mb,
                tracking.SIZE_MB: job.model.size_mb,
                tracking.QUESTIONS: last.metrics["examples"],
                "first_start_s": one.first_start_s,
            }
            recorded.metrics({k: round(x, DIGITS) for k, x in figures.items() if x is not None})
            for run, name in product(rounds, ("predict_s", "windows_per_s")):
                recorded.metrics({f"rounds.{name}": round(run[name], DIGITS)}, run["round"])
            recorded.tags(
                {tracking.DESCRIPTION: f"One of {len(rows)} rows of a comparison. {reason}"}
            )
        if not recorded.available:
            return
    storage.write_json(folder / COMPARED, {**values, "recorded": [*earlier, *sorted(new)]})
