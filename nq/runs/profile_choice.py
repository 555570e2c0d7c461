"""The choice behind ``--profile auto``: the fastest profile that keeps the answers.

1. The first candidate, then ``baseline`` and the other candidates score the first windows of the
   job. One whose logits differ from those of ``baseline`` by more than ``TOLERANCE`` is rejected,
   the fastest of the others is chosen.
2. It answers whole pages of the job, with and without ``prune``. Pruning is added if it is faster
   and changes no answer.

Trials take at most ``SHARE`` of the time that the job is expected to take under the fastest profile
so far: the next one starts only if twice the time of the slowest so far is left. A job too short
for any takes the choice of an earlier one, or ``default_choice``. A choice is kept for this
machine, model, versions and window shape, for whole pages and for shorter texts. One that was made
while other programs used the machine is replaced by the next trial on a quiet one. ``int8`` is
never tried: ``nq compare`` shows what it costs in answers.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import importlib.metadata
import logging
import os
import platform
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from nq import __version__, processor, storage
from nq.errors import DamagedError, Error
from nq.inference.load import ScorerSpec, load_predictor, load_scorer
from nq.inference.profile import BASELINE, Profile
from nq.inference.scorer import PART_BATCHES, score_examples
from nq.model.folder import weights_digest
from nq.model.runtime import import_tensorflow
from nq.postprocess.decision import RULES, check_rule, decide
from nq.records import Columns, Example
from nq.runs.job import Job
from nq.runs.measure import Clock, machine
from nq.runs.parity import compared_logits
from nq.runs.scoring import prepare_first_chunk, read_request

log = logging.getLogger(__name__)

TOLERANCE = 0.5
SHARE = 0.2
TRIAL_WINDOWS = 64
MIN_WINDOWS = 20 * TRIAL_WINDOWS
"""Of a smaller job, two candidates that score the first windows twice take more than ``SHARE``."""
PAGE_WINDOWS = 20
"""Mean number of windows for each question, from which on a job is one of whole pages."""
WARM_UP_PAGES, MIN_PAGES, MAX_PAGES = 2, 5, 20
PRUNING_GAIN = 1.1
BUSY_SHARE = 0.5
"""Load of the machine for each of its cores, from which on a choice is replaced by a later one."""
CANDIDATES = {
    "CPU": (
        "mixed+buckets+openvino",
        "buckets+openvino",
        "mixed+grappler+frozen+buckets",
        "grappler+frozen+buckets",
        "mixed+grappler+buckets",
        "grappler+buckets",
    ),
    "GPU": (
        "mixed+xla+grappler+buckets",
        "mixed+xla+grappler+frozen+buckets",
        "mixed+grappler+buckets",
        "xla+grappler+buckets",
        "grappler+buckets",
    ),
}
"""By device, those that are mostly the fastest first."""
DISTRIBUTIONS = (
    *("keras", "numpy", "tensorflow", "tensorflow-cpu"),
    *("openvino", "nncf", "onnx", "onnxruntime", "tf2onnx"),
)
"""Distributions with whose versions the speed may change, as far as they are installed."""


@dataclass(frozen=True)
class Choice:
    """A profile that trials have chosen, and whether the machine was quiet meanwhile."""

    profile: str
    is_quiet: bool = True


def choose_profile(job: Job, clock: Clock, cache: bool = True) -> tuple[str, bool]:
    """Returns the profile for ``job``, and whether profiles had to be tried, which is logged.

    The profile of the job is ignored. With ``cache`` the choice of an earlier run is taken, and
    this one kept.
    """
    import_tensorflow(job.compute.threads)
    from nq.inference.engines.tensorflow import device

    trials = Trials(job, clock)
    key = choice_key(job, device(), trials.has_pages)
    earlier = read_choice(key) if cache else None
    load, n_cores = os.getloadavg()[0], os.cpu_count() or 1
    is_quiet = load <= BUSY_SHARE * n_cores
    where = f"chosen by an earlier trial (kept in {cache_file()}; --no-cache tries again)"
    if earlier and (earlier.is_quiet or not is_quiet):
        log.info("profile auto: %s, %s", earlier.profile, where)
        return earlier.profile, False
    first = earlier.profile if earlier else default_choice(device(), trials.may_prune)
    if trials.windows < MIN_WINDOWS:
        why = where if earlier else "the default for this machine"
        log.info(
            "profile auto: %s, %s: %d windows are too few for trials, which need %d",
            *(first, why, trials.windows, MIN_WINDOWS),
        )
        return first, False
    profile = trials.choose(str(Profile(Profile.parse(first).names - {"prune"})))
    log.info("profile auto: %s", profile)
    if cache and write_choice(key, Choice(profile, is_quiet)):
        until = "" if is_quiet else f", until one with a load below that of now, {load:.1f}"
        log.info("the choice is kept for later runs in %s%s", cache_file(), until)
    return profile, True


def default_choice(device: str, prune: bool = False) -> str:
    """Returns the profile for jobs too short for trials: the first candidate that is fast here.

    On a CPU without fast bfloat16 that is one without ``mixed``. ``prune`` is added on request.
    """
    has_mixed = device != "CPU" or processor.has_fast_bfloat16()
    named = map(Profile.parse, CANDIDATES[device])
    usable = (one for one in named if not one.missing() and (has_mixed or not one.changes.mixed))
    return str(_pruned(next(usable)) if prune else next(usable))


def _pruned(profile: Profile) -> Profile:
    return Profile(profile.names | {"prune"})


# --- choices of earlier runs --------------------------------------------------------------------


def cache_file() -> Path:
    """Returns the file that has the choices of this user's earlier runs."""
    home: str | Path = os.devnull  # keeps nothing of a user without a home folder
    with contextlib.suppress(RuntimeError):
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "nq" / "profiles.json"


