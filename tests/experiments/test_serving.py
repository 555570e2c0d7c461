"""Tests the measurement of the server with few requests of the tiny model."""

from pathlib import Path

import pytest

from experiments.serving.__main__ import TARGETS, main, table
from tests.experiments.conftest import RunCommand

pytestmark = pytest.mark.extended


def test_the_command_measures_a_server(tiny_model: Path, run_command: RunCommand) -> None:
    options = ["--model", tiny_model, "--profile", "baseline", "--max-body-mb", 1]
    options += ["--clients", 4, "--questions", 8, "--rounds", 1, "--arrivals", 8]
    figures = run_command(main, *options, "--requests", 60)
    assert (figures["requests"], figures["good"]) == (60, 40)
    assert figures["crashes"] == figures["lost"] == figures["misjudged"] == 0
    assert min(figures[name] for name in ("one_per_s", "many_per_s", "alone_s", "load_p95_s")) > 0
    assert figures["gain"] == pytest.approx(figures["many_per_s"] / figures["one_per_s"])
    assert figures["memory_ratio"] == pytest.approx(figures["last_mb"] / figures["first_mb"])
    text = table(figures)
    assert text.count(": reached") + text.count(": missed") == len(TARGETS)
    missed = table({**figures, "p95_ratio": 2 * TARGETS["p95_ratio"][1]})
    assert "at most 2: missed" in missed and "at most 0: reached" in missed
