"""Tests that optional packages may be missing, and the errors that name their extra."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.child_processes import ROOT, python
from tests.support.terminal_output import without_progress

NQ_DATA = (str(ROOT / "nq" / "sample" / "questions.jsonl"), "--limit", "1")
BLOCK = "import os, sys\nfor name in os.environ['MISSING'].split(): sys.modules[name] = None\n"


def run_without(
    packages: str, folder: Path, *arguments: object
) -> subprocess.CompletedProcess[str]:
    """Runs Python in processes in which packages cannot be imported."""
    (folder / "site").mkdir(exist_ok=True)
    (folder / "site" / "sitecustomize.py").write_text(BLOCK, encoding="utf-8")
    paths = os.pathsep.join([str(folder / "site"), str(ROOT)])
    environment = {"PYTHONPATH": paths, "MISSING": packages}
    return python(*arguments, folder=folder, **environment)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("packages", "arguments", "message"),
    [
        ("openvino", ["answer", "--profile", "openvino"], "[openvino]"),
        ("fastapi", ["serve"], "[serve]"),
        ("mlflow", ["ui"], "[mlflow]"),
        ("tensorflow", ["answer", "--no-track", "--profile", "grappler"], "[cpu]"),
        ("tensorflow", ["tune", "--data", *NQ_DATA, "--model", "small", "--output", "o"], "[cpu]"),
        ("tensorflow", ["train", "--data", *NQ_DATA, "--init", "small", "--output", "o"], "[cpu]"),
        ("nncf openvino", ["serve", "--profile", "openvino+int8"], "[openvino,int8]"),
        ("tensorflow openvino onnx", ["ask", "who", "page.txt"], "[openvino]"),
    ],
)
def test_a_command_without_a_package_prints_one_line(
    packages: str,
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # without converted models
    (tmp_path / "page.txt").write_text("the lake is deep")
    done = run_without(packages, tmp_path, "-m", "nq", *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    stderr = without_progress(done.stderr)
    assert stderr.startswith("nq: error: ") and f"pip install 'nq-pipeline{message}'" in stderr
    assert len(stderr.splitlines()) == 1


@pytest.mark.slow
def test_questions_are_answered_without_tensorflow_and_not_recorded_without_mlflow(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "page.txt").write_text("the lake is deep")
    sample, model = ROOT / "nq" / "sample" / "questions.jsonl", ("--model", tiny_model)
    outputs = []
    for command in (
        ("ask", "what is deep", "page.txt", "--json", *model),
        ("answer", "--data", sample, "--limit", 1, "--output", "run", "--json", *model),
    ):
        done = run_without("tensorflow nncf onnx mlflow", tmp_path, "-m", "nq", *command)
        assert done.returncode == 0, done.stderr
        outputs.append(json.loads(done.stdout))
    asked, answered = outputs
    assert asked["question"] == "what is deep"
    assert "openvino" in answered["profile"] and answered["windows"] > 0
    assert answered["run_id"] is None
    (line,) = without_progress(done.stderr).splitlines()
    assert "pip install 'nq-pipeline[mlflow]'" in line and "sqlite" not in line


@pytest.mark.parametrize(
    ("package", "module"),
    [
        ("lazy_loader", "nq"),
        ("lazy_loader", "eval.nq_eval"),
        ("lazy_loader", "experiments.tables"),
        ("numpy", "nq.answer"),
    ],
)
def test_a_python_without_nq_prints_one_line(package: str, module: str, tmp_path: Path) -> None:
    """The Python of the system, in a clone, has none of the packages that nq always needs."""
    done = run_without(package, tmp_path, "-m", module)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"nq: error: {package} is not installed for {sys.executable}: ")
    assert ". .venv/bin/activate" in done.stderr
    assert len(done.stderr.splitlines()) == 1
