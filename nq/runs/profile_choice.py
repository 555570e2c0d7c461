"""The choice behind ``--profile auto``: the fastest profile that keeps the answers.

1. Each candidate scores the first windows of the job. One whose logits differ from those of
   ``baseline`` by more than a tolerance is rejected.
2. The fastest of them score the windows again in rounds that alternate between them, so that a
   change of the machine's speed affects all; the median of its rounds is the speed of a profile.
3. The winner answers whole pages of the job, with and without ``prune``. Pruning is added if it is
   faster and changes no answer.
4. If the job tells nothing about instances, one for each core scores the first windows without
   ``prune``. They are chosen if they are faster than one process (``nq.runs.instance_choice``).

The choice is kept for this machine, model, versions and window shape, and the next run takes it
without a trial; not if other programs kept the machine busy. ``int8`` is never tried: name it, with
``--tolerance``, to see what it costs in answers.
"""

from __future__ import annotations

import gc
import logging
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from nq.errors import Error
from nq.inference import cores
from nq.inference.load import load_predictor, load_scorer
from nq.inference.profile import BASELINE, Profile
from nq.inference.scorer import PART_BATCHES, Rows, score_examples
from nq.model.runtime import import_tensorflow
from nq.postprocess.decision import check_rule, decide
from nq.records import Columns, Example
from nq.runs import choices
from nq.runs.choices import PAGES, Choice
from nq.runs.instance_choice import InstancesTrial, try_instances
from nq.runs.job import Job
from nq.runs.phases import PhaseTimer
from nq.runs.scoring import prepare_first_chunk, read_request, scorer_spec

if TYPE_CHECKING:
    from nq.inference.predictor import Predictor

log = logging.getLogger(__name__)

TOLERANCE = 0.5
TRIAL_WINDOWS, FINALISTS, ROUNDS = 64, 3, 3
WARM_UP_PAGES = 2
PRUNING_GAIN = 1.1
BUSY_SHARE = 0.5
"""Load of the machine for each of its cores, from which on a choice is not kept."""
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
        windows_per_s: its speed; the median of the rounds that it took part in.
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


@dataclass(frozen=True)
class PruningTrial:
    """What pruning does to whole pages.

    Args:
        profile: with ``prune``.
        pages: how many pages were answered.
        changed: how many of their answers pruning changed.
        seconds: without and with pruning.
    """

    profile: str
    pages: int
    changed: int
    seconds: tuple[float, float]

    @property
    def accepted(self) -> bool:
        """Whether pruning is worth while: faster, and with the same answers."""
        without, with_it = self.seconds
        return not self.changed and without > PRUNING_GAIN * with_it

    def __str__(self) -> str:
        without, with_it = self.seconds
        return (
            f"{self.profile}: {self.pages} whole pages in {with_it:.1f} s, without prune in "
            f"{without:.1f} s; answers that it changes: {self.changed}"
        )


def choose_profile(
    job: Job, tolerance: float = TOLERANCE, cache: bool = True
) -> tuple[Choice, bool]:
    """Returns the choice for ``job``, whose own profile is ignored, and logs the trials.

    Args:
        job: with files, model and windows.
        tolerance: largest drift of the logits that is accepted.
        cache: whether to take the choice of an earlier run, and to keep this one.

    Returns:
        The choice, and whether profiles had to be tried.
    """
    import_tensorflow(job.threads)
    from nq.inference.engines.tensorflow import device

    key, windows = choices.key(job, device()), job.requests()[0].key
    known = choices.read(key, windows) if cache else None
    if known:
        where = f"kept in {choices.cache_file()}; --no-cache tries again"
        log.info("profile auto: %s, chosen by an earlier trial (%s)", known, where)
        return known, False
    busy = _busy()
    choice = _tried(job, tolerance, windows)
    log.info("profile auto: %s", choice)
    if cache and busy:
        log.info("the choice is not kept for later runs: %s", busy)
    elif cache and choices.write(key, choice):
        log.info("the choice is kept for later runs in %s", choices.cache_file())
    return choice, True


