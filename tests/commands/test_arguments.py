"""Tests the parsers of all commands: settings as options, help, errors in one line, examples."""

import argparse
import importlib
import shlex
from pathlib import Path

import pytest

from nq.bundle import bundled_sample
from nq.commands import arguments, terminal
from nq.commands.main import COMMANDS
from nq.config import WindowConfig
from nq.model.folder import ModelFolder, ModelSettings, save_settings
from tests.conftest import Commands

OURS = [command for command in COMMANDS if command != "eval"]
"""The commands whose options are ours; those of eval are the official ones."""


@pytest.mark.parametrize(
    ("options", "own", "length"),
    [
        ("", None, 512),
        ("--set compat=bert-joint", None, 384),
        ("--set compat=bert-joint", 256, 256),
        ("--set compat=bert-joint --set max_seq_length=320", 256, 320),
        ("--set compat=bert-joint,max_seq_length=512", None, 512),
    ],
)
def test_settings_are_read_back_over_those_of_the_model(
    options: str, own: int | None, length: int, tmp_path: Path
) -> None:
    if own:
        save_settings(tmp_path, ModelSettings(WindowConfig(max_seq_length=own, doc_stride=32)))
    parser = argparse.ArgumentParser()
    arguments.add_set(parser, WindowConfig)
    windows = arguments.window_settings(
        parser.parse_args(options.split()), ModelFolder(tmp_path).settings
    )
    assert (windows.max_seq_length, windows.doc_stride) == (length, 32 if own else 128)


@pytest.mark.parametrize("command", OURS)
def test_help_is_printed_with_valid_examples(command: str, commands: Commands) -> None:
    out = commands.out(command, "--help")
    assert out.startswith("usage: ") and not commands.err
    parser: terminal.Parser = importlib.import_module(f"nq.commands.{command}").parser()
    assert parser.examples
    for example in parser.examples:
        assert f"\n  {example}\n" in out
        words = shlex.split(example.replace("$(", "").replace(")", ""))
        words = shlex.split(" ".join(words)) if words[0] == "eval" else words
        own = words[words.index("nq") :]
        assert own[1] == command
        parser.parse_known_args(own[2 : own.index(">")] if ">" in own else own[2:])


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("aswer", "'answer'"),
        ("answer --porfile mixed", "'--profile'"),
        ("answer --limit 0", "--limit"),
        ("answer --set doc_strid=12", "'doc_stride'"),
        ("ask who --set doc_stride=x", "'x'"),
        ("answer --runner FlinkRunner --keep-scores", "--keep-scores"),
        ("answer --max-loss 0.1", "--against"),
        ("ask", "nq ask --help"),
        (f"ask {__file__} who", __file__),
        (f"ask {bundled_sample()}", "nq answer --data "),
        (f"ask who {__file__} -", "standard input"),
        ("ask who https://example.org/lake", "https://example.org/lake"),
    ],
)
def test_errors_of_usage_are_one_line(
    line: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: Commands
) -> None:
    monkeypatch.chdir(tmp_path)
    assert named in commands.error(*line.split(" "), code=2)
    assert not list(tmp_path.iterdir())
