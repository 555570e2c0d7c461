"""The README says what is there: every command, optimization, file and option."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path

import pytest

from nq.commands.main import COMMANDS
from nq.evaluation import nq_eval
from nq.inference.profile import BASELINE, BASELINE_HELP, OPTIMIZATIONS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
OF_OTHERS = {"--backend-store-uri"}
EXPERIMENTS = (
    "experiments.benchmark",
    "experiments.errors.__main__",
    "experiments.margin",
    "experiments.peers.__main__",
    "experiments.string_match",
    "experiments.sweep",
)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_documented(name: str) -> None:
    module = COMMANDS[name][0].removesuffix(".__main__")
    assert f"`nq {name}`" in README
    assert f"python -m {module}" in README or f"nq {name} " in README


@pytest.mark.parametrize("name", OPTIMIZATIONS)
def test_every_optimization_is_in_the_table(name: str) -> None:
    assert f"| `{name}` | {OPTIMIZATIONS[name].help}" in README


def test_baseline_is_in_the_table() -> None:
    assert f"| `{BASELINE}` | {BASELINE_HELP} |" in README


def test_files_that_are_named_are_there() -> None:
    named = set(re.findall(r"`((?:nq|eval|experiments|tests)/[\w/.]+)`", README))
    assert len(named) > 20
    assert not [name for name in named if not (ROOT / name).exists()]


def test_modules_that_are_run_are_there() -> None:
    named = set(re.findall(r"python -m\s([\w.]+)", README))
    assert not [name for name in named if importlib.util.find_spec(name) is None]
    assert {name.removesuffix(".__main__") for name in EXPERIMENTS} <= named


def test_options_that_are_named_are_known() -> None:
    known = set(OF_OTHERS)
    commands = (module for module, _ in COMMANDS.values() if module != nq_eval.__name__)
    for name in (*commands, *EXPERIMENTS):
        known |= set(importlib.import_module(name).parser()._option_string_actions)
    source = Path(str(nq_eval.__file__)).read_text(encoding="utf-8")
    known |= set(re.findall(r"\"(--[\w-]+)\"", source))
    named = set(re.findall(r"(?<![\w-])--[a-z][\w-]+", README))
    assert named and named <= known
