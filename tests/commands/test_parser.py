"""Tests the parsers of all commands: errors in one line, suggestions, examples that parse."""

from __future__ import annotations

import importlib
import shlex

import pytest

from nq.commands.main import COMMANDS, console, module_of
from nq.commands.terminal import Parser

OURS = [command for command in COMMANDS if command != "eval"]


def parser_of(command: str) -> Parser:
    parser: Parser = importlib.import_module(module_of(command)).parser()
    return parser


@pytest.mark.parametrize("command", OURS)
def test_examples_in_the_help_are_valid(command: str) -> None:
    parser = parser_of(command)
    assert parser.examples
    for example in parser.examples:
        assert f"\n  {example}\n" in parser.format_help()
        words = shlex.split(example.replace("$(", "").replace(")", ""))
        words = shlex.split(" ".join(words)) if words[0] == "eval" else words
        own = words[words.index("nq") :]
        assert own[1] == command
        arguments = own[2 : own.index(">")] if ">" in own else own[2:]
        parser.parse_known_args(arguments)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("aswer", "nq: error: unknown command 'aswer' (did you mean 'answer'?); known are answer,"),
        ("answer --porfile mixed", "--porfile mixed (did you mean '--profile'?); nq answer --help"),
        ("answer --limit=x", "argument --limit: must be a whole number, got 'x'; nq answer --help"),
        ("answer --profile mixd", "unknown optimization 'mixd' (did you mean 'mixed'?); valid are"),
        (
            "ask who --tpo=3",
            "unrecognized arguments: --tpo=3 (did you mean '--top'?); nq ask",
        ),
        ("ask who page --zzz \x1b[31m", r"unrecognized arguments: --zzz \u001b[31m; nq ask --help"),
        ("clean -x", "unrecognized arguments: -x; nq clean --help"),
        ("tune --data x", "the following arguments are required: --model; nq tune --help"),
    ],
)
def test_errors_of_usage_are_one_line(
    line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert console(line.split(" ")) == 2
    out, err = capsys.readouterr()
    assert not out
    assert message in err
    assert err.count("\n") == 1
