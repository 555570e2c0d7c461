"""Model folders in a place that every worker sees, and their copies on the disks of the workers.

A staged model is a folder with the files of the model and ``MANIFEST``, which has their digests. A
worker process copies it once, however many threads and stages it has.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import shutil
import tempfile
import threading
from pathlib import Path

from nq.beam.files import COPY_PREFIX, copy_file, create_file, join, open_file
from nq.errors import DamagedError
from nq.formats.input_files import is_uri, sha256
from nq.model.folder import copy_model

MANIFEST = "manifest.json"
_copies: dict[str, Path] = {}
_copying = threading.Lock()


def stage_model(folder: Path, parent: str) -> str:
    """Copies a model to a place that every worker sees; returns the path or URI of the copy.

    Args:
        folder: the model.
        parent: path or URI of a folder.

    Raises:
        FileNotFoundError, ValueError: the folder has no model.
        OSError: a file cannot be read or written.
    """
    with tempfile.TemporaryDirectory(prefix=COPY_PREFIX) as temporary:
        copy = Path(temporary) / "model"
        copy_model(folder, copy)
        digests = {path.name: sha256(path) for path in sorted(copy.iterdir())}
        manifest = json.dumps(digests, sort_keys=True).encode()
        staged = join(parent, f"model-{hashlib.sha256(manifest).hexdigest()[:12]}")
        for name in digests:
            copy_file(str(copy / name), join(staged, name))
    with create_file(join(staged, MANIFEST)) as file:
        file.write(manifest)
    return staged


def local_folder(model: str) -> Path:
    """Returns the folder of a model on a disk of this machine: its path, or a copy of a URI.

    Args:
        model: path of a model folder, or path or URI of a staged one.

    Raises:
        DamagedError: a file of the copy has not the digest that it was staged with.
        OSError: the model cannot be read.
    """
    if not is_uri(model):
        return Path(model)
    with _copying:
        if model not in _copies:
            _copies[model] = _copy(model)
        return _copies[model]


def _copy(model: str) -> Path:
    with open_file(join(model, MANIFEST)) as file:
        digests = json.loads(file.read())
    folder = Path(tempfile.mkdtemp(prefix=COPY_PREFIX))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name, digest in digests.items():
        if Path(name).name != name:
            raise DamagedError(f"{join(model, MANIFEST)} names {name!r}: expected names of files")
        copy_file(join(model, name), str(folder / name))
        if sha256(folder / name) != digest:
            raise DamagedError(
                f"{join(model, name)} is damaged: its SHA-256 is not the one in {MANIFEST}; run "
                "the command again"
            )
    return folder