def choice_key(job: Job, device: str, has_pages: bool) -> str:
    """Returns a digest of everything that a choice depends on; of the data, if it is pages."""
    depends = [
        __version__,
        versions(),
        [platform.node(), machine(), device],
        [weights_digest(model.folder) for model in job.model.models],
        job.model.windows.max_seq_length,
        job.compute.batch_size,
        job.model.decision.rule,
        [job.instances, job.compute.threads],
        has_pages,
    ]
    return hashlib.sha256(orjson.dumps(depends, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


def versions() -> dict[str, str]:
    """Returns the versions of the installed distributions with which the speed may change."""
    installed = {d.name.lower(): d.version for d in importlib.metadata.distributions() if d.name}
    return {name: installed[name] for name in DISTRIBUTIONS if name in installed}


def read_choice(key: str) -> Choice | None:
    """Returns the choice under a key; ``None`` if there is none, or the file is damaged."""
    try:
        return Choice(**storage.read_json(cache_file())[key])
    except (OSError, DamagedError, LookupError, TypeError):
        return None


def write_choice(key: str, choice: Choice) -> bool:
    """Keeps a choice; returns whether it could be written, else the next run tries again."""
    file = cache_file()
    try:
        others = storage.read_json(file)
    except (OSError, DamagedError):
        others = {}
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        storage.write_json(file, {**others, key: asdict(choice)})
    except OSError as error:
        log.debug("the choice of a profile cannot be stored: %s", error)
        return False
    return True


# --- trials -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trial:
    """The logits and the speed of a profile on the first windows, with the time that it took."""

    columns: Columns
    windows_per_s: float
    cost_s: float


class Trials:
    """Tries profiles on a job.

    Args:
        windows: those that the job is expected to have in all.
        has_pages: whether its questions are about whole pages.
        may_prune: whether they are, and its decision has the margin that ``prune`` needs.
    """

    def __init__(self, job: Job, clock: Clock) -> None:
        self._job = job
        self._chunks = prepare_first_chunk(job, clock)
        chunk = self._chunks[0]
        self.windows = chunk.windows * len(job.requests())
        self.has_pages = chunk.windows >= PAGE_WINDOWS * max(1, chunk.examples)
        self.may_prune = self.has_pages and RULES[job.model.decision.rule].ranks
        compute = job.compute
        self._spec = ScorerSpec(job.model, Profile(), compute.batch_size, compute.threads)
        with self._chunks.open_windows(0) as reader:
            self._rows = reader.some_rows(PART_BATCHES * compute.batch_size, TRIAL_WINDOWS)
        self._trials: dict[str, Trial] = {}
        self._started = time.perf_counter()

    def choose(self, first: str) -> str:
        """Returns the fastest profile that keeps the answers, of those that there is time to try.

        Where there is time for no other, it is ``first``.
        """
        from nq.inference.engines.tensorflow import device

        for name in dict.fromkeys((first, BASELINE, *CANDIDATES[device()])):
            costs = [trial.cost_s for trial in self._trials.values()]
            if costs and self._left_s() < 2 * max(costs):
                log.info("  no time for %s and those after it", name)
                break
            profile = Profile.parse(name)
            if missing := profile.missing():
                log.info("  %s: %s not installed", name, " and ".join(missing))
                continue
            try:
                trial = self._trials[name] = self._try(profile)
            except (Error, ArithmeticError) as error:
                if name == BASELINE:
                    raise
                log.info("  %s: %s", name, error)
                continue
            log.info("  %s: %.1f windows/s", name, trial.windows_per_s)
            if not costs:
                expected_s = self._expected_s()
                limit_s = SHARE * expected_s
                log.info("  the job may take %.0f s, trials at most %.0f s", expected_s, limit_s)
        best = max(self._exact_enough(), key=lambda name: self._trials[name].windows_per_s)
        return self._with_pruning(best)

    def _expected_s(self) -> float:
        """Returns the time of the job under the fastest profile so far."""
        return self.windows / max(trial.windows_per_s for trial in self._trials.values())

    def _left_s(self) -> float:
        return SHARE * self._expected_s() - (time.perf_counter() - self._started)

    def _try(self, profile: Profile) -> Trial:
        """Scores the first windows twice: with compilation, then for the speed."""
        started = time.perf_counter()
        predictor = load_predictor(replace(self._spec, profile=profile))
        columns = predictor.scores(self._rows)
        compiled = time.perf_counter()
        predictor.scores(self._rows)
        ended = time.perf_counter()
        del predictor
        gc.collect()  # graphs and their layers reference each other, with frozen weights
        n_windows = len(self._rows["window_ids"])
        return Trial(columns, n_windows / (ended - compiled), ended - started)

    def _exact_enough(self) -> list[str]:
        """Returns the profiles that keep the logits; all where baseline was not tried."""
        reference = self._trials.get(BASELINE) or next(iter(self._trials.values()))
        expected, kept = compared_logits(reference.columns), []
        for name, trial in self._trials.items():
            difference = np.abs(compared_logits(trial.columns) - expected).max()
            if difference <= TOLERANCE:
                kept.append(name)
            else:
                log.info("  %s: drift %.2g, more than %s", name, difference, TOLERANCE)
        return kept

    def _with_pruning(self, best: str) -> str:
        """Returns the profile, with pruning if that is faster on whole pages and changes no answer.

        It is tried only if there is time for ``MIN_PAGES``.
        """
        pruned = str(_pruned(Profile.parse(best)))
        trial = self._trials[best]
        n_windows = (self._left_s() - 2 * trial.cost_s) * trial.windows_per_s / 2
        try:
            check_rule(self._job.model.decision.rule, needs_margin=("prune",))
            pages = list(islice(self._pages(n_windows), MAX_PAGES))
            if len(pages) < MIN_PAGES:
                return best
            without_s, expected = self._answer(best, pages)
            with_s, answers = self._answer(pruned, pages)
        except (Error, ArithmeticError) as error:
            log.info("  prune: %s", error)
            return best
        changed = sum(a != b for a, b in zip(answers, expected, strict=True))
        times = f"{len(pages)} whole pages in {with_s:.1f} s, without prune in {without_s:.1f} s"
        log.info("  %s: %s; answers that it changes: %d", pruned, times, changed)
        return pruned if not changed and without_s > PRUNING_GAIN * with_s else best

    def _pages(self, n_windows: float) -> Iterator[tuple[Example, Columns]]:
        """Yields the first examples of the job, with the rows of at most so many windows."""
        with self._chunks.open_windows(0) as reader:
            for source, example in read_request(self._job.requests()[0]):
                if (key := (source.file_index, source.line)) in reader:
                    rows = reader.rows(key)
                    n_windows -= len(rows["window_ids"])
                    if n_windows < 0:
                        return
                    yield example, rows

    def _answer(
        self, profile: str, pages: Sequence[tuple[Example, Columns]]
    ) -> tuple[float, list[tuple[Any, ...]]]:
        """Returns the seconds without compilation, and the answers of pages."""
        scorer = load_scorer(replace(self._spec, profile=Profile.parse(profile)))
        list(score_examples(scorer, iter(pages[:WARM_UP_PAGES])))
        compiled_s, started = scorer.counters.compile_s, time.perf_counter()
        scored = list(score_examples(scorer, iter(pages)))
        seconds = time.perf_counter() - started - (scorer.counters.compile_s - compiled_s)
        decided = (decide(example, s, self._job.model.decision).prediction for example, s in scored)
        return seconds, [(p.long, frozenset(p.shorts), p.yes_no) for p in decided]
