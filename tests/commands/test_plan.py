"""Tests ``nq plan``: its table, its JSON, and one line for each kind of bad input."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from nq.commands.main import console
from nq.commands.plan import WINDOWS_PER_QUESTION

V100S = ["--model", "bert-large", "--batch", "32", "--length", "512", "--devices", "v100", "v100:8"]
TINY_DEVICE = """
[card]
memory_gb = 0.5
memory_gb_per_s = 100
link_gb_per_s = 10
link_latency_us = 10
engine_gb = 0.2
tflops = {float32 = 1}
sustained = {float32 = 0.5}
"""


def planned(
    arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0
) -> dict[str, Any]:
    """Returns what the command prints as JSON."""
    assert console(["plan", *arguments, "--json"]) == code
    values: dict[str, Any] = json.loads(capsys.readouterr().out)
    return values


def test_the_table_ranks_and_concludes(capsys: pytest.CaptureFixture[str]) -> None:
    assert console(["plan", *V100S, "--type", "float16", "--windows", "1000000"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "bert-large: 24 layers, 335 M weights, 335.0 GFLOP a window"
    assert lines[1] == "batches of 32 windows of 512 pieces in float16, 1,000,000 windows"
    head = lines.index(next(line for line in lines if line.startswith("strategy")))
    assert lines[head + 1].startswith("data parallel        8 x V100")
    assert sum(line.startswith("single device") for line in lines) == 1  # not once for each group
    assert lines[-3].startswith("not on 1 x V100: data parallel, pipeline, tensor, tensor x pipe")
    assert lines[-2].startswith("Data parallel on 8 x V100 is the fastest: split only a model that")


def test_json_has_every_strategy_with_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    values = planned([*V100S, "--questions", "10"], capsys)
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
    ("options", "code", "message"),
    [
        (["--length", "513"], 1, "513 is beyond the model's 512 positions"),
        (["--windows-per-question", "5"], 2, "--windows-per-question needs --questions"),
        (["--type", "int8"], 1, "V100 has no FLOP/s for int8: choose --type float32 or float16"),
        (["--devices", "here:1000003"], 1, "expected 1 to 64"),
        (["--devices", "wrong.toml"], 1, "wrong.toml: [card] memory_gb is 1e+30: expected"),
        (["--model", "bert-lage"], 1, "or a shape: bert-base, bert-large, rembert"),
    ],
)
def test_bad_input_is_one_line(
    options: list[str],
    code: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("wrong.toml").write_text(TINY_DEVICE.replace("0.5\n", "1e30\n", 1), encoding="utf-8")
    base = {"--batch": "32", "--length": "512", "--devices": "v100", "--model": "bert-large"}
    given = dict(zip(options[::2], options[1::2], strict=True))
    arguments = [word for pair in {**base, **given}.items() for word in pair]
    assert console(["plan", *arguments]) == code
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1 and message in err


SESSION = re.compile(r"^\$ nq (plan .*?[^\\])\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("number", [0, 1])
def test_the_documentation_shows_what_the_command_prints(
    number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "planning.md").read_text("utf-8")
    sessions = SESSION.findall(page)
    assert len(sessions) == 2
    command, shown = sessions[number]
    assert console(shlex.split(command.replace("\\\n", ""))) == 0
    assert capsys.readouterr().out == shown