def _tried(job: Job, tolerance: float, windows: str) -> Choice:
    """Returns the choice of new trials, which are logged.

    Args:
        job: with files, model and windows.
        tolerance: largest drift of the logits that is accepted.
        windows: digest of the job's windows.
    """
    log.info("profile auto: trying the first %d windows", TRIAL_WINDOWS)
    trial = _Trials(job, tolerance)
    outcomes = trial.all()
    for outcome in outcomes:
        log.info("  %s", outcome)
    best = max((o for o in outcomes if not o.rejected), key=lambda o: o.windows_per_s)
    instances = _tried_instances(trial, best.profile)
    try:
        pruning = trial.pruning(best.profile)
    except (Error, ArithmeticError) as error:
        log.info("  prune: %s", error)
        return Choice(best.profile, PAGES, windows, instances)
    log.info("  %s", pruning)
    name = pruning.profile if pruning.accepted else best.profile
    return Choice(name, pruning.pages, windows, instances)


def _tried_instances(trial: _Trials, best: str) -> int | None:
    """Returns the number of instances that are faster than one process, ``None`` for none."""
    if not trial.leaves_instances_open:
        return None
    try:
        outcome = trial.instances(best)
    except (Error, ArithmeticError) as error:
        log.info("  instances: %s", error)
        return None
    log.info("  %s: %s", best, outcome)
    return outcome.instances if outcome.accepted else None


