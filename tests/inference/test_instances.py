"""Processes that score beside each other: the same bytes, cores of their own, and their deaths."""

from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
import pytest

from nq import processor
from nq.bundle import bundled_sample
from nq.inference.instances import InstancePool
from nq.inference.load import ScorerSpec, load_scorer
from nq.inference.profile import Profile
from nq.inference.scorer import Part, Steps, advance, windowed
from nq.model.model import Model
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.questions import read_examples
from nq.records import Columns
from nq.worker import WorkerDiedError
from tests.support.child_processes import children


@pytest.fixture(scope="module")
def spec(tiny_model: Path) -> ScorerSpec:
    return ScorerSpec(Model.open(tiny_model), Profile("prune+buckets+openvino"), 2)


@pytest.fixture(scope="module")
def some_parts(spec: ScorerSpec) -> list[Part]:
    """Parts of one example each."""
    tokenizer = load_tokenizer(spec.model.folder, spec.model.windows.compat)
    examples = islice(read_examples(bundled_sample()), 3)
    return [Part([windowed(one, tokenizer, spec.model.windows)]) for one in examples]


def assert_same_bytes(some: list[Columns], others: list[Columns]) -> None:
    for one, other in zip(some, others, strict=True):
        assert one.keys() == other.keys()
        assert all(one[name].tobytes() == other[name].tobytes() for name in one)


def processes() -> list[psutil.Process]:
    return children("instance ")


@pytest.mark.slow
def test_instances_compute_the_bytes_of_one_process_on_cores_of_their_own(
    spec: ScorerSpec, some_parts: list[Part], caplog: pytest.LogCaptureFixture
) -> None:
    scorer = load_scorer(replace(spec, threads=1))
    expected = [scorer.scores(part.rows, part.examples) for part in some_parts]
    count = min(2, len(processor.cores()))
    with closing(InstancePool(spec, count, 1)) as pool:
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


def finish(steps: Steps) -> Columns:
    while isinstance(result := advance(steps), int):
        pass
    return result


@pytest.mark.slow
@pytest.mark.parametrize(
    ("profile", "reader"), [("grappler", "tiny_mpnet"), ("mixed+rescore", None)]
)
def test_an_instance_computes_the_same_bytes_in_steps_between_those_of_other_parts(
    profile: str,
    reader: str | None,
    spec: ScorerSpec,
    some_parts: list[Part],
    request: pytest.FixtureRequest,
) -> None:
    """One of a reader's windows too, and of those that are rescored."""
    model, ranker = spec.model, spec.model.folder
    if reader:
        model = Model.open(request.getfixturevalue(reader), ranker=ranker, read_blocks=2)
    spec = replace(spec, model=model, profile=Profile(profile), batch_size=4, adaptive=True)
    with closing(InstancePool(spec, 1, 1)) as pool:
        expected = [pool.scores(part.rows, part.examples) for part in some_parts]
        computed = pool.counters.computed_windows
        (instance,) = pool.instances
        waiting = [instance.steps(part.rows, part.examples) for part in some_parts]
        results: list[Any] = [0] * len(waiting)
        turns = 0
        while any(isinstance(result, int) for result in results):
            for number, steps in enumerate(waiting):
                if isinstance(results[number], int):
                    results[number] = advance(steps)
                    turns += 1
        assert turns > computed / 4
        assert_same_bytes(results, expected)


@pytest.mark.slow
def test_steps_begin_again_in_a_new_process(spec: ScorerSpec, some_parts: list[Part]) -> None:
    part, other, *_ = some_parts
    with closing(InstancePool(replace(spec, profile=Profile("openvino")), 1, 1)) as pool:
        expected = [pool.scores(one.rows, one.examples) for one in (part, other)]
        (instance,) = pool.instances
        killed, waiting = (instance.steps(one.rows, one.examples) for one in (part, other))
        assert advance(killed) == advance(waiting) == spec.batch_size
        processes()[0].kill()
        assert_same_bytes([finish(killed), finish(waiting)], expected)


@pytest.mark.slow
def test_an_error_or_two_deaths_of_a_part_cost_no_other_part(
    spec: ScorerSpec, some_parts: list[Part]
) -> None:
    part, *others = some_parts

    def kill(windows: int) -> None:
        for process in processes():
            process.kill()

    with closing(InstancePool(replace(spec, profile=Profile("openvino")), 1, 1)) as pool:
        expected = pool.scores(part.rows, part.examples)
        bad = {name: column for name, column in part.rows.items() if name != "input_ids"}
        with pytest.raises(KeyError, match="input_ids"):
            pool.scores(bad, part.examples)
        fatal = pool.submit(part.rows, part.examples, kill)
        waiting = [pool.submit(one.rows, one.examples) for one in (part, *others)]
        assert waiting[-1].cancel()
        with pytest.raises(WorkerDiedError, match="1 of 1"):
            fatal.result()
        assert_same_bytes([waiting[0].result()], [expected])
