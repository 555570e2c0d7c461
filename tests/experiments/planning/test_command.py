"""The command: its table, its conclusion, its JSON, and one line for bad input."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace

import pytest

from experiments.planning import devices, models, strategies, table
from experiments.planning.__main__ import WINDOWS_PER_QUESTION, main
from experiments.planning.costs import Workload
from experiments.planning.devices import Group
from nq.model.shapes import count_weights

V100S = ["--model", "bert-large", "--batch", "32", "--length", "512", "--devices", "v100", "v100:8"]
SESSION = re.compile(
    r"^\$ python -m experiments\.planning (.*?[^\\])\n(.*?)^```", re.DOTALL | re.MULTILINE
)


@pytest.mark.parametrize("number", [0, 1])
def test_the_documentation_shows_what_the_command_prints(
    number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    page = devices.KNOWN.with_name("README.md").read_text("utf-8")
    sessions = SESSION.findall(page)
    assert len(sessions) == 2
    command, shown = sessions[number]
    assert main(shlex.split(command.replace("\\\n", ""))) == 0
    assert capsys.readouterr().out == shown


def test_json_has_every_strategy_with_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*V100S, "--questions", "10", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["windows"] == 10 * WINDOWS_PER_QUESTION
    assert values["gflop_per_window"] == pytest.approx(335, rel=0.01)
    rows = values["plans"]
    best = rows[0]
    assert (best["strategy"], best["group"], best["fits"]) == ("data parallel", "8 x V100", True)
    assert best["windows_per_s"] == pytest.approx(32 / best["batch_s"])
    assert best["cost"] == pytest.approx(best["hours"] * 8 * 3.06)
    assert rows == sorted(rows, key=lambda row: (not row["fits"], row["batch_s"] or 0))
    reasons = [row for row in rows if not row["fits"]]
    assert all(row["reason"] and row["batch_s"] is None for row in reasons)


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
    device = replace(devices.load(devices.KNOWN)["v100"], memory_gb=memory_gb)
    work = Workload(models.SHAPES["bert-large"], batch, 512)
    plans = strategies.plans(work, Group(device, 8, device))
    assert expected in table.conclusion(work, plans)
    text = table.table("bert-large", work, plans)
    assert text.endswith(f"\n{table.conclusion(work, plans)}\n{table.PREDICTED}")


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--length", "513", "513 is beyond the model's 512 positions"),
        ("--type", "int8", "V100 has no FLOP/s for int8: choose --type float32 or float16"),
        ("--devices", "here:65", "the count of here is 65: expected 1 to 64"),
        ("--devices", "v10", "no device 'v10': expected v100, a100, h100, xeon, here or a TOML"),
        ("--model", "bert-lage", "no model 'bert-lage'"),
    ],
)
def test_bad_input_is_one_line(
    option: str, value: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*V100S, option, value]) == 1
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1 and message in err


@pytest.mark.parametrize(
    ("name", "millions"), [("bert-base", 109), ("bert-large", 335), ("rembert", 574)]
)
def test_shapes_have_the_weights_of_their_publications(name: str, millions: int) -> None:
    assert count_weights(models.SHAPES[name]) / 1e6 == pytest.approx(millions, rel=0.01)
