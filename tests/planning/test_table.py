"""What a plan says in words: the conclusion, and figures that there are not."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from nq.planning import devices, strategies, table
from nq.planning.costs import Workload
from nq.planning.devices import Device, Group
from nq.planning.models import SHAPES

LARGE = SHAPES["bert-large"]
V100 = devices.known()["v100"].device


def concluded(workload: Workload, count: int, device: Device = V100) -> str:
    plans = strategies.plans(workload, Group(device, count, device))
    text = table.table("bert-large", workload, plans)
    conclusion = table.conclusion(workload, plans)
    assert text.endswith(f"\n{conclusion}\n{table.PREDICTED}")
    return conclusion


@pytest.mark.parametrize(
    ("batch", "memory_gb", "expected"),
    [
        (64, 16, "Data parallel on 8 x V100 is the fastest: split only a model that does not fit"),
        (1, 16, "is the fastest for batches of 1 window, although the model fits on one device"),
        (64, 2, "is the fastest of what fits: no device holds the whole model."),
        (64, 1, "The model fits nowhere: add devices or memory, or choose a smaller model"),
    ],
)
def test_the_conclusion_depends_on_what_fits(batch: int, memory_gb: int, expected: str) -> None:
    device = replace(V100, memory_bytes=1e9 * memory_gb)
    assert expected in concluded(Workload(LARGE, batch, 512), 8, device)


def test_json_has_no_infinite_numbers() -> None:
    work = Workload(LARGE, 8, 512)
    plans = strategies.plans(work, Group(V100, 1, V100))
    values = [table.to_dict(plan) for plan in plans]
    assert json.loads(json.dumps(values, allow_nan=False))[0]["fits"]
    assert [value["batch_s"] is None for value in values] == [False, True, True, True, True]
