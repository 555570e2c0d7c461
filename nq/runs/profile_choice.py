"""``--profile auto``: the fastest of the sensible profiles that keeps to the answers.

Each candidate scores the first windows of the job, twice; what counts is the second time. One
whose logits drift further from ``baseline`` than ``TOLERANCE`` is out. The choice is kept for
machine, model, version and shape of the windows, and taken without a trial the next time.

Neither ``int8`` nor ``refine`` is tried: what they cost in answers does not show on so few
windows. Name them, with ``--tolerance``, to know.
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

from nq import __version__
from nq.errors import Error
from nq.inference.profile import OPENVINO, PACKAGES, Profile
from nq.model.runtime import import_tensorflow
from nq.runs.job import Job
from nq.runs.scored import loader, prepared_windows, weights_digest

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
    """What became of one candidate; ``drift`` is the largest difference of a logit."""

    profile: str
    windows_per_s: float = 0.0
    drift: float = 0.0
    why_not: str = ""

    def __str__(self) -> str:
        if self.why_not:
            return f"{self.profile}: {self.why_not}"
        return f"{self.profile}: {self.windows_per_s:.1f} windows/s, drift {self.drift:.2g}"


def choose(job: Job) -> Profile:
    """The profile for ``job``, whose own profile does not matter; says what it saw."""
    import_tensorflow()
    key, cache = _key(job), _cache()
    known = _read(cache).get(key)
    if known:
        log.info("profile auto: %s, as found before on this machine", known)
        return Profile.parse(known)
    log.info("profile auto: trying the first %d windows", TRIAL_WINDOWS)
    best = Trial("baseline")
    for trial in trials(job):
        log.info("  %s", trial)
        if not trial.why_not and trial.windows_per_s > best.windows_per_s:
            best = trial
    log.info("profile auto: %s", best.profile)
    _write(cache, {**_read(cache), key: best.profile})
    return Profile.parse(best.profile)


def trials(job: Job) -> Iterator[Trial]:
    """Baseline and every candidate on the first windows of ``job``, one after the other."""
    made = loader(job)
    from nq.inference import predict
    from nq.inference.batches import Shape
    from nq.inference.engines.tensorflow import device

    prepared = prepared_windows(job)
    shape = Shape(job.batch_size, job.windows.max_seq_length)
    rows = predict.some_windows(prepared.shards, shape, TRIAL_WINDOWS)
    expected: dict[str, Any] = {}
    for name in ("baseline", *CANDIDATES[device()]):
        missing = Profile.parse(name).missing()
        if missing:
            yield Trial(name, why_not=f"{' and '.join(missing)} not installed")
            continue
        try:
            predictor = made.predictor(Profile.parse(name))
            with predictor.ready():
                found = predictor.scores(rows)
                started = time.perf_counter()
                predictor.scores(rows)
                spent = time.perf_counter() - started
        except (Error, ArithmeticError) as error:
            yield Trial(name, why_not=str(error))
            continue
        expected = expected or found
        yield _judged(name, len(rows["window_ids"]) / spent, found, expected)
        del predictor
        gc.collect()  # graphs and their layers hold each other; with frozen weights that is a lot


def _judged(name: str, speed: float, found: dict[str, Any], expected: dict[str, Any]) -> Trial:
    """Whether what a candidate found is near enough; of starts and ends the best are compared."""
    widths = {"start_logit": 1, "end_logit": 1, "cls_logit": 2, "type_logits": 5}
    drift = max(
        float(np.abs(found[name][:, :n] - expected[name][:, :n]).max())
        for name, n in widths.items()
    )
    why_not = f"drift {drift:.2g}, more than {TOLERANCE}" if drift > TOLERANCE else ""
    return Trial(name, speed, drift, why_not)


def _key(job: Job) -> str:
    """Changes with all that the choice depends on."""
    installed = {
        name: importlib.metadata.version(name)
        for name in ("keras", *PACKAGES[OPENVINO])
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
    """Processor, cores that may be used, and what computes."""
    from nq.inference.engines.tensorflow import device

    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        processor = next(x for x in lines if x.startswith("model name")).partition(":")[2].strip()
    except (OSError, StopIteration):
        processor = platform.processor()
    return [platform.node(), processor, len(os.sched_getaffinity(0)), device()]


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "nq" / "profiles.json"


def _read(cache: Path) -> dict[str, str]:
    try:
        found = orjson.loads(cache.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _write(cache: Path, choices: dict[str, str]) -> None:
    """Keeps the choices; a cache that cannot be written costs a trial next time, no more."""
    temporary = cache.with_suffix(f".{os.getpid()}.tmp")
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(orjson.dumps(choices, option=orjson.OPT_INDENT_2))
        temporary.replace(cache)
    except OSError as error:
        log.debug("the choice of a profile is not kept: %s", error)
