"""The finished run, of any model, that a run is compared with, and where the outcome is kept."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

import orjson

from nq import storage
from nq.errors import Error
from nq.formats import input_files
from nq.formats.input_files import shown
from nq.runs.finished import read_folder
from nq.runs.job import Job
from nq.runs.parity import Parity
from nq.runs.result import JOB, METRICS, write_metrics

MICRO_F1 = "micro_f1"


def check_other(job: Job, digests: Mapping[str, str] | None = None) -> None:
    """Checks, before anything is computed, that a job can be compared with the run in a folder.

    A run under another profile is not checked, since it has the data of the job.

    Args:
        job: whose input files are found.
        digests: the SHA-256 of its files, where it is known; computed by default.
    """
    if not isinstance(job.against, Path):
        return
    other = read_folder(job.against)
    folder = other.folder
    if job.output is not None and job.output.resolve() == folder.resolve():
        raise Error(f"{folder} is the run to compare with: give another --output")
    mine = [(digests or {}).get(path) or input_files.sha256(path) for path in job.files]
    if mine != list(other.digests):
        raise Error(
            f"{folder} answered other data than {', '.join(map(shown, job.files))}: give the data "
            "of that run, or compare with a run of these"
        )
    limits = [run.limit or math.inf for run in (job, other.job)]
    if limits[0] != limits[1] and min(limits) <= len(other.predictions):
        theirs, ours = (
            f"--limit {run.limit}" if run.limit else "no --limit" for run in (other.job, job)
        )
        raise Error(
            f"{folder} answered {len(other.predictions)} questions under {theirs}, this run is "
            f"under {ours}: give both the same limit"
        )
    if job.max_loss is not None and MICRO_F1 not in other.metrics["metrics"]:
        raise Error(f"{folder} has no micro-F1, since its data have no annotations")


def write_parity(folder: Path, parity: Parity, sources: Iterable[str | Path]) -> None:
    """Adds a comparison to the ``metrics.json`` of a finished run.

    The digest of that file leaves ``job.json`` before and returns after it, so that the run is
    whole at every moment.

    Args:
        folder: of the run.
        parity: the comparison.
        sources: the files and folders that the run read.
    """
    with storage.hold(folder, storage.RUN, sources):
        description = storage.read_json(folder / JOB)
        digests = description["files"]
        others = {name: digest for name, digest in digests.items() if name != METRICS}
        storage.write_json(folder / JOB, {**description, "files": others})
        values = orjson.loads((folder / METRICS).read_bytes())
        write_metrics(folder, {**values, "parity": parity.to_dict()})
        digests = {**digests, METRICS: input_files.sha256(folder / METRICS)}
        storage.write_json(folder / JOB, {**description, "files": digests})
