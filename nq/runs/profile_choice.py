"""The choice behind ``--profile auto``: the fastest profile that keeps the answers.

1. Each candidate scores the first windows of the job. One whose drift from ``baseline`` is more
   than a tolerance is rejected.
2. The fastest of them score the windows again in rounds that alternate between them, so that a
   change of the machine's speed affects all; the median of its rounds is the speed of a profile.
3. If the job names no instances, one for each core scores the windows in such rounds too. They are
   chosen if they are faster than one process, since each has a copy of the model in memory.
4. The winner answers whole pages of the job, with and without ``prune``. Pruning is added if it is
   faster and changes no answer.

The choice is kept for this machine, model, versions and window shape, and the next run takes it
without a trial; not if other programs kept the machine busy. ``int8`` is never tried: name it, with
``--tolerance``, to see what it costs in answers.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import importlib.metadata
import logging
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from nq import __version__, processor, storage
from nq.errors import DamagedError, Error
from nq.inference.instances import InstancePool
from nq.inference.load import ScorerSpec, load_predictor, load_scorer
from nq.inference.profile import BASELINE, Profile
from nq.inference.scorer import PART_BATCHES, score_examples
from nq.model.folder import weights_digest
from nq.model.runtime import import_tensorflow
from nq.postprocess.decision import check_rule, decide
from nq.records import Columns, Example
from nq.runs.job import Job
from nq.runs.measure import Clock, available_memory_bytes, machine, tree_memory_bytes
from nq.runs.parity import compared_logits
from nq.runs.scoring import prepare_first_chunk, read_request
from nq.text import format_bytes

if TYPE_CHECKING:
    from nq.inference.predictor import Predictor

log = logging.getLogger(__name__)

TOLERANCE = 0.5
TRIAL_WINDOWS, FINALISTS, ROUNDS = 64, 3, 3
WARM_UP_PAGES = 2
PAGES = 20
"""Whole pages that show what pruning costs in answers; of a smaller job, all pages do."""
PRUNING_GAIN, INSTANCES_GAIN = 1.1, 1.05
MEMORY_SHARE = 0.5
"""Share of the free memory that instances may need at most to be tried."""
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
DISTRIBUTIONS = (
    *("keras", "numpy", "tensorflow", "tensorflow-cpu"),
    *("openvino", "nncf", "onnx", "onnxruntime", "tf2onnx"),
)
"""Distributions with whose versions the speed may change, as far as they are installed."""


@dataclass(frozen=True)
class Choice:
    """A profile that trials have chosen; ``str`` gives it in words.

    Args:
        pages: on how many whole pages pruning was tried.
        windows: digest of the windows of the job for which it was chosen.
        instances: number of instances of one thread each, if these are faster than one process.
    """

    profile: str
    pages: int = 0
    windows: str = ""
    instances: int | None = None

    def __str__(self) -> str:
        by = "" if self.instances is None else f", {self.instances} instances of 1 thread"
        return f"{self.profile}{by}"

    def of(self, job: Job) -> Job:
        """Returns a job with what was chosen."""
        if self.instances is None:
            return replace(job, profile=self.profile)
        compute = replace(job.compute, instances=self.instances, threads=1)
        return replace(job, profile=self.profile, compute=compute)


def choose_profile(job: Job, cache: bool = True) -> tuple[Choice, bool]:
    """Returns the choice for ``job``, and whether profiles had to be tried, which is logged.

    The profile of the job is ignored. With ``cache`` the choice of an earlier run is taken, and
    this one kept.
    """
    import_tensorflow(job.compute.threads)
    from nq.inference.engines.tensorflow import device

    key, windows = choice_key(job, device()), job.requests()[0].key
    earlier = read_choice(key, windows) if cache else None
    if earlier:
        where = f"kept in {cache_file()}; --no-cache tries again"
        log.info("profile auto: %s, chosen by an earlier trial (%s)", earlier, where)
        return earlier, False
    load, n_cores = os.getloadavg()[0], os.cpu_count() or 1
    log.info("profile auto: trying the first %d windows", TRIAL_WINDOWS)
    trials = Trials(job)
    speeds = trials.candidates()
    best = max(speeds, key=lambda name: speeds[name])
    log.info("  the fastest is %s, with %.1f windows/s in rounds", best, speeds[best])
    instances = trials.instances(best)
    profile, pages = trials.pruning(best)
    choice = Choice(profile, pages, windows, instances)
    log.info("profile auto: %s", choice)
    if cache and load > BUSY_SHARE * n_cores:
        busy = f"the load is {load:.1f} on {n_cores} cores"
        log.info("the choice is not kept for later runs: %s", busy)
    elif cache and write_choice(key, choice):
        log.info("the choice is kept for later runs in %s", cache_file())
    return choice, True


# --- choices of earlier runs --------------------------------------------------------------------


def cache_file() -> Path:
    """Returns the file that has the choices of this user's earlier runs."""
    home: str | Path = os.devnull  # keeps nothing of a user without a home folder
    with contextlib.suppress(RuntimeError):
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "nq" / "profiles.json"


