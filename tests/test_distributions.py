"""Distributions: the one of nq has no models of others; one of a model is installed by pip."""

import os
import re
import shutil
import subprocess
import tarfile
import tomllib
import zipfile
from configparser import ConfigParser
from itertools import islice
from pathlib import Path

import pytest

import nq
from nq.model.registry import DISTRIBUTIONS
from tests.support.child_processes import ROOT, python

PIP = ["-m", "pip", "--disable-pip-version-check", "-q"]
LOCAL = ["--no-deps", "--no-build-isolation"]
LIMIT, QUESTIONS = 3, 8
EXAMPLE = re.compile(r"<!-- test: .*? -->\n```toml\n(.*?)^```", re.DOTALL | re.MULTILINE)
BUILD = "from setuptools.build_meta import *; build_sdist('dist'); build_wheel('dist')"


def run(*arguments: object, folder: Path, site: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Runs Python in a folder; ``site`` is a folder of installed packages."""
    return python(*arguments, folder=folder, PYTHONPATH=f"{ROOT}{os.pathsep}{site}")


@pytest.fixture(scope="module")
def installed(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed the example of the documentation."""
    match = EXAMPLE.search((ROOT / "docs" / "development.md").read_text(encoding="utf-8"))
    assert match
    folder = tmp_path_factory.mktemp("distribution")
    (folder / "pyproject.toml").write_text(match[1], encoding="utf-8")
    shutil.copytree(tiny_model, folder / "nq_model_lakes")
    (folder / "nq_model_lakes" / "__init__.py").touch()
    site = folder / "site"
    done = run(*PIP, "install", *LOCAL, "--target", site, folder, folder=folder)
    assert done.returncode == 0, done.stderr
    return site


@pytest.mark.slow
def test_an_installed_model_answers_like_its_folder(
    installed: Path, tiny_model: Path, tmp_path: Path
) -> None:
    options = ("--limit", LIMIT, "--no-track", "--json", "--profile", "grappler")
    command = ("-m", "nq", "answer", *options)
    done = run(*command, "--model", "lakes", "--output", "by-name", folder=tmp_path, site=installed)
    assert done.returncode == 0, done.stderr
    nq.run(nq.Job([nq.bundled_sample()], tiny_model, limit=LIMIT, output=tmp_path / "by-folder"))
    by_name, by_folder = (
        (tmp_path / name / "predictions.json").read_bytes() for name in ("by-name", "by-folder")
    )
    assert by_name == by_folder
    missing = run(*command, "--model", "lakes", folder=tmp_path)
    assert missing.returncode == 1
    assert missing.stderr.startswith("nq: error: no model 'lakes': expected a folder, or the name")


@pytest.mark.slow
def test_the_distribution_of_nq_has_no_other_models(tmp_path: Path) -> None:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("the files are not in a git repository")
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file() and not name.endswith(".safetensors"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, tmp_path / name)
    (tmp_path / "dist").mkdir()
    done = run("-c", BUILD, folder=tmp_path, site=tmp_path)
    assert done.returncode == 0, done.stderr
    (wheel,), (sdist,) = (list((tmp_path / "dist").glob(name)) for name in ("*.whl", "*.tar.gz"))
    with zipfile.ZipFile(wheel) as archive, tarfile.open(sdist) as source:
        names = [*archive.namelist(), *source.getnames()]
    for member in (
        "nq/model/registry.py",
        "nq/report/templates/report.js",
        "nq/serving/page/page.js",
    ):
        assert sum(name.endswith(member) for name in names) == 2
    assert not [name for name in names if "nq_model" in name or "models/" in name]
    assert not [name for name in names if "tests" in Path(name).parts]


@pytest.mark.parametrize("name", list(DISTRIBUTIONS))
def test_a_distribution_registers_its_package(name: str) -> None:
    folder, package = ROOT / "models" / name, f"nq_model_{name}"
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["name"] == f"nq-model-{name}"
    assert project["project"]["entry-points"]["nq.models"] == {name: package}
    assert (folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    sizes = [path.stat().st_size for path in (folder / package).iterdir() if path.is_file()]
    assert sum(sizes) <= 36e6


@pytest.mark.slow
def test_the_ranker_answers_together_with_small() -> None:
    with nq.load(ROOT / "models" / "ranker" / "nq_model_ranker") as reader:
        examples = islice(nq.read_examples(nq.bundled_sample()), QUESTIONS)
        predictions = list(reader.predict(examples))
    assert sum(p.long is not None for p in predictions) > QUESTIONS / 2
    assert sum(bool(p.shorts) for p in predictions) > QUESTIONS / 4


def test_only_the_extended_tests_need_the_libraries_that_nq_is_compared_with() -> None:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    extras = setup["options.extras_require"]
    assert {"torch", "jax"} <= set(re.findall(r"\w+", extras["peers"]))
    for extra in ("all", "dev"):
        assert not {"torch", "jax", "peers"} & set(re.findall(r"\w+", extras[extra]))