def _busy() -> str:
    """Returns by how much other programs keep the machine busy; empty if they hardly do."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    return f"the load is {load:.1f} on {cores} cores" if load > BUSY_SHARE * cores else ""


def trials(job: Job, tolerance: float = TOLERANCE) -> list[Trial]:
    """Returns the trial of baseline and of every candidate on the first windows of ``job``."""
    return _Trials(job, tolerance).all()


class _Trials:
    """Tries profiles on a job.

    Args:
        job: with files, model and windows.
        tolerance: largest drift of the logits that is accepted.
    """

    def __init__(self, job: Job, tolerance: float) -> None:
        self._job, self._tolerance = job, tolerance
        self._chunks = prepare_first_chunk(job, PhaseTimer())
        self._spec = scorer_spec(replace(job, profile=BASELINE), self._chunks)
        self._finalists: dict[str, Predictor] = {}
        self._expected: Columns = {}

    def all(self) -> list[Trial]:
        """Returns the trials of all candidates; the fastest have run several rounds."""
        from nq.inference.engines.tensorflow import device

        rows = self._rows()
        outcomes: dict[str, Trial] = {}
        for name in (BASELINE, *CANDIDATES[device()]):
            outcomes[name] = self._first(name, rows)
            self._keep_fastest(outcomes)
        names = list(self._finalists)
        rounds = [{n: _speed(self._finalists[n], rows) for n in names} for _ in range(ROUNDS)]
        for name in names:
            speed = statistics.median(speeds[name] for speeds in rounds)
            outcomes[name] = replace(outcomes[name], windows_per_s=speed)
        self._finalists.clear()
        gc.collect()  # graphs and their layers reference each other, with all frozen weights
        return list(outcomes.values())

    def _rows(self) -> Rows:
        """Returns the first windows of the job."""
        with self._chunks.open_windows(0) as reader:
            return reader.some_rows(PART_BATCHES * self._job.batch_size, TRIAL_WINDOWS)

    @property
    def leaves_instances_open(self) -> bool:
        """Whether instances are possible, and the job tells nothing about them."""
        from nq.inference.engines.tensorflow import device

        told = self._job.instances is not None or self._job.threads is not None
        return not told and device() == "CPU" and len(cores.available()) > 1

    def instances(self, best: str) -> InstancesTrial:
        """Returns how fast instances of a profile without pruning and rescoring are.

        Raises:
            Error: they need too much memory, or cannot be started.
        """
        model, rows = self._spec.model, self._rows()
        alone = replace(model, decision=model.own_decision, second=None)
        spec = replace(self._spec, model=alone, profile=Profile.parse(best))
        predictor = load_predictor(spec)
        predictor.scores(rows)
        return try_instances(spec, predictor, rows)

    def _first(self, name: str, rows: Rows) -> Trial:
        """Returns the first trial of a profile; that of baseline must come before others."""
        if missing := Profile.parse(name).missing():
            return Trial(name, rejected=f"{' and '.join(missing)} not installed")
        try:
            predictor = load_predictor(replace(self._spec, profile=Profile.parse(name)))
            columns = predictor.scores(rows)
            speed = _speed(predictor, rows)
        except (Error, ArithmeticError) as error:
            return Trial(name, rejected=str(error))
        self._expected = self._expected or columns
        drift = _drift(columns, self._expected)
        if drift > self._tolerance:
            return Trial(name, speed, drift, f"drift {drift:.2g}, more than {self._tolerance}")
        self._finalists[name] = predictor
        return Trial(name, speed, drift)

    def _keep_fastest(self, outcomes: dict[str, Trial]) -> None:
        """Gives up the slowest finalist if there are too many to keep in memory."""
        if len(self._finalists) > FINALISTS:
            del self._finalists[min(self._finalists, key=lambda n: outcomes[n].windows_per_s)]
            gc.collect()

    def pruning(self, best: str) -> PruningTrial:
        """Returns what pruning does to whole pages of the job under a profile.

        Raises:
            Error: the decision rule has no margin, so that nothing can be pruned.
        """
        check_rule(self._job.model.decision.rule, needs_margin=("prune",))
        plain, pruned = Profile.parse(best), Profile.parse("+".join([*_parts(best), "prune"]))
        pages = list(self._pages())
        (without_s, expected), (with_s, answers) = (
            self._answer(profile, pages) for profile in (plain, pruned)
        )
        changed = sum(a != b for a, b in zip(answers, expected, strict=True))
        return PruningTrial(str(pruned), len(pages), changed, (without_s, with_s))

    def _pages(self) -> Iterator[tuple[Example, Columns]]:
        """Yields the first examples of the job with the rows of all their windows."""
        (request, *_), chunk = self._job.requests(), self._chunks[0]
        if not chunk.examples:
            return
        with self._chunks.open_windows(0) as reader:
            keys = (((s.file_index, s.line), example) for s, example in read_request(request))
            whole = ((example, reader.rows(key)) for key, example in keys if key in reader)
            yield from islice(whole, PAGES)

    def _answer(
        self, profile: Profile, pages: Sequence[tuple[Example, Columns]]
    ) -> tuple[float, list[tuple[Any, ...]]]:
        """Returns the seconds without compilation, and the answers of pages."""
        scorer = load_scorer(replace(self._spec, profile=profile))
        list(score_examples(scorer, iter(pages[:WARM_UP_PAGES])))
        compiled_s, started = scorer.counters.compile_s, time.perf_counter()
        scored = list(score_examples(scorer, iter(pages)))
        seconds = time.perf_counter() - started - (scorer.counters.compile_s - compiled_s)
        decided = (decide(example, s, self._job.model.decision).prediction for example, s in scored)
        return seconds, [(p.long, frozenset(p.shorts), p.yes_no) for p in decided]


def _parts(profile: str) -> list[str]:
    return [] if profile == BASELINE else profile.split("+")


def _speed(predictor: Any, rows: Rows) -> float:
    """Returns the windows per second of one pass."""
    started = time.perf_counter()
    predictor.scores(rows)
    return len(rows["window_ids"]) / (time.perf_counter() - started)


def _drift(columns: Columns, expected: Columns) -> float:
    """Returns the largest difference of a logit; of starts and ends the best ones count."""
    widths = {"start_logit": 1, "end_logit": 1, "cls_logit": 2, "type_logits": 5}
    return max(
        float(np.abs(columns[name][:, :n] - expected[name][:, :n]).max())
        for name, n in widths.items()
    )
