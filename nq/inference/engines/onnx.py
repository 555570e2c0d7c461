"""ONNX Runtime runs the network exported by Keras, in float32 or with dynamic 8-bit products."""

import contextlib
import tempfile
from functools import cached_property
from pathlib import Path
from typing import Any

from nq import processor
from nq.inference.batches import Shape
from nq.inference.engine import Computation, Step, load_graph, quiet, with_reduction
from nq.inference.profile import ONNX, ProfileNotInForceError
from nq.inference.scorer import Rows
from nq.model.convert import export
from nq.storage import naming

MODEL = "model.onnx"
IN_8_BITS = ("MatMulInteger", "DynamicQuantizeMatMul", "MatMulIntegerToFloat")
ERRORS_ONLY = 3


class Engine:
    """Runs all shapes in one session; full windows have a mask too."""

    device = "CPU"
    any_shape = True
    options = contextlib.nullcontext

    def __init__(self, computation: Computation) -> None:
        self.computation = computation
        self.precision = "int8" if computation.profile.changes.int8 else "float32"

    def compiled(self, shape: Shape) -> Step:
        session = self._session
        names = [node.name for node in session.get_inputs()]
        outputs = [node.name for node in session.get_outputs()]

        def logits(rows: Rows) -> dict[str, Any]:
            values = session.run(outputs, {name: rows[name] for name in names})
            return dict(zip(outputs, values, strict=True))

        return with_reduction(logits, self.computation.reduction)

    @cached_property
    def _session(self) -> Any:
        network = self.computation.network

        def write(folder: Path) -> None:
            export(network.model, folder / MODEL, ONNX)

        if self.precision != "int8":
            packages = ["onnx", "tf2onnx", "tensorflow", "tensorflow-cpu"]
            return load_graph(network, packages, write, lambda new: self._opened(new / MODEL))
        with tempfile.TemporaryDirectory() as folder, naming(Path(folder)):
            write(Path(folder))
            return self._opened(self._quantize(Path(folder) / MODEL))

    def _opened(self, path: Path) -> Any:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = ERRORS_ONLY
        if self.computation.threads is not None:
            options.intra_op_num_threads = self.computation.threads
            options.inter_op_num_threads = 1
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def _quantize(self, path: Path) -> Path:
        """Quantizes the weights; activations are scaled for every batch at run time."""
        import onnx
        from onnxruntime.quantization import QuantType, quantize_dynamic

        quantized = path.with_name("int8.onnx")
        with quiet():  # it recommends a step that is unnecessary here
            quantize_dynamic(
                str(path),
                str(quantized),
                weight_type=QuantType.QInt8,
                reduce_range=processor.saturates_int8_products(),
            )
        operations = {node.op_type for node in onnx.load(str(quantized)).graph.node}
        if not operations & set(IN_8_BITS):
            raise ProfileNotInForceError(
                self.computation.profile, "types of the matrix products", ["float32"], "int8"
            )
        return quantized
