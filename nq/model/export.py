"""Exports a model to the formats of other runtimes, SavedModel and ONNX, by Keras."""

from __future__ import annotations

import contextlib
import gc
import io
import warnings
from pathlib import Path
from typing import Any

ONNX_FILE = "model.onnx"
SAVEDMODEL, ONNX = "tf_saved_model", "onnx"


def export(model: Any, path: Path, kind: str) -> None:
    """Writes a model without the messages that Keras prints.

    Args:
        model: built for any batch size and length, so that the export accepts any too.
        path: the ONNX file, or the folder of the SavedModel.
        kind: ``SAVEDMODEL`` or ``ONNX``.
    """
    import numpy as np

    path.parent.mkdir(parents=True, exist_ok=True)
    model({given.name: np.zeros((1, 2), np.int32) for given in model.inputs})  # Keras requires it
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tf2onnx uses names that numpy 2 deprecates
        model.export(str(path), format=kind, verbose=False)
    gc.collect()  # an export leaves several copies of the weights in reference cycles
