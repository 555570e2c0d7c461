"""Several models in one process, one after the other, in asyncio, in threads, or in processes.

    python -m experiments.concurrency
    python -m experiments.concurrency --shapes minilm --lengths 128 --engines tensorflow --most 4
    python -m experiments.concurrency --quick

Tests the claims of Badretdinov and Zaichenko, "Performance of approaches to running several BERT
models in parallel on a GPU" (Belarusian-Russian University), on a CPU: N models compute one full
window each. The approaches of a cell (shape, length, engine, N) are measured in the same rounds;
before, each is loaded in a process of its own to read its peak memory. An interrupted study
continues with the rows that are missing.
"""

import argparse
import asyncio
import contextlib
import functools
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from experiments import Values, command, study, units
from experiments import concurrency_report as report
from experiments.concurrency_report import ASYNCIO, BUDGET, MEASURED, PROCESSES, SYNC, THREADS
from experiments.study import timed
from experiments.workloads import ENGINE_PACKAGES, SHAPES, Model, Step, Workload, missing
from nq import processor
from nq.runs.measure import own_peak_bytes

ENGINES = ("tensorflow", "tensorflow-eager", "openvino")
LENGTHS, SHORT = (32, 128, 512), 32
WITHOUT_SHORT = ("openvino",)
"""Engines without the shortest length: the claim about it is about TensorFlow's two modes."""
MOST, MIB = 8, 1 << 20
QUICK: Values = {
    "shapes": ["tiny"],
    "lengths": [32],
    "engines": ["tensorflow"],
    "most": 2,
}
OWN, SHARED, MEMORY = "own", "shared", "memory"
IN_PROCESS = (SYNC, ASYNCIO, THREADS)


@dataclass(frozen=True)
class Task:
    """What a unit loads: ``count`` models, or one that is ``shared``.

    No further model is loaded beyond a resident memory of ``budget_mb``.
    """

    workload: Workload
    count: int
    shared: bool
    budget_mb: float


Loaded = tuple[int, list[list[int]]]
"""How many models a unit has loaded, fewer than asked for if the budget is reached, and the sets of
cores that its threads may use."""


def load(task: Task) -> tuple[Loaded, units.Work]:
    """Loads the models of a unit; its commands are approaches, and ``MEMORY``."""
    wanted = 1 if task.shared else task.count
    models = _within_budget(task, wanted)
    complete = len(models) == wanted
    count = task.count if complete else 0
    steps = [models[0 if task.shared else i].step() for i in range(count)]
    executor = ThreadPoolExecutor(task.count)  # the default one may have fewer threads
    loop = functools.cache(asyncio.new_event_loop)
    run: dict[str, Callable[[], Any]] = {
        SYNC: lambda: (units.seconds(lambda: [step() for step in steps]),) * 2,
        ASYNCIO: lambda: in_asyncio(steps, loop(), executor),
        THREADS: lambda: in_threads(steps),
        MEMORY: lambda: own_peak_bytes() / MIB,
    }
    loaded = task.count if complete else len(models), units.thread_cores()
    return loaded, lambda command: run[command]()


def _within_budget(task: Task, wanted: int) -> list[Model]:
    """Returns ``wanted`` models, or fewer if one more would go beyond the budget."""
    models, growth_mb = [Model(task.workload)], 0.0
    while len(models) < wanted:
        before_mb = own_peak_bytes() / MIB
        if before_mb + growth_mb > task.budget_mb:
            break
        models.append(Model(task.workload))
        growth_mb = own_peak_bytes() / MIB - before_mb  # the first one also loads libraries
    return models


def in_threads(steps: Sequence[Step]) -> tuple[float, float]:
    """Runs each step in a new thread.

    Returns:
        The seconds from before the threads start, and from when the wait for them begins.
    """
    started = time.perf_counter()
    threads = [threading.Thread(target=step) for step in steps]
    for thread in threads:
        thread.start()
    waiting = time.perf_counter()
    for thread in threads:
        thread.join()
    ended = time.perf_counter()
    return ended - started, ended - waiting


def in_asyncio(
    steps: Sequence[Step], loop: asyncio.AbstractEventLoop, executor: ThreadPoolExecutor
) -> tuple[float, float]:
    """Runs each step in an executor with a thread for each, as one task each, awaited together.

    Returns:
        The seconds from before the tasks are made, and from when the wait for them begins.
    """

    async def task(step: Step) -> None:
        await loop.run_in_executor(executor, step)

    async def all_tasks() -> float:
        tasks = [asyncio.ensure_future(task(step)) for step in steps]
        waiting = time.perf_counter()
        await asyncio.gather(*tasks)
        return waiting

    started = time.perf_counter()
    waiting = loop.run_until_complete(all_tasks())
    ended = time.perf_counter()
    return ended - started, ended - waiting


