"""The OpenVINO graph of a model, which Keras makes in a process of its own.

A process imports Keras with one backend. That of OpenVINO builds the nodes of a graph where others
compute, so that neither TensorFlow nor a conversion is needed.
"""

import importlib
import os
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from nq import storage
from nq.model.config import ModelConfig
from nq.model.folder import ModelFolder
from nq.worker import Worker

Request = tuple[ModelFolder, ModelConfig, Path]


def write_graph(files: ModelFolder, config: ModelConfig, path: Path) -> None:
    """Writes the graph of a model for any batch size and length, float32, as OpenVINO reads it.

    Its inputs and outputs have the names of the Keras model's. The product with the kernel of the
    layer ``layer_0_qkv`` has the name ``layer_0_qkv/0``, in a second use of the layer
    ``layer_0_qkv/1``.

    Args:
        config: may have more rows of word embeddings than the model.
        path: of the ``.xml`` file; the weights are in a ``.bin`` file beside it.

    Raises:
        OSError: the files cannot be written.
        ValueError: the files of the model are damaged, or do not fit together.
        WorkerDiedError: the process was ended, as for want of memory.
    """
    home = os.environ.get("KERAS_HOME", str(storage.cache_folder() / "keras"))
    variables = {"KERAS_BACKEND": "openvino", "KERAS_HOME": home}
    worker = Worker(write_in_process, name="makes the graph of a model", variables=variables)
    try:
        worker.call((files, config, path))
    finally:
        worker.end()


def write_in_process(request: Request) -> None:
    """See ``write_graph``; Keras must have the backend ``openvino`` here."""
    _postpone("scipy.signal")
    import openvino
    from openvino._offline_transformations import apply_moc_transformations

    from nq.model import joint

    files, config, path = request
    graph = _traced(joint.load_model(files, config=config).model)
    _name_products(graph)
    apply_moc_transformations(graph, False)  # as ``openvino.convert_model`` does
    _split_products(graph)
    try:
        openvino.save_model(graph, path, compress_to_fp16=False)
    except RuntimeError as error:  # such as for a full disk
        raise OSError(f"{path} cannot be written: {error}") from error


def _postpone(name: str) -> None:
    """Lets a module be imported when one of its attributes is needed.

    SciPy's signal processing, which no model uses, takes two thirds of the import of Keras.
    """
    module: Any = ModuleType(name)

    def load(attribute: str) -> Any:
        if sys.modules[name] is module:
            del sys.modules[name]
        return getattr(importlib.import_module(name), attribute)

    module.__getattr__ = load
    sys.modules.setdefault(name, module)


def _traced(model: Any) -> Any:
    """Returns the graph of a Keras model on the backend ``openvino``."""
    import openvino
    from keras import ops
    from openvino import opset13 as op

    for weight in model.weights:
        weight.value.output.get_node().set_friendly_name(weight.path)
    parameters = []
    results = []
    inputs: dict[str, Any] = {}
    for given in model.inputs:
        parameter = op.parameter([-1] * len(given.shape), np.dtype(given.dtype), given.name)
        parameter.output(0).get_tensor().set_names({given.name})
        parameters.append(parameter)
        inputs[given.name] = ops.convert_to_tensor(parameter.output(0))
    for name, value in model(inputs, training=False).items():
        result = op.result(value.output, name)
        result.output(0).get_tensor().set_names({name})
        results.append(result)
    return openvino.Model(results, parameters, model.name)


def _name_products(graph: Any) -> None:
    """Names each product with a kernel by its layer and by the number of its use, in place."""
    uses = Counter[str]()
    for node in graph.get_ordered_ops():
        if node.get_type_name() != "MatMul":
            continue
        factor = node.input_value(1).get_node()
        if factor.get_type_name() == "Convert":  # Keras makes one for every operand
            factor = factor.input_value(0).get_node()
        layer, _, weight = factor.get_friendly_name().rpartition("/")
        if weight == "kernel":
            node.set_friendly_name(f"{layer}/{uses[layer]}")
            uses[layer] += 1


def _split_products(model: Any) -> None:
    """Replaces each product whose result is split by one product per part, in place.

    OpenVINO would copy query, key and value out of their one product: 2 % of a BERT-base's time.
    """
    from openvino import opset13 as op

    for split in model.get_ordered_ops():
        if split.get_type_name() != "Split":
            continue
        source = split.input_value(0).get_node()
        bias = None
        if source.get_type_name() == "Add":
            bias = source.input_value(1).get_node()
            source = source.input_value(0).get_node()
        factor = source.input_value(1).get_node()
        constants = [factor] if bias is None else [bias, factor]
        types = [node.get_type_name() for node in (source, *constants)]
        if types != ["MatMul", *["Constant"] * len(constants)]:
            continue
        x = source.input_value(0)
        transposed = source.get_attributes()["transpose_b"]
        parts = split.get_output_size()
        kernels = np.split(factor.get_data(), parts, axis=0 if transposed else 1)
        biases = [None] * parts if bias is None else np.split(bias.get_data(), parts, axis=-1)
        columns = zip(split.outputs(), kernels, biases, strict=True)
        for i, (output, kernel, part) in enumerate(columns):
            product = op.matmul(x, op.constant(np.ascontiguousarray(kernel)), False, transposed)
            product.set_friendly_name(f"{source.get_friendly_name()}_{i}")
            if part is not None:
                product = op.add(product, op.constant(np.ascontiguousarray(part)))
            for target in output.get_target_inputs():
                target.replace_source_output(product.output(0))
    model.validate_nodes_and_infer_types()
