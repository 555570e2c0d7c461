"""The cost of a corpus: the prediction against a simulation, and the stages measured for real."""

import heapq
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.scale import __main__ as command
from experiments.scale.predict import (
    CHECK,
    MERGE,
    SKIP,
    START,
    WORKER_STAGES,
    Corpus,
    predicted,
)
from nq.beam.merge import shares
from nq.bundle import bundled_sample
from tests.experiments.conftest import RunCommand

pytestmark = pytest.mark.extended

COSTS = {CHECK: 0.001, START: 20.0, SKIP: 0.002, MERGE: 0.0005}
COSTS |= dict(zip(WORKER_STAGES, (0.01, 0.02, 4.0, 0.03, 0.001), strict=True))


def simulated(corpus: Corpus, workers: int) -> float:
    """Returns the seconds until the last worker is done, each taking the next share in turn."""
    page = sum(COSTS[name] for name in WORKER_STAGES)
    free = [COSTS[START]] * workers
    for _, _, n in shares(corpus.files, workers):
        records = corpus.examples / corpus.files
        share = records / n * page + records * (n - 1) / n * COSTS[SKIP]
        heapq.heapreplace(free, free[0] + share)
    return max(free) + corpus.examples * (COSTS[CHECK] + COSTS[MERGE])


@given(st.integers(1, 60), st.sampled_from([1, 2, 8, 64]), st.integers(100, 10_000))
def test_the_prediction_is_near_a_simulation_of_all_shares(
    files: int, workers: int, each: int
) -> None:
    """A worker has four shares or more, so that the last one ends at most a quarter later."""
    corpus = Corpus("some", files * each, files)
    expected = simulated(corpus, workers)
    seconds = sum(predicted(COSTS, corpus, workers).values())
    assert seconds <= expected * (1 + 1e-9)
    enough = files == 1 or len(shares(files, workers)) >= 4 * workers
    assert expected <= seconds * (1.26 if enough else 1.51)


def test_each_stage_of_a_real_job_is_measured(tiny_model: Path, run_command: RunCommand) -> None:
    options = ["--data", bundled_sample(), "--model", tiny_model, "--limit", 3]
    result = run_command(command.main, *options, "--profile", "baseline")
    assert result["examples"] == 3 and result["windows_per_example"] >= 1
    assert set(result["costs"]) == set(command.ORDER)
    assert all(seconds > 0 for seconds in result["costs"].values())
    text = command.table(result)
    assert text.count("| NQ train | 307,373 |") == len(command.WORKERS)
