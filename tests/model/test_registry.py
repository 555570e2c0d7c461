"""Models by name: what is a folder, what is installed, and links out of a folder."""

import logging
import shutil
from pathlib import Path

import pytest

import nq
from nq.errors import Error
from nq.model import registry
from nq.model.registry import model_folder, model_name
from nq.runs.job import Job
from tests.conftest import Commands


def install(site: Path, project: str, entry_points: str) -> None:
    """Writes the metadata that an installed distribution has."""
    info = site / f"{project.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    metadata = f"Metadata-Version: 2.1\nName: {project}\nVersion: 1.0\n"
    (info / "METADATA").write_text(metadata, encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[nq.models]\n{entry_points}\n", encoding="utf-8")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages; the working directory is another, empty folder."""
    for name in ("site", "work"):
        (tmp_path / name).mkdir()
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setitem(registry.DISTRIBUTIONS, "absent", "./models/absent")
    return tmp_path / "site"


@pytest.fixture
def lakes(site: Path, tiny_model: Path) -> Path:
    """The package of an installed model of this name."""
    install(site, "nq-model-lakes", "lakes = nq_model_lakes")
    package = Path(shutil.copytree(tiny_model, site / "nq_model_lakes"))
    (package / "__init__.py").write_text("raise RuntimeError('no code may run')", encoding="utf-8")
    return package


def test_a_name_is_the_folder_of_an_installed_package(lakes: Path) -> None:
    assert model_folder("lakes") == lakes
    assert (model_name(model_folder()), model_name(lakes)) == ("small", "lakes")
    assert Job(["x"], "lakes") == Job(["x"], lakes)
    assert Job.from_dict(Job(["x"], "lakes").to_dict()).model.folder == lakes
    with nq.load("lakes", profile="baseline") as reader:
        assert reader.windows.max_seq_length == 32


def test_a_folder_with_a_model_comes_before_an_installed_one(
    lakes: Path, tiny_model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "nq")
    Path("lakes").mkdir()
    assert model_folder("lakes") == lakes  # a folder without a model
    for name in ("lakes", "small"):
        shutil.copytree(tiny_model, name, dirs_exist_ok=True)
        assert model_folder(name) == Path(name)
    assert len(caplog.messages) == 1 and "small" in caplog.text


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "vocab.txt", "1_Pooling", ""])
def test_a_link_to_itself_is_one_line(
    name: str, tiny_model: Path, tmp_path: Path, commands: Commands
) -> None:
    model = tmp_path / "model"
    if name:
        shutil.copytree(tiny_model, model)
        (model / name).unlink(missing_ok=True)
    (model / name).symlink_to(model / name)
    for arguments in (["answer", "--model", model], ["convert", model, tmp_path / "copy"]):
        assert f"{model / name}: " in commands.error(*arguments)


@pytest.mark.parametrize("name", ["added_tokens.json", "1_Pooling/config.json", "vocab.txt"])
def test_a_link_out_of_a_model_folder_is_refused(
    name: str, own_model: Path, tmp_path: Path, commands: Commands
) -> None:
    (own_model / name).parent.mkdir(exist_ok=True)
    (own_model / name).unlink(missing_ok=True)
    (own_model / name).symlink_to("/etc/hostname")
    (tmp_path / "link").symlink_to(own_model)  # the folder itself may be one
    copy = str(tmp_path / "copy")
    for arguments in (
        ["convert", str(own_model), copy, "--to", "hf"],
        ["convert", str(tmp_path / "link"), copy],
        ["preprocess", "--data", "-", "--tokenizer", str(own_model), "--output", copy],
    ):
        commands.out(*arguments, code=1)
        assert name in commands.err and "/etc/hostname" in commands.err
    shutil.copytree(own_model, copy)  # as cp -rL does
    assert model_folder(copy) == Path(copy)


def test_a_snapshot_in_the_cache_of_hugging_face_may_be_links(
    tiny_model: Path, tmp_path: Path
) -> None:
    blobs = shutil.copytree(tiny_model, tmp_path / "blobs")
    snapshot = tmp_path / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    for path in blobs.iterdir():
        (snapshot / path.name).symlink_to(f"../../blobs/{path.name}")
    assert model_folder(snapshot) == snapshot
    (blobs / "nq.json").unlink()
    (blobs / "nq.json").symlink_to("/etc/hostname")
    with pytest.raises(Error, match=r"nq\.json .*/etc/hostname"):
        model_folder(snapshot)
