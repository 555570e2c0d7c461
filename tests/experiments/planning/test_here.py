"""This machine as a device, measured for real."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from experiments.planning import here
from experiments.planning.costs import Workload
from nq import processor
from nq.model.config import ModelConfig

SMALL = Workload(ModelConfig(hidden_size=64, num_attention_heads=2, intermediate_size=128), 2, 16)


@pytest.mark.extended
def test_the_machine_is_measured_and_divided() -> None:
    cores = processor.cores()
    group = here.measure(SMALL, cores)
    assert group.count == len(cores)
    whole, part = group.whole, group.device
    assert set(whole.flop_per_s) == set(part.flop_per_s) == set(here.PROFILES)
    assert all(speed > 1e6 for speed in whole.flop_per_s.values())
    assert whole.memory_gb_per_s > 0.1
    if len(cores) > 1:
        assert part.name == "core"
        assert part.memory_gb * len(cores) == pytest.approx(whole.memory_gb)


def test_cores_that_cannot_be_divided_are_refused() -> None:
    with pytest.raises(ValueError, match=r"here:3 divides 2 cores: expected a divisor of 2"):
        here.measure(SMALL, (0, 1), 3)


@pytest.mark.parametrize(("text", "expected"), [("1000000", 1000000), ("max", None)])
def test_a_container_may_limit_the_memory(text: str, expected: int | None, tmp_path: Path) -> None:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = tmp_path / "memory.max"
    limit.write_text(text)
    assert here.memory_bytes(limit) == (expected or total)
    assert here.memory_bytes(tmp_path / "none") == total
