"""OpenVINO: the traced network converted in memory; float32, bfloat16 or calibrated 8 bits."""

from __future__ import annotations

import contextlib
import gc
import io
import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from nq.inference.batches import Shape
from nq.inference.engine import Rows, Step, Task
from nq.inference.engines.exported import selected
from nq.inference.profile import ProfileNotInForceError

HINTS = {"float32": "f32", "bfloat16": "bf16"}
RUNTIME = {"float32": "f32", "bfloat16": "bf16", "int8": "i8"}
PRODUCTS = ("FullyConnected", "MatMul")
NOT_IN_8_BITS = r".*/(layer_\d+_output|span_output|pooler|type_output)(_\d+)?/MatMul"
OUTPUTS = ("start_logits", "end_logits", "type_logits")


class Engine:
    """Compiles the converted network once for each shape.

    For windows that are full the mask is a constant, of which OpenVINO leaves nothing.
    """

    device = "CPU"

    def __init__(self, task: Task) -> None:
        import openvino

        self.task, profile = task, task.profile
        self.precision = "int8" if profile.changes.int8 else profile.precision("CPU")
        self._hint = HINTS[profile.precision("CPU")]
        self._core = openvino.Core()
        self._converted: Any = None

    def compiled(self, shape: Shape) -> Step:
        """See ``nq.inference.engine.Engine``."""
        model = self._model().clone()
        if shape.full:
            set_input(model, "input_mask", np.ones((shape.batch_size, shape.length), np.int32))
        names = [given.any_name for given in model.inputs]
        model.reshape({name: [shape.batch_size, shape.length] for name in names})
        options = {"INFERENCE_PRECISION_HINT": self._hint, "PERFORMANCE_HINT": "LATENCY"}
        compiled = self._core.compile_model(model, "CPU", options)
        self._check_in_force(compiled)
        outputs = {name: compiled.output(name) for name in OUTPUTS}

        def logits(rows: Rows) -> dict[str, Any]:
            found = compiled({name: rows[name] for name in names}, share_inputs=True)
            return {name: found[output] for name, output in outputs.items()}

        return selected(logits, self.task.selection, shape)

    def _model(self) -> Any:
        """The network; in 8 bits where the profile says so."""
        if self._converted is None:
            model = converted(self.task.network.model)
            products_apart(model)
            self._converted = self._in_8_bits(model) if self.precision == "int8" else model
        return self._converted

    def _in_8_bits(self, model: Any) -> Any:
        """Post-training quantization, calibrated on real windows, each without its padding.

        Left out are the products that lose most by it: those of gelu, whose outliers stretch the
        scale, and the heads. They make up two fifths of the drift, and a fifth of the speed.
        """
        rows = self.task.calibration()
        names = [given.any_name for given in model.inputs]
        windows = [
            {name: rows[name][i : i + 1, :n] for name in names}
            for i, n in enumerate(rows["input_mask"].sum(axis=1).tolist())
        ]
        with _quiet():
            import nncf

            return nncf.quantize(
                model,
                nncf.Dataset(windows),
                subset_size=len(windows),
                model_type=nncf.ModelType.TRANSFORMER,
                ignored_scope=nncf.IgnoredScope(patterns=[NOT_IN_8_BITS]),
            )

    def _check_in_force(self, compiled: Any) -> None:
        """Every product of activations and weights runs in the type that was asked for.

        The heads are small: in bfloat16 and 8 bits OpenVINO takes them along.
        """
        asked = RUNTIME[self.precision]
        found = set()
        for node in compiled.get_runtime_model().get_ordered_ops():
            info = node.get_rt_info()
            if info["layerType"].value in PRODUCTS:
                found.add(info["runtimePrecision"].value)
        if asked not in found:
            raise ProfileNotInForceError(
                self.task.profile, "types of the matrix products", sorted(found), asked
            )


def converted(model: Any) -> Any:
    """A Keras model of any batch and length as one of OpenVINO."""
    import openvino

    given = {one.name: tf.TensorSpec(one.shape, one.dtype, one.name) for one in model.inputs}
    step = tf.function(lambda rows: model(rows, training=False), [given], autograph=False)
    made = openvino.convert_model(step.get_concrete_function())
    for one in made.inputs:
        one.get_tensor().set_names({one.any_name.removesuffix(":0")})
    gc.collect()  # the trace and what it was converted from hold each other
    return made


def set_input(model: Any, name: str, value: Any) -> None:
    """Makes an input of the model a constant, in place."""
    from openvino import opset13 as op

    given = model.input(name).get_node()
    given.output(0).replace(op.constant(value).output(0))
    model.remove_parameter(given)


def products_apart(model: Any) -> None:
    """Makes each part of a product that is split into a product of its own, in place.

    Query, key and value are one product (``nq.model.encoder``), which OpenVINO would copy apart:
    2 % of a BERT-base.
    """
    from openvino import opset13 as op

    for split in model.get_ordered_ops():
        if split.get_type_name() != "Split":
            continue
        source, bias = split.input_value(0).get_node(), None
        if source.get_type_name() == "Add":
            bias, source = source.input_value(1).get_node(), source.input_value(0).get_node()
        constants = [node for node in (bias, source.input_value(1).get_node()) if node is not None]
        if source.get_type_name() != "MatMul" or any(
            node.get_type_name() != "Constant" for node in constants
        ):
            continue
        x, transposed = source.input_value(0), source.get_attributes()["transpose_b"]
        parts = split.get_output_size()
        kernels = np.split(constants[-1].get_data(), parts, axis=0 if transposed else 1)
        biases = [None] * parts if bias is None else np.split(bias.get_data(), parts, axis=-1)
        for i, (output, kernel, part) in enumerate(
            zip(split.outputs(), kernels, biases, strict=True)
        ):
            made = op.matmul(x, op.constant(np.ascontiguousarray(kernel)), False, transposed)
            made.set_friendly_name(f"{source.get_friendly_name()}_{i}")
            if part is not None:
                made = op.add(made, op.constant(np.ascontiguousarray(part)))
            for target in output.get_target_inputs():
                target.replace_source_output(made.output(0))
    model.validate_nodes_and_infer_types()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """NNCF tells of every step it takes."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(before)
