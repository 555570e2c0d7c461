"""Tests the terminal side of the commands: exit codes, one-line errors, logs and results."""

import argparse
import io
import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from nq.commands import arguments, terminal
from nq.config import WindowConfig

ROOT = Path(__file__).parents[2]


def parser() -> terminal.Parser:
    parser = terminal.Parser("nq test", "A test.")
    arguments.add_common(parser)
    arguments.add_settings(parser, WindowConfig)
    return parser


# --- exit codes ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            FileNotFoundError(2, "No such file or directory", "a b"),
            "a b: No such file or directory",
        ),
        (OSError(28, "No space left on device"), "standard output: No space left on device"),
        (ImportError("x.so: failed to map segment from shared object"), "out of memory: end other"),
        (ValueError("two\n  lines"), "two lines"),
        (MemoryError(), "out of memory"),
        (ModuleNotFoundError("No module named 'x'"), "No module named 'x': run pip install"),
    ],
)
def test_errors_that_a_user_can_cause_are_one_line(
    error: Exception, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def command(args: argparse.Namespace) -> int:
        raise error

    assert terminal.run(command, parser(), []) == 1
    stdout, stderr = capsys.readouterr()
    assert stdout == ""
    assert stderr.startswith(f"nq: error: {line}")
    assert stderr.count("\n") == 1
    assert terminal.run(command, parser(), ["--verbose"]) == 1
    verbose = capsys.readouterr().err
    assert "Traceback (most recent call last)" in verbose and verbose.endswith(stderr)


def run_shell(body: str, streams: str) -> tuple[int, bytes]:
    """Runs a command with a body, its streams as a shell sets them: exit code and stderr."""
    code = (
        "import os, sys; from tests.commands.test_terminal import *\n"
        f"def command(args): {body}; return 0\n"
        "sys.exit(terminal.run(command, parser(), []))"
    )
    shell = ["bash", "-o", "pipefail", "-c", f'"$0" -c "$1" {streams}', sys.executable, code]
    done = subprocess.run(shell, cwd=ROOT, check=False, capture_output=True)
    return done.returncode, done.stderr


def test_a_closed_pipe_ends_the_command_quietly_and_a_full_output_is_named() -> None:
    much = "print('x' * 10**6)"
    assert run_shell(much, "| true") == (1, b"")
    code, error = run_shell(much, "> /dev/full")
    assert code == 1
    assert error.startswith(b"nq: error: standard output: No space left on device\n")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_do_not_get_the_output_of_others(tmp_path: Path, closed: str) -> None:
    body = f"kept = open({str(tmp_path / 'kept')!r}, 'wb'); os.write(1, b'a'); os.write(2, b'b')"
    body += "; print('out'); print('err', file=sys.stderr); sys.stderr.flush()"
    assert run_shell(body, closed)[0] == 0
    assert (tmp_path / "kept").read_bytes() == b""


# --- output -------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_characters_that_stdout_lacks_are_escaped_or_replaced(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = {"path": "Straße/\udcff", "answer": "» 1986 …"}

    def command(args: argparse.Namespace) -> int:
        if args.json:
            terminal.print_json(result)
        else:
            print(*result.values(), sep="\n")
        return 0

    outputs = list[str]()
    for argv in (["--json"], []):
        buffer = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(buffer, encoding))
        assert terminal.run(command, parser(), argv) == 0
        outputs.append(buffer.getvalue().decode(encoding))
    assert json.loads(outputs[0]) == result
    assert outputs[1].count("\n") == 2 and "1986" in outputs[1]


def test_control_characters_of_data_are_visible(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.log_to_stderr()
    logging.getLogger("nq.formats").warning("a\x1b[31m\nb")
    logging.getLogger("beam").warning("a\x1b[31m\nb")
    terminal.print_json({"answer": "\x1b\x9b31m\x7f\ud800é"})
    printed = capsys.readouterr()
    assert printed.err == ("nq: warning: a\\u001b[31m\\u000ab\nbeam: warning: a\\u001b[31m\nb\n")
    assert printed.out == '{"answer": "\\u001b\\u009b31m\\u007f\\ud800é"}\n'
    assert json.loads(printed.out) == {"answer": "\x1b\x9b31m\x7f\ud800é"}
    assert terminal.explain(ValueError("a\x1b[2J\nb")) == r"a\u001b[2J b"
    assert terminal.explain(OSError(2, "gone", "\x1b.jsonl")) == r"\u001b.jsonl: gone"
