"""The distribution of nq: what it contains, and what its extras install."""

import os
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.support.child_processes import ROOT, python

BUILD = "from setuptools.build_meta import *; build_sdist('dist'); build_wheel('dist')"


def run(*arguments: object, folder: Path, site: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Runs Python in a folder; ``site`` is a folder of installed packages."""
    return python(*arguments, folder=folder, PYTHONPATH=f"{ROOT}{os.pathsep}{site}")


@pytest.mark.slow
def test_the_distribution_has_code_and_models_but_no_tests(tmp_path: Path) -> None:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("the files are not in a git repository")
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            source = "/dev/null" if name.endswith(".safetensors") else ROOT / name
            shutil.copyfile(source, tmp_path / name)
    (tmp_path / "dist").mkdir()
    done = run("-c", BUILD, folder=tmp_path, site=tmp_path)
    assert done.returncode == 0, done.stderr
    (wheel,), (sdist,) = (list((tmp_path / "dist").glob(name)) for name in ("*.whl", "*.tar.gz"))
    with zipfile.ZipFile(wheel) as archive, tarfile.open(sdist) as tar:
        names = [*archive.namelist(), *tar.getnames()]
    for member in (
        "nq/bundled/nq.json",
        "nq/bundled/ranker/model.safetensors",
        "nq/bundled/small/vocab.txt",
        "nq/model/registry.py",
        "nq/report/templates/report.js",
        "nq/serving/page/page.js",
    ):
        assert sum(name.endswith(member) for name in names) == 2
    assert not [name for name in names if "tests" in Path(name).parts]
