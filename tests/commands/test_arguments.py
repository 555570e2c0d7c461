"""Tests the arguments that commands share, and the parser of each command."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from nq.commands import arguments
from nq.commands.main import COMMANDS, console
from nq.config import AUTO, Settings, TrainConfig, WindowConfig
from nq.model.folder import ModelSettings, save_settings

OURS = [command for command in COMMANDS if command != "eval"]
"""The commands whose options are ours; those of eval are the official ones."""


def parse(add: Callable[[argparse.ArgumentParser], object], *argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add(parser)
    return parser.parse_args(argv)


# --- settings -----------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [WindowConfig, TrainConfig])
def test_every_field_is_an_option_with_help(cls: type[Settings]) -> None:
    parser = argparse.ArgumentParser()
    arguments.add_settings(parser, cls)
    text = " ".join(parser.format_help().split())
    for f in fields(cls):  # type: ignore[arg-type]
        assert f"--{f.name.replace('_', '-')}" in text
        default = f.metadata.get("shown_default", f.default)
        assert f"{f.metadata['help']} (default: {default})" in text


def test_settings_are_read_back() -> None:
    def add(parser: argparse.ArgumentParser) -> None:
        arguments.add_settings(parser, WindowConfig)

    args = parse(add, "--doc-stride", "64", "--compat", "bert-joint")
    expected = WindowConfig(doc_stride=64, compat="bert-joint")
    assert arguments.settings(WindowConfig, args) == expected
    base = WindowConfig(max_seq_length=256, doc_stride=32)
    assert arguments.settings(base, args) == WindowConfig(
        max_seq_length=256, doc_stride=64, compat="bert-joint"
    )
    assert arguments.settings(base, argparse.Namespace()) == base


@pytest.mark.parametrize(
    ("options", "own", "length"),
    [
        ((), None, 512),
        (("--compat", "bert-joint"), None, 384),
        (("--compat", "kisialiou"), None, 512),
        (("--compat", "bert-joint"), 256, 256),
        (("--compat", "bert-joint", "--max-seq-length", "320"), 256, 320),
        (("--compat", "bert-joint", "--max-seq-length", "512"), None, 512),
    ],
)
def test_compatibility_mode_decides_the_length_unless_told_otherwise(
    options: tuple[str, ...], own: int | None, length: int, tmp_path: Path
) -> None:
    if own:
        save_settings(tmp_path, ModelSettings(WindowConfig(max_seq_length=own)))
    args = parse(lambda parser: arguments.add_settings(parser, WindowConfig), *options)
    assert arguments.window_settings(args, tmp_path).max_seq_length == length


# --- types --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (arguments.positive, "0", "must be at least 1, got 0"),
        (arguments.positive, "1.5", "must be a whole number, got '1.5'"),
        (arguments.count, "-1", "must be at least 0, got -1"),
        (arguments.count, "many", "must be a whole number, got 'many'"),
        (arguments.number_in("[0, 1]"), "1.01", "must be a number in .*, got 1.01"),
        (arguments.number_in("[0, 1]"), "nan", "must be a number in .*, got nan"),
        (arguments.number_in("[0, 1]"), "much", "must be a number in .*, got much"),
        (arguments.profile, "fast", "unknown optimization 'fast'; valid are baseline, or mixed"),
        (arguments.profile, AUTO, "unknown optimization 'auto'"),
    ],
)
def test_other_texts_are_refused(kind: Callable[[str], object], text: str, message: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=message):
        kind(text)


# --- commands -----------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_printed_with_code_0(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        assert console([command, "--help"]) == 0
    except SystemExit as exit:  # the official evaluation exits as absl does
        assert command == "eval" and exit.code in (0, None)
    out, err = capsys.readouterr()
    assert out.startswith("usage: ") and not err


@pytest.mark.parametrize("command", OURS)
def test_an_unknown_option_is_a_usage_error(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert console([command, "--no-such-option"]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith(f"nq {command}: error: ") and err.count("\n") == 1


def test_the_console_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert console([]) == console(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(out.count(f"\n  {name} ") == 2 for name in COMMANDS)
    assert console(["--version"]) == 0
    assert capsys.readouterr().out.strip().count(".") == 2
    assert console(["aks"]) == 2
    assert "unknown command 'aks' (did you mean 'ask'?)" in capsys.readouterr().err
