"""Tests that child processes start alike, and run no Python file of the working folder."""

import subprocess
from pathlib import Path

import psutil
import pytest

from nq import child
from tests.child_processes import ROOT, wait_until

NAMES = ("html", "json", "mlflow", "nq", "sitecustomize")


@pytest.fixture
def working_folder(tmp_path: Path) -> Path:
    """A folder with files that have the names of modules; one that is run leaves another file."""
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(f"open({name + '.ran'!r}, 'w')", encoding="utf-8")
    return tmp_path


def ran(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.ran"))


def test_a_child_and_its_own_child_run_no_file_of_the_working_folder(working_folder: Path) -> None:
    imports = "import html, importlib.util, json; importlib.util.find_spec('mlflow'); import nq"
    code = f"{imports}\nimport subprocess, sys\nprint(nq.__file__, flush=True)\n"
    code += f"subprocess.run([sys.executable, '-c', {imports + '; print(nq.__file__)'!r}])"
    done = subprocess.run(
        **child.python("-c", code), cwd=working_folder, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [str(ROOT / "nq" / "__init__.py")] * 2
    assert ran(working_folder) == []


def test_no_other_module_starts_python() -> None:
    files = (ROOT / "nq").rglob("*.py")
    starting = [file.name for file in files if "sys.executable" in file.read_text("utf-8")]
    assert starting == ["child.py"]


def test_variables_are_added_to_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "others")
    code = "import os; print(os.environ['PYTHONPATH'], os.environ['A'], os.environ['PATH'])"
    done = subprocess.run(**child.python("-c", code, A="b"), capture_output=True, check=True)
    path = f"{ROOT}:others"
    assert done.stdout.decode().split()[:2] == [path, "b"] and len(done.stdout.split()) == 3


def test_a_bound_child_ends_with_its_parent(tmp_path: Path) -> None:
    """The child runs the module ``http.server``, which would wait for ever."""
    parent = (
        "import os, subprocess; from nq import child\n"
        "command = child.bound('http.server', '0', PYTHONUNBUFFERED='1')\n"
        "streams = {'stdout': subprocess.PIPE, 'stderr': subprocess.DEVNULL}\n"
        "own = subprocess.Popen(**command, **streams)\n"
        "assert own.stdout.read(7); print(own.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run(**child.python("-c", parent), capture_output=True, check=False)
    wait_until(lambda: not psutil.pid_exists(int(done.stdout)))
