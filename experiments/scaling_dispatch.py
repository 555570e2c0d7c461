"""The part ``dispatch`` of ``experiments.scaling``: requests of mixed lengths, several policies.

Requests arrive independently of whether earlier ones are answered ("open loop"), at seeded moments
and with lengths as in real pages. A policy is a set of instances and the queue in which each length
waits. The latency of a request is the time from its arrival to its answer, the wait included.
"""

import contextlib
import itertools
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import wait

from experiments import Values, study, units
from experiments.scaling_report import DISPATCH, ONE, QUEUE, SPLIT
from experiments.workloads import Model, Workload

CLASSES = (32, 128, 384, 512)
"""Lengths that windows are padded to."""
LONG = 512
"""The class of long windows, to which the source gives cores of their own."""
LOADS = (0.5, 0.8)
"""Shares of the capacity at which requests arrive."""
CALIBRATION = 3


@dataclass(frozen=True)
class Request:
    """One window to compute, of one of the ``CLASSES``, and the second in which it arrives."""

    arrival_s: float
    length: int


def real_lengths(files: Sequence[str]) -> tuple[int, ...]:
    """Returns the class of each window of the pages in files, by the tokenizer of ``small``."""
    import dataclasses

    from nq.bundle import bundled_model
    from nq.model.folder import ModelFolder
    from nq.preprocess.features import features
    from nq.preprocess.tokenizers.load import load_tokenizer
    from nq.questions import read_examples

    tokenizer = load_tokenizer(bundled_model())
    own = ModelFolder(bundled_model()).settings.windows
    windows = dataclasses.replace(own, max_seq_length=CLASSES[-1])
    pieces: list[int] = []
    for file in files:
        for example in read_examples(file):
            pieces += features(example, tokenizer, windows).input_mask.sum(axis=1).tolist()
    return tuple(next(c for c in CLASSES if n <= c) for n in pieces)


def requests(lengths: Sequence[int], count: int, per_s: float, seed: int) -> list[Request]:
    """Returns ``count`` requests whose gaps are exponentially distributed, and drawn lengths."""
    import numpy as np

    draw = np.random.default_rng(seed)
    arrivals = np.cumsum(draw.exponential(1 / per_s, count)).tolist()
    chosen = draw.choice(np.asarray(lengths), count).tolist()
    return [Request(*pair) for pair in zip(arrivals, chosen, strict=True)]


@dataclass(frozen=True)
class Policy:
    """The cores of the instances, and the number of the queue that each takes requests from.

    Long windows wait in the queue ``long_queue``, others in queue 0.
    """

    name: str
    cores: tuple[tuple[int, ...], ...]
    queues: tuple[int, ...]
    long_queue: int = 0


def policies(cores: Sequence[int]) -> list[Policy]:
    """Returns one instance, one queue of all instances, and instances divided by length."""
    single = tuple((core,) for core in cores)
    half = max(1, len(cores) // 2)
    result = [Policy(ONE, (tuple(cores),), (0,)), Policy(QUEUE, single, (0,) * len(single))]
    if len(cores) > 1:
        parts = tuple(cores[:half]), tuple(cores[half:])
        result.append(Policy(SPLIT, parts, (0, 1), long_queue=1))
    return result


def load(task: tuple[Workload, tuple[int, ...]]) -> tuple[None, units.Work]:
    """Loads an instance with one model for each length; a command is a length."""
    import dataclasses

    workload, lengths = task
    steps = {
        length: Model(dataclasses.replace(workload, length=length)).step() for length in lengths
    }

    return None, lambda length: units.seconds(steps[length])


def serve(policy: Policy, group: Sequence[units.Unit], incoming: Sequence[Request]) -> list[float]:
    """Sends requests to the instances when they arrive; returns the latency of each, in order."""
    queues: list[deque[int]] = [deque() for _ in range(max(policy.queues) + 1)]
    busy: dict[int, int] = {}
    latencies = [0.0] * len(incoming)
    arrived, started = 0, time.perf_counter()
    pipes = {unit.pipe: number for number, unit in enumerate(group)}
    while arrived < len(incoming) or busy or any(queues):
        now = time.perf_counter() - started
        while arrived < len(incoming) and incoming[arrived].arrival_s <= now:
            is_long = incoming[arrived].length >= LONG
            queues[policy.long_queue if is_long else 0].append(arrived)
            arrived += 1
        for number, unit in enumerate(group):
            queue = queues[policy.queues[number]]
            if number not in busy and queue:
                busy[number] = queue.popleft()
                unit.send(incoming[busy[number]].length)
        timeout = incoming[arrived].arrival_s - now if arrived < len(incoming) else None
        for pipe in wait([group[n].pipe for n in busy], timeout):
            number = pipes[pipe]  # type: ignore[index]
            group[number].receive()
            request = busy.pop(number)
            latencies[request] = time.perf_counter() - started - incoming[request].arrival_s
    return latencies


@dataclass(frozen=True)
class Dispatch:
    """The policies of one shape and engine, measured in the same rounds of ``count`` requests.

    Their lengths are drawn from ``lengths``.
    """

    shape: str
    engine: str
    cores: tuple[int, ...]
    lengths: tuple[int, ...]
    count: int

    @property
    def key(self) -> Values:
        """What names it in the results."""
        return {"part": DISPATCH, "shape": self.shape, "length": 0, "group": self.engine}

    def rows(self, rounds: int) -> list[Values]:
        """Measures all policies at all loads."""
        classes = tuple(sorted(set(self.lengths)))
        with contextlib.ExitStack() as stack:
            running = []
            for policy in policies(self.cores):
                group = []
                for cores in policy.cores:
                    workload = Workload(self.shape, self.engine, 0, threads=len(cores))
                    unit = units.started(load, (workload, classes), cores)
                    group.append(stack.enter_context(unit))
                units.receive_all(group)
                running.append((policy, group))
            (_, (one,)), mean_s = running[0], 0.0  # one instance with all cores
            for length in classes:
                share = self.lengths.count(length) / len(self.lengths)
                mean_s += share * min(one.ask(length) for _ in range(CALIBRATION))
            steps: list[tuple[Values, study.Step]] = []
            for share, (policy, group) in itertools.product(LOADS, running):
                step = partial(
                    self._step,
                    share / mean_s,
                    policy,
                    group,
                    itertools.count(),
                )
                steps.append((self._row(share, policy, share / mean_s), step))
            return study.timed(steps, rounds)

    def _step(
        self, per_s: float, policy: Policy, group: Sequence[units.Unit], seeds: Iterator[int]
    ) -> Values:
        """Serves the requests of a round, which are the same for all policies."""
        incoming = requests(self.lengths, self.count, per_s, next(seeds))
        latencies = serve(policy, group, incoming)
        ends = [r.arrival_s + s for r, s in zip(incoming, latencies, strict=True)]
        classes = [request.length for request in incoming]
        return {"seconds": max(ends), "latencies": latencies, "classes": classes}

    def _row(self, load: float, policy: Policy, per_s: float) -> Values:
        return {
            **self.key,
            "engine": self.engine,
            "policy": policy.name,
            "load": load,
            "per_s": per_s,
            "instances": len(policy.cores),
            "threads": len(policy.cores[0]),
            "batch": 1,
            "pinned": True,
            "reference": policy.name == ONE,
            "windows": self.count,
            "seconds": [],
            "latencies": [],
            "classes": [],
        }
