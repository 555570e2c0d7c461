"""A model in the formats of other runtimes: SavedModel and ONNX, through Keras' own export."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from nq.errors import RunError

ONNX_FILE = "model.onnx"
ONNX_PACKAGES = ("onnx", "tf2onnx")


def savedmodel(model: Any, folder: Path) -> None:
    """A SavedModel whose ``serving_default`` takes the model's three inputs by name.

    Args:
        model: built for any batch and any length, so that the export takes any too.
        folder: to write.
    """
    with contextlib.redirect_stdout(io.StringIO()):
        model.export(str(folder), format="tf_saved_model", verbose=False)


def onnx(model: Any, folder: Path) -> None:
    """An ONNX file of the same inputs and outputs.

    Raises:
        RunError: the packages for it are not installed.
    """
    missing = [name for name in ONNX_PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise RunError(f"{' and '.join(missing)} not installed: run pip install 'nq[onnx]'")
    folder.mkdir(parents=True, exist_ok=True)
    model({given.name: np.zeros((1, 2), np.int32) for given in model.inputs})  # Keras insists
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tf2onnx asks numpy for names of before 2.0
        model.export(str(folder / ONNX_FILE), format="onnx", verbose=False)
