"""Model folders of pretrained encoders, made from the files of installed packages."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from experiments import pretrained

CONTENT = {name: name.encode() * 100 for name in pretrained.MPNET_FILES}


def install(folder: Path, package: str, file: str, content: bytes) -> None:
    """Writes what an installed wheel leaves: its file, and the folder of its metadata."""
    info = folder / f"{package.replace('-', '_')}-0.0.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.0.1\n")
    (info / "RECORD").write_text(f"{file},,\n{info.name}/METADATA,,\n{info.name}/RECORD,,\n")
    (folder / file).parent.mkdir(parents=True)
    (folder / file).write_bytes(content)


def zipped(content: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, data in content.items():
            file.writestr(f"all-mpnet-base-v2/{name}", data)
    return buffer.getvalue()


def install_mpnet(folder: Path, data: bytes, pieces: int = 5) -> None:
    size = -(-len(data) // 5)
    for i, package in enumerate(pretrained.MPNET[:pieces]):
        file = f"{package[:-4]}_{i + 1:03}/input/all-mpnet-base-v2.zip.{i + 1:03}"
        install(folder, package, file, data[i * size : (i + 1) * size])


def test_five_pieces_are_joined_to_one_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_mpnet(tmp_path / "site", zipped(CONTENT))
    monkeypatch.syspath_prepend(tmp_path / "site")
    folder = pretrained.mpnet(tmp_path / "runs" / "start")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == CONTENT
    assert [path.name for path in folder.parent.iterdir()] == ["start"]
    (folder / "vocab.txt").write_bytes(b"kept")
    pretrained.mpnet(folder)
    assert (folder / "vocab.txt").read_bytes() == b"kept"
    (folder / "config.json").unlink()
    pretrained.mpnet(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == CONTENT
