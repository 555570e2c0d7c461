"""Tests the completion scripts, that of bash in a real shell."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from nq.commands.main import console

COMPLETE = """
source ./script
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
$(complete -p nq | sed 's/.*-F \\([^ ]*\\).*/\\1/')
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("completion")
    (folder / "dev.jsonl").touch()
    (folder / "model").mkdir()
    return folder


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("nq an", {"answer"}),
        ("nq answer --pro", {"--profile"}),
        ("nq answer --profile mi", {"mixed"}),
        ("nq answer --data de", {"dev.jsonl"}),
        ("nq train --init mo", {"model"}),
        ("nq answer --decision b", {"bert-joint"}),
        ("nq eval --gold", {"--gold_path"}),
    ],
)
def test_bash_completes(
    words: str, expected: set[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert console(["completion", "bash"]) == 0
    (folder / "script").write_text(capsys.readouterr().out, "utf-8")
    bash = shutil.which("bash")
    assert bash is not None
    done = subprocess.run(
        [bash, "-c", COMPLETE, "bash", *words.split(" ")],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(done.stdout.split()) == expected
    assert not done.stderr
