"""Records a run in MLflow: the params, metrics, tags and files that a comparison needs."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nq import tracking
from nq.config import TrackingConfig
from nq.formats.input_files import shown
from nq.inference.profile import ENGINE_EXTRAS, ONNX, TENSORFLOW
from nq.mlflow_format import save_model
from nq.runs.folder import JOB, RunFolder
from nq.runs.job import Job
from nq.runs.measure import MIB
from nq.runs.result import Result
from nq.text import counted

QUALITY = {"long_f1": "long-answer-f1", "short_f1": "short-answer-f1"}
TEXT_QUALITY = {
    **{"exact_match": "squad_exact_match", "squad_f1": "squad_f1"},
    **{name: name for name in ("retrieval_all", "retrieved_exact_match")},
}
"""Of data whose gold answers are text."""
OPTIONAL = ("reader_s", "rescore_s")
"""Seconds that are recorded only if there are any."""
DIGITS = 4


@contextlib.contextmanager
def measured_run(
    track: TrackingConfig,
    name: str,
    source: str,
    tags: Mapping[str, str],
    period: tuple[float, float],
) -> Iterator[tracking.Run]:
    """Records a block as one of several MLflow runs that a command measured together.

    ``source`` is the command, ``period`` when it began and ended, in seconds since 1970.
    """
    with tracking.Run(track, name, source) as run:
        run.open(started=period[0])
        run.ended = period[1]
        run.tags(tags)
        yield run


def record(tracked: tracking.Run, job: Job, folder: RunFolder, result: Result) -> None:
    """Records the params, metrics, tags and files of a run.

    MLflow's pages show every metric, so that only those to compare are metrics, no figure under two
    names, and ``metrics.json`` has the others, with all scores of the official evaluation.
    """
    model = job.model
    precision = result.totals.precision
    names = list(map(shown, job.files))
    data = f"{counted(result.examples, 'question')} of `{Path(names[0]).name}`"
    beam = result.beam or {}
    optional_tags = {f"beam.{name}": beam.get(name) for name in ("job_name", "job_id")}
    tags = {
        tracking.DESCRIPTION: f"`{model.name}` answers {data} under the profile `{job.profile}`.",
        "device": result.totals.device,
        "data": ", ".join(names),
        "model_folder": str(model.folder),
        "output": str(result.folder),
        tracking.MACHINE: result.measured.machine,
        tracking.SPEED_COMPARABLE: result.speed_comparable,
        **{name: value for name, value in optional_tags.items() if value},
    }
    inputs = folder.description["request"]["inputs"]
    values = params(job, precision)
    logged = logged_model(job, precision)
    metrics = {**_metrics(result), tracking.SIZE_MB: round(model.size_mb, DIGITS)}
    tracked.params(values)
    tracked.tags(tags)
    tracked.dataset(names, [one["sha256"] for one in inputs])
    tracked.model(**logged)
    tracked.metrics(metrics)
    tracked.artifacts([*folder.files, folder.path / JOB])


def run_name(profile: str, model: str, data: str) -> str:
    """Returns the name of a run, such as ``mixed+xla · small · dev.jsonl``."""
    return f"{profile} · {model.partition('@')[0]} · {Path(shown(data)).name}"


def params(job: Job, precision: str) -> dict[str, Any]:
    """Returns the params of a run; between profiles only profile and precision differ."""
    model = job.model
    optional = {
        tracking.INSTANCES: job.instances,
        tracking.THREADS: job.compute.threads,
        tracking.RUNNER: job.beam and job.beam.runner,
    }
    decision = {k: v for k, v in model.decision.to_dict().items() if k not in ("weights", "first")}
    return {
        tracking.PROFILE: str(job.profile),
        "precision": precision,
        "batch_size": job.compute.batch_size,
        "limit": job.limit,
        "model": model.name,
        **{name: value for name, value in optional.items() if value is not None},
        **{f"decision.{k}": v for k, v in decision.items()},
        **{f"windows.{k}": v for k, v in model.windows.to_dict().items()},
    }


def quality(scores: Mapping[str, float]) -> dict[str, float]:
    """Returns the metrics of the answers among the scores of the evaluation; none without gold."""
    names = {tracking.MICRO_F1: "micro_f1"} | (TEXT_QUALITY if "squad_f1" in scores else QUALITY)
    return {name: scores[key] for name, key in names.items() if key in scores}


def logged_model(job: Job, precision: str) -> dict[str, Any]:
    """Returns name, params and tags of MLflow's model for a job, as JSON values."""
    model = job.model
    name = model.name
    names = tracking.PROFILE, "precision", "batch_size"
    own = {k: v for k, v in params(job, precision).items() if k in names or k[:8] == "windows."}
    own["engine"] = job.profile.changes.engine
    tags = {"model": name, "weights": "+".join(part.digest for part in model.parts)}
    title = f"{name.partition('@')[0]} · {job.profile}"  # the tag has the revision
    return {"name": title, "params": own, "tags": tags}


def log_model(tracked: tracking.Run, job: Job) -> str | None:
    """Logs the models of a job with their settings; returns their URI, ``None`` if it failed."""

    def save(folder: Path, logged: Any) -> None:
        profile = job.profile
        needed = [*profile.required_extras]
        if profile.changes.engine == ONNX:
            needed.append(ENGINE_EXTRAS[TENSORFLOW])  # which the conversion uses
        copy = job.model.copy(folder.parent / "model")
        save_model(folder, copy, str(job.profile), needed, logged)

    return tracked.log_model(save, str(job.profile).replace("+", "-"))


def _metrics(result: Result) -> dict[str, float]:
    """Returns at most 20 metrics; a comparison and a runner add their own.

    They are rounded, since MLflow's tables show all digits; those in ``metrics.json`` are not.
    """
    values = quality(result.metrics)
    resumed = result.totals.resumed_windows
    for name, seconds in result.measured.time.items():
        if name != "preprocess_s" and (seconds or name not in OPTIONAL):
            values[name if name == tracking.PREDICT_S else f"time.{name}"] = seconds
    values |= {
        tracking.WINDOWS_PER_S: result.windows_per_s,
        "windows": result.totals.windows,
        tracking.QUESTIONS: result.examples,
        tracking.PEAK_MB: result.measured.peak_memory_bytes / MIB,
        **({"resumed_windows": resumed} if resumed else {}),
        **{f"beam.{name}": x for name, x in (result.beam or {}).get("metrics", {}).items()},
    }
    return {name: round(value, DIGITS) for name, value in values.items()}
