"""The choice behind ``--profile auto``: the fastest profile that keeps the answers.

Each candidate scores the first windows of the job twice; the second time counts. One whose logits
differ from those of ``baseline`` by more than a tolerance is rejected. The choice is stored for
this machine, model, version and window shape, and the next run takes it without a trial.

Neither ``int8`` nor ``prune`` is tried: so few windows do not show what they cost in answers. Name
them, with ``--tolerance``, to measure that.
"""

from __future__ import annotations

import gc
import hashlib
import importlib.metadata
import importlib.util
import logging
import os
import platform
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from nq import __version__, checksums, extras
from nq.errors import DamagedError, Error
from nq.inference.profile import BASELINE, OPENVINO, Profile
from nq.model.folder import weights_digest
from nq.model.runtime import import_tensorflow
from nq.records import Columns
from nq.runs.job import Job
from nq.runs.phases import PhaseTimer
from nq.runs.scoring import model_loader, prepare_first_chunk

log = logging.getLogger(__name__)

TOLERANCE = 0.5
TRIAL_WINDOWS = 64
CANDIDATES = {
    "CPU": (
        "grappler+buckets",
        "grappler+frozen+buckets",
        "mixed+grappler+buckets",
        "mixed+grappler+frozen+buckets",
        "buckets+openvino",
        "mixed+buckets+openvino",
    ),
    "GPU": (
        "grappler+buckets",
        "xla+grappler+buckets",
        "mixed+grappler+buckets",
        "mixed+xla+grappler+buckets",
        "mixed+xla+grappler+frozen+buckets",
    ),
}


@dataclass(frozen=True)
class Trial:
    """The outcome of one candidate.

    Args:
        profile: the candidate.
        windows_per_s: its speed.
        drift: largest difference of a logit from ``baseline``.
        rejected: why it cannot be chosen; empty if it can.
    """

    profile: str
    windows_per_s: float = 0.0
    drift: float = 0.0
    rejected: str = ""

    def __str__(self) -> str:
        if self.rejected:
            return f"{self.profile}: {self.rejected}"
        return f"{self.profile}: {self.windows_per_s:.1f} windows/s, drift {self.drift:.2g}"


def choose_profile(job: Job, tolerance: float = TOLERANCE) -> Profile:
    """Returns the profile for ``job``, whose own profile is ignored, and logs the trials.

    Args:
        job: with files, model and windows.
        tolerance: largest drift of the logits that is accepted.
    """
    import_tensorflow()
    key, cache = _key(job), cache_file()
    known = _read(cache).get(key)
    if known:
        log.info("profile auto: %s, chosen by an earlier trial on this machine", known)
        return Profile.parse(known)
    log.info("profile auto: trying the first %d windows", TRIAL_WINDOWS)
    best = Trial(BASELINE)
    for trial in trials(job, tolerance):
        log.info("  %s", trial)
        if not trial.rejected and trial.windows_per_s > best.windows_per_s:
            best = trial
    log.info("profile auto: %s", best.profile)
    _write(cache, {**_read(cache), key: best.profile})
    return Profile.parse(best.profile)


def trials(job: Job, tolerance: float = TOLERANCE) -> Iterator[Trial]:
    """Yields the trial of baseline and of every candidate on the first windows of ``job``."""
    chunks = prepare_first_chunk(job, PhaseTimer())
    loader = model_loader(job, chunks)
    from nq.inference.engines.tensorflow import device
    from nq.inference.predictor import PART_BATCHES

    with chunks.open_windows(0) as reader:
        rows = reader.some_rows(PART_BATCHES * job.batch_size, TRIAL_WINDOWS)
    expected: Columns = {}
    for name in (BASELINE, *CANDIDATES[device()]):
        missing = Profile.parse(name).missing()
        if missing:
            yield Trial(name, rejected=f"{' and '.join(missing)} not installed")
            continue
        try:
            predictor = loader.predictor(Profile.parse(name))
            columns = predictor.scores(rows)
            started = time.perf_counter()
            predictor.scores(rows)
            seconds = time.perf_counter() - started
        except (Error, ArithmeticError) as error:
            yield Trial(name, rejected=str(error))
            continue
        expected = expected or columns
        yield _trial(name, len(rows["window_ids"]) / seconds, _drift(columns, expected), tolerance)
        del predictor
        gc.collect()  # graphs and their layers reference each other, with all frozen weights


def _trial(name: str, windows_per_s: float, drift: float, tolerance: float) -> Trial:
    rejected = f"drift {drift:.2g}, more than {tolerance}" if drift > tolerance else ""
    return Trial(name, windows_per_s, drift, rejected)


def _drift(columns: Columns, expected: Columns) -> float:
    """Returns the largest difference of a logit; of starts and ends the best ones count."""
    widths = {"start_logit": 1, "end_logit": 1, "cls_logit": 2, "type_logits": 5}
    return max(
        float(np.abs(columns[name][:, :n] - expected[name][:, :n]).max())
        for name, n in widths.items()
    )


def _key(job: Job) -> str:
    """Returns a digest of everything that the choice depends on."""
    installed = {
        name: importlib.metadata.version(name)
        for name in ("keras", *extras.EXTRAS[OPENVINO])
        if importlib.util.find_spec(name)
    }
    depends = [
        __version__,
        installed,
        _machine(),
        weights_digest(job.model),
        job.windows.max_seq_length,
        job.batch_size,
    ]
    return hashlib.sha256(orjson.dumps(depends, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


def _machine() -> list[Any]:
    """Returns host, processor, number of usable cores, and device."""
    from nq.inference.engines.tensorflow import device

    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        processor = next(x for x in lines if x.startswith("model name")).partition(":")[2].strip()
    except (OSError, StopIteration):
        processor = platform.processor()
    return [platform.node(), processor, len(os.sched_getaffinity(0)), device()]


def cache_file() -> Path:
    """Returns the file that has the choices of this user's earlier runs."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "nq" / "profiles.json"


def _read(cache: Path) -> dict[str, str]:
    try:
        return checksums.read_json(cache)
    except (OSError, DamagedError):
        return {}


def _write(cache: Path, choices: dict[str, str]) -> None:
    """Stores the choices; a failure costs no more than another trial next time."""
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        checksums.write_json(cache, choices)
    except OSError as error:
        log.debug("the choice of a profile cannot be stored: %s", error)
