"""Models by name: what is a folder, what is bundled, and links out of a folder."""

import logging
import shutil
from pathlib import Path

import pytest

from nq.bundle import bundled_model, bundled_pair
from nq.errors import Error
from nq.model.registry import is_pair, model_folder, model_name
from nq.runs.job import Job
from tests.conftest import Commands


def test_a_name_is_the_folder_of_a_bundled_model() -> None:
    assert model_folder() == model_folder("ranker+small") == bundled_pair()
    assert [model_folder(name) for name in ("ranker", "small")] == [
        bundled_pair() / "ranker",
        bundled_model(),
    ]
    names = ("ranker+small", "ranker", "small")
    assert tuple(model_name(model_folder(name)) for name in names) == names
    assert [is_pair(model_folder(name)) for name in names] == [True, False, False]
    assert Job(["x"], "small") == Job(["x"], bundled_model())
    job = Job(["/x"])
    assert Job.from_dict(job.to_dict()) == job
    with pytest.raises(
        FileNotFoundError, match=r"no model 'smal' \(did you mean 'small'\?\).*bundled"
    ):
        model_folder("smal")


def test_a_folder_with_a_model_comes_before_a_bundled_one(
    tiny_model: Path,
    tiny_pair: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.INFO, "nq")
    Path("small").mkdir()
    assert model_folder("small") == bundled_model()  # a folder without a model
    for name, source in (("lakes", tiny_model), ("small", tiny_model), ("ranker+small", tiny_pair)):
        shutil.copytree(source, name, dirs_exist_ok=True)
        assert model_folder(name) == Path(name)
    assert len(caplog.messages) == 2 and "small" in caplog.text
    assert model_folder() == bundled_pair()


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
