"""Processes that score beside each other: the same bytes, cores of their own, and their deaths."""

import logging
from dataclasses import replace
from itertools import islice
from pathlib import Path

import psutil
import pytest

from nq import processor
from nq.bundle import bundled_sample
from nq.formats import inputs
from nq.inference.chain import windowed
from nq.inference.instances import InstanceDiedError, InstancePool
from nq.inference.load import ScorerSpec, load_scorer
from nq.inference.profile import Profile
from nq.inference.scorer import Part
from nq.model.spec import find_model
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.records import Columns
from tests.child_processes import children


@pytest.fixture(scope="module")
def spec(tiny_model: Path) -> ScorerSpec:
    return ScorerSpec(find_model(tiny_model), Profile.parse("prune+buckets+openvino"), 2)


@pytest.fixture(scope="module")
def some_parts(spec: ScorerSpec) -> list[Part]:
    """Parts of one example each."""
    tokenizer = load_tokenizer(spec.model.folder, spec.model.windows.compat)
    examples = islice(inputs.read_examples(bundled_sample()), 3)
    return [Part([windowed(one, tokenizer, spec.model.windows)]) for one in examples]


def assert_same_bytes(some: list[Columns], others: list[Columns]) -> None:
    for one, other in zip(some, others, strict=True):
        assert one.keys() == other.keys()
        assert all(one[name].tobytes() == other[name].tobytes() for name in one)


def processes() -> list[psutil.Process]:
    return children("run_instance")


@pytest.mark.slow
def test_instances_compute_the_bytes_of_one_process_on_cores_of_their_own(
    spec: ScorerSpec, some_parts: list[Part], caplog: pytest.LogCaptureFixture
) -> None:
    scorer = load_scorer(replace(spec, threads=1))
    expected = [scorer.scores(part.rows, part.examples) for part in some_parts]
    count = min(2, len(processor.cores()))
    with InstancePool(spec, count, 1) as pool:
        progress: list[int] = []
        futures = [pool.submit(p.rows, p.examples, progress.append) for p in some_parts]
        assert_same_bytes([future.result() for future in futures], expected)
        assert sum(progress) == sum(map(len, some_parts))
        assert len(set(pool.cores)) == count and (pool.device, pool.precision) == ("CPU", "float32")
        running = processes()
        for process, own in zip(running, pool.cores, strict=True):
            threads = [psutil.Process(thread.id) for thread in process.threads()]
            assert {tuple(thread.cpu_affinity()) for thread in threads} == {own}
            assert process.environ()["TF_NUM_INTRAOP_THREADS"] == "1"
        assert 0 < pool.counters.computed_windows == scorer.counters.computed_windows
        assert pool.counters.compile_s > 0
    assert not any(process.is_running() for process in running)
    assert not caplog.records


@pytest.mark.slow
def test_a_dead_instance_comes_back_and_what_kills_two_fails(
    spec: ScorerSpec, some_parts: list[Part], caplog: pytest.LogCaptureFixture
) -> None:
    part, *others = some_parts
    caplog.set_level(logging.WARNING)

    def kill(windows: int) -> None:
        for process in processes():
            process.kill()

    def kill_once(windows: int) -> None:
        completed.append(windows)
        if len(completed) == 1:
            kill(windows)

    with InstancePool(replace(spec, profile=Profile()), 1, 1) as pool:
        expected = pool.scores(part.rows, part.examples)
        bad = {name: column for name, column in part.rows.items() if name != "input_ids"}
        with pytest.raises(KeyError, match="input_ids"):
            pool.scores(bad, part.examples)
        completed: list[int] = []
        assert_same_bytes([pool.scores(part.rows, part.examples, kill_once)], [expected])
        assert sum(completed) == len(part)
        fatal = pool.submit(part.rows, part.examples, kill)
        waiting = [pool.submit(one.rows, one.examples) for one in (part, *others)]
        assert waiting[-1].cancel()
        with pytest.raises(InstanceDiedError, match=r"instance 1 of 1 .* killed"):
            fatal.result()
        assert_same_bytes([waiting[0].result()], [expected])
    assert len(caplog.records) >= 2
    assert caplog.records[0].getMessage().endswith("was killed by SIGKILL: it is started again")
