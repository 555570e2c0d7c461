"""ONNX Runtime: the network through Keras' export, in float32 or with dynamic 8 bits."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Any

from nq.inference.batches import Shape
from nq.inference.engine import Rows, Step, Task
from nq.inference.engines.exported import selected
from nq.inference.profile import ONNX, ProfileNotInForceError
from nq.model.export import export

IN_8_BITS = ("MatMulInteger", "DynamicQuantizeMatMul", "MatMulIntegerToFloat")
ERRORS_ONLY = 3


class Engine:
    """One session for all shapes; it takes the mask of full windows too."""

    device = "CPU"

    def __init__(self, task: Task) -> None:
        self.task = task
        self.precision = "int8" if task.profile.changes.int8 else "float32"
        self._session: Any = None

    def compiled(self, shape: Shape) -> Step:
        """See ``nq.inference.engine.Engine``."""
        if self._session is None:
            self._session = self._loaded()
        session = self._session
        names = [given.name for given in session.get_inputs()]
        outputs = [given.name for given in session.get_outputs()]

        def logits(rows: Rows) -> dict[str, Any]:
            found = session.run(outputs, {name: rows[name] for name in names})
            return dict(zip(outputs, found, strict=True))

        return selected(logits, self.task.selection, shape)

    def _loaded(self) -> Any:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = ERRORS_ONLY
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            export(self.task.network.model, path, ONNX)
            if self.precision == "int8":
                path = self._in_8_bits(path)
            return onnxruntime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )

    def _in_8_bits(self, path: Path) -> Path:
        """Weights in 8 bits once, activations scaled for every batch."""
        import onnx
        from onnxruntime.quantization import QuantType, quantize_dynamic

        smaller = path.with_name("int8.onnx")
        before = logging.root.manager.disable
        logging.disable(logging.WARNING)  # it advises a step that Keras' export makes needless
        try:
            quantize_dynamic(str(path), str(smaller), weight_type=QuantType.QInt8)
        finally:
            logging.disable(before)
        found = {node.op_type for node in onnx.load(str(smaller)).graph.node}
        if not found & set(IN_8_BITS):
            raise ProfileNotInForceError(
                self.task.profile, "types of the matrix products", ["float32"], "int8"
            )
        return smaller
