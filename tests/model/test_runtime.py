"""TensorFlow is imported without output, or the error message says what to run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nq.model import runtime

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


def write(text: str) -> None:
    """To file descriptor 2, as C++ does."""
    os.write(2, text.encode())


def test_stderr_is_discarded_after_success(capfd: pytest.CaptureFixture[str]) -> None:
    with runtime.suppressed_stderr():
        write("noise\n")
    write("after\n")
    assert capfd.readouterr().err == "after\n"


def test_stderr_is_written_after_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ImportError), runtime.suppressed_stderr():
        write("WARNING: All log messages before absl::InitializeLog() is called are written to X\n")
        write("I0000 00:00:1795398088.657867     383 port.cc:153] oneDNN custom operations\n")
        write("cause\n")
        raise ImportError
    assert capfd.readouterr().err == "cause\n"


def test_stderr_is_discarded_after_an_interrupt(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), runtime.suppressed_stderr():
        write("noise\n")
        raise KeyboardInterrupt
    assert capfd.readouterr().err == ""


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


@pytest.mark.slow
def test_objects_of_tensorflow_are_excluded_from_garbage_collection() -> None:
    process = in_python(
        "import gc; from nq.model.runtime import import_tensorflow; import_tensorflow(); "
        "print(gc.isenabled(), gc.get_freeze_count() > 100_000, len(gc.get_objects()) < 10_000)"
    )
    assert process.stdout == "True True True\n"
