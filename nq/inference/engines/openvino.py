"""OpenVINO runs the graph of a network, in float32, bfloat16 or calibrated 8 bits."""

import contextlib
import io
import logging
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from nq import processor
from nq.errors import Error
from nq.inference.batches import Shape
from nq.inference.engine import Computation, Step, load_graph, quiet, with_reduction
from nq.inference.profile import ProfileNotInForceError
from nq.inference.scorer import Rows
from nq.model.graph import write_graph

log = logging.getLogger(__name__)

CAPABILITIES = "OPTIMIZATION_CAPABILITIES"
HINTS = {"float32": "f32", "bfloat16": "bf16"}
RUNTIME = {"float32": {"f32"}, "bfloat16": {"bf16"}, "int8": {"i8", "u8"}}
PRODUCTS = ("FullyConnected", "MatMul")
NOT_IN_8_BITS = r"(layer_\d+_output|span_output|span_transform|pooler|type_output)/.*"
"""The names of products; see ``nq.model.graph``."""
MODEL = "model.xml"


class Engine:
    """Compiles the graph once for each shape, or once for all where it is adaptive.

    For full windows of a known shape the mask is a constant, which OpenVINO folds away.
    """

    device = "CPU"
    any_shape = True
    options = contextlib.nullcontext

    def __init__(self, computation: Computation) -> None:
        import openvino

        self.computation = computation
        profile = computation.profile
        self.precision = "int8" if profile.changes.int8 else profile.precision("CPU")
        self._hint = HINTS[profile.precision("CPU")]
        self._core = openvino.Core()
        if self._hint == "bf16" and "BF16" not in self._core.get_property("CPU", CAPABILITIES):
            raise Error(f"profile {profile}: {processor.name()} has no bfloat16: leave out mixed")
        self._has_warned = False

    def compiled(self, shape: Shape) -> Step:
        if self.computation.adaptive:
            return self._any_shape
        model = self._graph.clone()
        if shape.full:
            set_input(model, "input_mask", np.ones((shape.batch_size, shape.length), np.int32))
        names = [node.any_name for node in model.inputs]
        model.reshape({name: [shape.batch_size, shape.length] for name in names})
        return self._compiled(model)

    @cached_property
    def _any_shape(self) -> Step:
        return self._compiled(self._graph)

    @cached_property
    def _graph(self) -> Any:
        """The graph for any shape, quantized where the profile says so."""
        network = self.computation.network

        def write(folder: Path) -> None:
            with network.stored() as files:
                write_graph(files, network.config, folder / MODEL)

        def read(folder: Path) -> Any:
            return self._core.read_model(folder / MODEL)

        graph = load_graph(network, ["openvino"], write, read)
        return self.quantized(graph) if self.precision == "int8" else graph

    def _compiled(self, model: Any) -> Step:
        names = [node.any_name for node in model.inputs]
        if self.precision == "bfloat16":
            round_gathered_products(model)
        hints = {"INFERENCE_PRECISION_HINT": self._hint, "PERFORMANCE_HINT": "LATENCY"}
        threads: dict[str, Any] = {}
        if (n := self.computation.threads) is not None:  # which stay on the cores of the process
            threads = {"INFERENCE_NUM_THREADS": n, "NUM_STREAMS": 1, "ENABLE_CPU_PINNING": False}
        compiled = self._core.compile_model(model, "CPU", hints | threads)
        self._check_in_force(compiled)
        actual = {name: compiled.get_property(name) for name in threads}
        if actual != threads and not self._has_warned:
            self._has_warned = True
            log.warning("OpenVINO ignores its threads: found %s, expected %s", actual, threads)
        outputs = {node.any_name: node for node in compiled.outputs}

        def logits(rows: Rows) -> dict[str, Any]:
            values = compiled({name: rows[name] for name in names}, share_inputs=True)
            return {name: values[output] for name, output in outputs.items()}

        return with_reduction(logits, self.computation.reduction)

    def quantized(self, model: Any) -> Any:
        """Quantizes a model after training, calibrated on real windows without their padding.

        The products that lose most precision keep their type: those after gelu, whose outliers
        stretch the scale, and the heads: two fifths of the drift and a fifth of the speed.
        """
        rows = self.computation.calibration
        names = [node.any_name for node in model.inputs]
        lengths = rows["input_mask"].sum(axis=1).tolist()
        windows = [
            {name: rows[name][i : i + 1, :length] for name in names}
            for i, length in enumerate(lengths)
        ]
        with quiet(), contextlib.redirect_stdout(io.StringIO()):  # NNCF reports every step
            import nncf
            from nncf.quantization.advanced_parameters import AdvancedQuantizationParameters

            halved = nncf.OverflowFix.ENABLE  # 7 bits of the weights are used
            overflow_fix = halved if processor.saturates_int8_products() else None
            return nncf.quantize(
                model,
                nncf.Dataset(windows),
                subset_size=len(windows),
                model_type=nncf.ModelType.TRANSFORMER,
                advanced_parameters=AdvancedQuantizationParameters(overflow_fix=overflow_fix),
                ignored_scope=nncf.IgnoredScope(patterns=[NOT_IN_8_BITS]),
            )

    def _check_in_force(self, compiled: Any) -> None:
        """Checks that products of activations and weights run in the type of the profile.

        OpenVINO runs the small heads in bfloat16 or 8 bits too.
        """
        expected = RUNTIME[self.precision]
        types = set[str]()
        for node in compiled.get_runtime_model().get_ordered_ops():
            info = node.get_rt_info()
            if info["layerType"].value in PRODUCTS:
                types.add(info["runtimePrecision"].value)
        if not types & expected:
            profile = self.computation.profile
            shown = " or ".join(sorted(expected))
            what = "types of the matrix products"
            raise ProfileNotInForceError(profile, what, sorted(types), shown)


def set_input(model: Any, name: str, value: Any) -> None:
    """Replaces an input of the model by a constant, in place."""
    from openvino import opset13 as op

    parameter = model.input(name).get_node()
    parameter.output(0).replace(op.constant(value).output(0))
    model.remove_parameter(parameter)


def round_gathered_products(model: Any) -> None:
    """Lets products with relative positions (``SelfAttention``) be in bfloat16, in place.

    One factor is a constant, which OpenVINO keeps in float32, and with it the product.
    """
    from openvino import opset13 as op

    for gather in model.get_ordered_ops():
        if gather.get_type_name() != "Gather":
            continue
        reshape = gather.input_value(0).get_node()
        product = reshape.input_value(0).get_node() if reshape.inputs() else reshape
        types = reshape.get_type_name(), product.get_type_name()
        is_of_pairs = len(gather.input_value(1).get_partial_shape()) == 2
        if types != ("Reshape", "MatMul") or not is_of_pairs:
            continue
        factors = [op.convert(value, "bf16") for value in product.input_values()]
        users = gather.output(0).get_target_inputs()
        rounded = op.matmul(*factors, **product.get_attributes())
        reshape.input(0).replace_source_output(rounded.output(0))
        for user in users:
            user.replace_source_output(op.convert(gather, "f32").output(0))
    model.validate_nodes_and_infer_types()
