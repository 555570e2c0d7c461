"""This machine as a device, measured for real."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nq import processor
from nq.config import ModelConfig
from nq.planning import here

SMALL = ModelConfig(hidden_size=64, num_attention_heads=2, intermediate_size=128)


@pytest.mark.extended
def test_the_machine_is_measured_and_divided() -> None:
    cores = len(processor.cores())
    group = here.measure(SMALL, batch=2, length=16)
    assert group.count == cores
    whole, part = group.whole, group.device
    assert set(whole.flop_per_s) == set(here.PROFILES)
    assert all(speed > 1e6 for speed in whole.flop_per_s.values())
    assert whole.memory_bytes_per_s > 1e8
    if cores > 1:
        assert (part.name, group.threads) == ("core", 1)
        assert part.memory_bytes * cores == pytest.approx(whole.memory_bytes)


def test_cores_that_cannot_be_divided_are_refused() -> None:
    cores = len(processor.cores())
    with pytest.raises(ValueError, match=f"divides {cores} cores: expected a divisor of {cores}"):
        here.measure(SMALL, cores + 1)


@pytest.mark.parametrize(("text", "expected"), [("1000000", 1000000), ("max", None)])
def test_a_container_may_limit_the_memory(text: str, expected: int | None, tmp_path: Path) -> None:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = tmp_path / "memory.max"
    limit.write_text(text)
    assert here.memory_bytes(limit) == (expected or total)
    assert here.memory_bytes(tmp_path / "none") == total
