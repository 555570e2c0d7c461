"""Study 1: the source's figures, approaches, budget, resuming, verdicts by hand."""

import pytest

from experiments import concurrency, units
from experiments.concurrency import Task
from experiments.workloads import Workload

pytestmark = pytest.mark.extended

TINY = Workload("tiny", "tensorflow", 16)


def test_a_real_unit_runs_all_approaches() -> None:
    task = Task(TINY, 2, shared=False, budget_mb=1e6)
    with units.started(concurrency.load, task, (), units.thread_settings(1)) as unit:
        assert unit.receive()[0] == 2
        for approach in concurrency.IN_PROCESS:
            seconds, waiting = unit.ask(approach)
            assert 0 < waiting <= seconds
        assert unit.ask(concurrency.MEMORY) > 100