@dataclass(frozen=True)
class Cell:
    """One shape, length, engine and N (``count``): its approaches, measured together.

    The workload has all cores; ``memory_mb`` is the budget of all processes together.
    """

    workload: Workload
    count: int
    memory_mb: float

    def rows(self, rounds: int) -> list[Values]:
        """Measures all approaches; returns their rows."""
        groups = [((name,), OWN) for name in (*IN_PROCESS, PROCESSES)]
        rows = [row for group in (*groups, (IN_PROCESS, SHARED)) for row in self._loaded(*group)]
        with contextlib.ExitStack() as stack:
            timed(list(self._steps(rows, stack)), rounds)
        return rows

    def _loaded(self, approaches: Sequence[str], weights: str) -> list[Values]:
        """Returns rows with the peak memory of approaches, measured in processes of their own."""
        with self._units(approaches[0], weights) as (group, loaded):
            models = sum(count for count, _ in loaded)
            if models == self.count:
                for name in approaches:
                    _round(name, group)
            memory_mb = sum(unit.ask(MEMORY) for unit in group)
        fits = models == self.count and memory_mb <= self.memory_mb
        values = {
            **key(self.workload, self.count),
            "weights": weights,
            "models": models,
            "memory_mb": memory_mb,
            "cores": [cores for _, cores in loaded],
            "status": MEASURED if fits else BUDGET,
        }
        return [
            {**values, "approach": name, "seconds": [], "source_seconds": []} for name in approaches
        ]

    def _steps(
        self, rows: list[Values], stack: contextlib.ExitStack
    ) -> Iterator[tuple[Values, study.Step]]:
        """Yields the rows that fit into the budget together, each with its step."""
        left_mb = self.memory_mb
        groups = dict[tuple[bool, str], list[units.Unit]]()
        for row in rows:
            group = row["approach"] == PROCESSES, row["weights"]
            if row["status"] == MEASURED and group not in groups:
                if row["memory_mb"] > left_mb:
                    row["status"] = BUDGET
                    continue
                left_mb -= row["memory_mb"]
                approach = row["approach"], row["weights"]
                groups[group], _ = stack.enter_context(self._units(*approach))
            if row["status"] == MEASURED:
                yield row, partial(_round, row["approach"], groups[group])

    @contextlib.contextmanager
    def _units(
        self, approach: str, weights: str
    ) -> Iterator[tuple[list[units.Unit], list[Loaded]]]:
        """Starts the processes of an approach: one with all cores, or N pinned ones.

        Of N pinned ones only the first is started if all would go beyond the budget.
        """
        with contextlib.ExitStack() as stack:

            def start(task: Task, cores: Sequence[int]) -> units.Unit:
                return stack.enter_context(units.started(load, task, cores))

            cores = processor.cores()
            if approach != PROCESSES:
                task = Task(self.workload, self.count, weights == SHARED, self.memory_mb)
                unit = start(task, cores)
                yield [unit], [unit.receive()]
                return
            shares = units.shares(cores, self.count)
            workload = replace(self.workload, threads=len(shares[0]))
            task = Task(workload, 1, False, self.memory_mb)
            group = [start(task, shares[0])]
            loaded = [group[0].receive()]
            if self.count * group[0].ask(MEMORY) <= self.memory_mb:
                group += [start(task, cores) for cores in shares[1:]]
                loaded += [unit.receive() for unit in group[1:]]
            yield group, loaded


def _round(approach: str, group: Sequence[units.Unit]) -> dict[str, float]:
    """Returns the seconds of one round, by both clocks."""
    if approach != PROCESSES:
        seconds, source = group[0].ask(approach)
        return {"seconds": seconds, "source_seconds": source}
    passed, _ = units.together(group, SYNC)
    return {"seconds": passed, "source_seconds": passed}


def key(workload: Workload, count: int) -> Values:
    """Returns what names a cell in the results."""
    names = {
        "shape": workload.shape,
        "length": workload.length,
        "engine": workload.engine,
    }
    return {**names, "n": count}


def _options(parser: argparse.ArgumentParser) -> None:
    command.add_list(parser, "shapes", ("minilm", "base", "rembert"), SHAPES)
    command.add_list(parser, "lengths", LENGTHS)
    command.add_list(parser, "engines", ENGINES, ENGINE_PACKAGES)
    command.add_option(parser, "most", MOST, "largest number of models; all from 1 on are measured")
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    text = "resident memory of all processes at most, in 2^30 bytes"
    command.add_option(parser, "memory-gb", round(0.6 * memory_gb, 1), text)
    study.add_options(parser, report.STUDY.name)


def concurrency(args: argparse.Namespace) -> int:
    """Runs the command."""
    if args.quick:
        vars(args).update(QUICK)
    return study.measure(
        report.STUDY,
        args,
        partial(cells, args),
        memory_gb=args.memory_gb,
    )


def cells(args: argparse.Namespace, results: study.Results) -> list[study.Cell]:
    """Returns the cells of the grid that can be measured here; says which cannot."""
    engines = study.installed(args.engines, missing)
    threads = len(processor.cores())
    workloads = (
        Workload(shape, engine, length, threads=threads)
        for shape, length, engine in itertools.product(args.shapes, args.lengths, engines)
        if not (length == SHORT and engine in WITHOUT_SHORT)
    )
    return [
        (key(workload, count), partial(_rows, args, workload, count, results))
        for workload in workloads
        for count in range(1, args.most + 1)
    ]


def _rows(
    args: argparse.Namespace, workload: Workload, count: int, results: study.Results
) -> list[Values]:
    """Measures N models, unless the memory was too small for every approach to fewer models."""
    fewer = key(workload, count - 1).items()
    known = [r for r in results.rows if r["weights"] == OWN and fewer <= r.items()]
    if count > 1 and all(row["status"] == BUDGET for row in known):
        return []
    return Cell(workload, count, 1024 * args.memory_gb).rows(args.rounds)


main = command.main(concurrency, _options)