def choice_key(job: Job, device: str) -> str:
    """Returns a digest of everything that a choice depends on, the job's data excepted."""
    depends = [
        __version__,
        versions(),
        [platform.node(), machine(), device],
        [weights_digest(model.folder) for model in job.model.models],
        job.model.windows.max_seq_length,
        job.compute.batch_size,
        job.model.decision.rule,
        [job.instances, job.compute.threads],
    ]
    return hashlib.sha256(orjson.dumps(depends, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


def versions() -> dict[str, str]:
    """Returns the versions of the installed distributions with which the speed may change."""
    installed = {d.name.lower(): d.version for d in importlib.metadata.distributions() if d.name}
    return {name: installed[name] for name in DISTRIBUTIONS if name in installed}


def read_choice(key: str, windows: str) -> Choice | None:
    """Returns the choice under a key; ``None`` if there is none, or the file is damaged.

    One from few pages is for the same windows only.
    """
    try:
        choice = Choice(**storage.read_json(cache_file())[key])
    except (OSError, DamagedError, LookupError, TypeError):
        return None
    return choice if choice.pages >= PAGES or choice.windows == windows else None


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


def median_speeds(
    passes: Mapping[str, Callable[[], int]], rounds: int = ROUNDS
) -> dict[str, float]:
    """Returns the windows per second of each pass, the median of rounds that alternate.

    A pass computes windows and returns their number.
    """
    speeds: dict[str, list[float]] = {name: [] for name in passes}
    for _ in range(rounds):
        for name, compute in passes.items():
            started = time.perf_counter()
            n_windows = compute()
            speeds[name].append(n_windows / (time.perf_counter() - started))
    return {name: statistics.median(values) for name, values in speeds.items()}


class Trials:
    """Tries profiles on a job; ``tolerance`` is the largest drift of the logits accepted."""

    def __init__(self, job: Job, tolerance: float = TOLERANCE) -> None:
        self._job, self._tolerance = job, tolerance
        self._chunks = prepare_first_chunk(job, Clock())
        compute = job.compute
        self._spec = ScorerSpec(job.model, Profile(), compute.batch_size, compute.threads)
        with self._chunks.open_windows(0) as reader:
            self._rows = reader.some_rows(PART_BATCHES * job.compute.batch_size, TRIAL_WINDOWS)

    def candidates(self) -> dict[str, float]:
        """Returns the windows per second of the fastest candidates that keep the logits."""
        from nq.inference.engines.tensorflow import device

        first_speeds: dict[str, float] = {}
        finalists: dict[str, Predictor] = {}
        expected: Columns = {}
        for name in (BASELINE, *CANDIDATES[device()]):
            profile = Profile.parse(name)
            if missing := profile.missing():
                log.info("  %s: %s not installed", name, " and ".join(missing))
                continue
            try:
                predictor = load_predictor(replace(self._spec, profile=profile))
                columns = predictor.scores(self._rows)
                speed = median_speeds({name: partial(self._score, predictor)}, rounds=1)[name]
            except (Error, ArithmeticError) as error:
                log.info("  %s: %s", name, error)
                continue
            expected = expected or columns
            difference = np.abs(compared_logits(columns) - compared_logits(expected)).max()
            if difference > self._tolerance:
                log.info("  %s: drift %.2g, more than %s", name, difference, self._tolerance)
                continue
            log.info("  %s: %.1f windows/s, drift %.2g", name, speed, difference)
            first_speeds[name], finalists[name] = speed, predictor
            if len(finalists) > FINALISTS:  # more would need much memory
                del finalists[min(finalists, key=lambda n: first_speeds[n])]
                gc.collect()  # graphs and their layers reference each other, with frozen weights
        speeds = median_speeds({n: partial(self._score, one) for n, one in finalists.items()})
        finalists.clear()
        gc.collect()
        return speeds

    def instances(self, best: str) -> int | None:
        """Returns how many instances are faster than one process; ``None`` if they are not."""
        from nq.inference.engines.tensorflow import device

        count, compute = len(processor.cores()), self._job.compute
        is_given = compute.instances is not None or compute.threads is not None
        if is_given or device() != "CPU" or count == 1:
            return None
        needed, free = count * tree_memory_bytes(os.getpid()), available_memory_bytes()
        if needed > MEMORY_SHARE * free:
            need = f"{format_bytes(needed)} of the {format_bytes(free)} of memory that are free"
            log.info("  instances: %d instances may need %s: not tried", count, need)
            return None
        model = self._spec.model
        alone = replace(model, decision=model.own_decision, second=None)
        spec = replace(self._spec, model=alone, profile=Profile.parse(best))
        predictor = load_predictor(spec)
        predictor.scores(self._rows)
        try:
            with InstancePool(spec, count, 1) as pool:

                def score_in_pool(times: int = 1) -> int:
                    for future in [pool.submit(self._rows, ()) for _ in range(count * times)]:
                        future.result()
                    return count * times * len(self._rows["window_ids"])

                score_in_pool(2)  # each instance compiles
                passes: dict[str, Callable[[], int]] = {
                    "one": partial(self._score, predictor),
                    "several": score_in_pool,
                }
                one, several = median_speeds(passes).values()
        except (Error, ArithmeticError) as error:
            log.info("  instances: %s", error)
            return None
        speeds = f"{several:.1f} windows/s, one process: {one:.1f} windows/s"
        log.info("  %s: %d instances of 1 thread: %s", best, count, speeds)
        return count if several > INSTANCES_GAIN * one else None

    def pruning(self, best: str) -> tuple[str, int]:
        """Returns a profile with pruning if that is better, and on how many pages it was tried."""
        parts = [] if best == BASELINE else best.split("+")
        pruned = str(Profile.parse("+".join([*parts, "prune"])))
        try:
            check_rule(self._job.model.decision.rule, needs_margin=("prune",))
            pages = list(self._pages())
            without_s, expected = self._answer(best, pages)
            with_s, answers = self._answer(pruned, pages)
        except (Error, ArithmeticError) as error:
            log.info("  prune: %s", error)
            return best, PAGES
        changed = sum(a != b for a, b in zip(answers, expected, strict=True))
        times = f"{len(pages)} whole pages in {with_s:.1f} s, without prune in {without_s:.1f} s"
        log.info("  %s: %s; answers that it changes: %d", pruned, times, changed)
        is_better = not changed and without_s > PRUNING_GAIN * with_s
        return pruned if is_better else best, len(pages)

    def _pages(self) -> Iterator[tuple[Example, Columns]]:
        """Yields the first examples of the job with the rows of all their windows."""
        request, chunk = self._job.requests()[0], self._chunks[0]
        if not chunk.examples:
            return
        with self._chunks.open_windows(0) as reader:
            keys = (((s.file_index, s.line), example) for s, example in read_request(request))
            whole = ((example, reader.rows(key)) for key, example in keys if key in reader)
            yield from islice(whole, PAGES)

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

    def _score(self, predictor: Predictor) -> int:
        """Computes the first windows; returns their number."""
        predictor.scores(self._rows)
        return len(self._rows["window_ids"])
