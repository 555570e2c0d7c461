"""TensorFlow: imported without a word, or with one that helps."""

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


def test_held_stderr_is_dropped_if_all_goes_well(capfd: pytest.CaptureFixture[str]) -> None:
    with runtime.held_stderr():
        write("noise\n")
    write("after\n")
    assert capfd.readouterr().err == "after\n"


def test_held_stderr_is_shown_if_it_fails(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ImportError), runtime.held_stderr():
        write("cause\n")
        raise ImportError
    assert capfd.readouterr().err == "cause\n"


def test_held_stderr_is_dropped_if_it_is_interrupted(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), runtime.held_stderr():
        write("noise\n")
        raise KeyboardInterrupt
    assert capfd.readouterr().err == ""


IMPORT = (
    "import argparse, sys; from nq.commands import terminal; "
    "from nq.model.runtime import import_tensorflow; p = argparse.ArgumentParser(); "
    "terminal.add_common(p); "
    "sys.exit(terminal.run(lambda a: import_tensorflow() and 0, p, []))"
)
INSTALL = "pip install 'nq[cpu]', or 'nq[gpu]' for an NVIDIA GPU"


def test_tensorflow_is_imported_quietly() -> None:
    found = in_python(IMPORT)
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, f"TensorFlow is not installed: {INSTALL}"),
        ("raise ModuleNotFoundError(name='tensorflow')", "TensorFlow is not installed"),
        ("raise ImportError('libfoo.so: wrong ELF class')", "TensorFlow is broken (libfoo.so: wr"),
        ("import nothing_of_this_name", "No module named 'nothing_of_this_name'"),
    ],
)
def test_tensorflow_that_is_missing_or_broken(
    tmp_path: Path, content: str | None, line: str
) -> None:
    package = tmp_path / "tensorflow"
    package.mkdir()
    if content is not None:
        (package / "__init__.py").write_text(content)
    hide = (
        ""
        if content is not None
        else "import sys; sys.path[:] = [p for p in sys.path if 'site-packages' not in p]; "
    )
    found = in_python(hide + IMPORT, PYTHONPATH=str(tmp_path))
    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr.startswith(f"nq: error: {line}")
    assert found.stderr.count("\n") == 1


def test_what_tensorflow_brings_is_not_collected_again_and_again() -> None:
    found = in_python(
        "import gc; from nq.model.runtime import import_tensorflow; import_tensorflow(); "
        "print(gc.isenabled(), gc.get_freeze_count() > 100_000, len(gc.get_objects()) < 10_000)"
    )
    assert found.stdout == "True True True\n"
