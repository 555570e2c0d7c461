"""A model in the formats of other runtimes: SavedModel and ONNX, by Keras' own export."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nq.errors import Error

ONNX_FILE = "model.onnx"
SAVEDMODEL, ONNX = "tf_saved_model", "onnx"
WRITERS = {SAVEDMODEL: (), ONNX: ("onnx", "tf2onnx")}


def need(extra: str, packages: Sequence[str]) -> None:
    """Checks that packages are installed.

    Raises:
        Error: one is missing; says what to install.
    """
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise Error(f"{' and '.join(missing)} not installed: run pip install 'nq[{extra}]'")


def export(model: Any, path: Path, kind: str) -> None:
    """Keras' export without its talk.

    Args:
        model: built for any batch and any length, so that the export takes any too.
        path: file or folder to write.
        kind: of ``WRITERS``.

    Raises:
        Error: a package for it is not installed.
    """
    need(kind, WRITERS[kind])
    path.parent.mkdir(parents=True, exist_ok=True)
    model({given.name: np.zeros((1, 2), np.int32) for given in model.inputs})  # Keras insists
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tf2onnx asks numpy for names of before 2.0
        model.export(str(path), format=kind, verbose=False)
    gc.collect()  # an export leaves several copies of the weights in circles


def savedmodel(model: Any, folder: Path) -> None:
    """A SavedModel whose ``serving_default`` takes the model's three inputs by name."""
    export(model, folder, SAVEDMODEL)


def onnx(model: Any, folder: Path) -> None:
    """A folder with an ONNX file of the same inputs and outputs."""
    export(model, folder / ONNX_FILE, ONNX)
