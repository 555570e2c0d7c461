"""TensorFlow is imported without output, or the error message says what to run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.child_processes import python

IMPORT = (
    "import argparse, sys; from nq.commands import arguments, terminal; "
    "from nq.model.runtime import import_tensorflow; p = argparse.ArgumentParser(); "
    "arguments.add_common(p); "
    "sys.exit(terminal.run(lambda a: import_tensorflow() and 0, p, []))"
)
BROKEN = {
    "": "TensorFlow is not installed: run pip install 'nq-pipeline[cpu]' (or 'nq-pipeline[gpu]' ",
    "raise ModuleNotFoundError(name='tensorflow')": "TensorFlow is not installed",
    "raise ImportError('libfoo.so: wrong ELF class')": "TensorFlow is broken (libfoo.so: wr",
    "import nothing_of_this_name": "No module named 'nothing_of_this_name'",
}


def run_import(path: Path, before: str = "") -> subprocess.CompletedProcess[str]:
    return python("-c", before + IMPORT, PYTHONPATH=str(path))


@pytest.mark.slow
def test_tensorflow_is_imported_without_output(tmp_path: Path) -> None:
    process = run_import(tmp_path)
    assert (process.returncode, process.stdout, process.stderr) == (0, "", "")


def test_too_little_address_space_is_one_line(tmp_path: Path) -> None:
    limited = "import resource; resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30)); "
    process = run_import(tmp_path, limited)
    assert (process.returncode, process.stdout) == (1, "")
    assert process.stderr.startswith("nq: error: too little memory: raise ulimit -v from 2048 MB")
    assert process.stderr.count("\n") == 1


@pytest.mark.parametrize("content", BROKEN)
def test_a_missing_or_broken_tensorflow_is_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "__init__.py").write_text(content)
    process = run_import(tmp_path)
    assert (process.returncode, process.stdout) == (1, "")
    assert process.stderr.startswith(f"nq: error: {BROKEN[content]}")
    assert process.stderr.count("\n") == 1
