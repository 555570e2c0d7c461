"""TensorFlow is imported without output, or the error message says what to run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def in_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


IMPORT = (
    "import argparse, sys; from nq.commands import arguments, terminal; "
    "from nq.model.runtime import import_tensorflow; p = argparse.ArgumentParser(); "
    "arguments.add_common(p); "
    "sys.exit(terminal.run(lambda a: import_tensorflow() and 0, p, []))"
)
INSTALL = "run pip install 'nq-pipeline[cpu]' (or 'nq-pipeline[gpu]' for an NVIDIA GPU)"


@pytest.mark.slow
def test_tensorflow_is_imported_without_output() -> None:
    process = in_python(IMPORT)
    assert (process.returncode, process.stdout, process.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, f"TensorFlow is not installed: {INSTALL}\n"),
        ("raise ModuleNotFoundError(name='tensorflow')", "TensorFlow is not installed"),
        ("raise ImportError('libfoo.so: wrong ELF class')", "TensorFlow is broken (libfoo.so: wr"),
        ("import nothing_of_this_name", "No module named 'nothing_of_this_name'"),
    ],
)
def test_a_missing_or_broken_tensorflow_is_one_line(
    tmp_path: Path, content: str | None, line: str
) -> None:
    package = tmp_path / "tensorflow"
    package.mkdir()
    if content is not None:
        (package / "__init__.py").write_text(content)
    empty = "import sys, types; sys.modules['tensorflow'] = types.ModuleType('tensorflow'); "
    process = in_python((empty if content is None else "") + IMPORT, PYTHONPATH=str(tmp_path))
    assert (process.returncode, process.stdout) == (1, "")
    assert process.stderr.startswith(f"nq: error: {line}")
    assert process.stderr.count("\n") == 1
