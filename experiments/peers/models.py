"""The peers: libraries that compute the model's logits.

Ours are the engines of ``nq.inference``. The others start from a folder for ``transformers``: its
model on torch, and torch's exports of it in ONNX Runtime and in OpenVINO. Each has the settings
that are known to be fast there: static shapes, a hint of the compute type, calibration on real
windows.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments import Values
from nq.config import WindowConfig
from nq.model.runtime import import_tensorflow
from nq.records import FloatArray, IntArray

INPUTS = {
    "input_ids": "input_ids",
    "attention_mask": "input_mask",
    "token_type_ids": "segment_ids",
}
"""Maps Hugging Face's names of the inputs to those of nq."""

Run = Callable[[], FloatArray]
"""Computes all windows; returns start and end logits, float32 ``[2, N, L]``."""


@dataclass(frozen=True)
class Task:
    """What every peer computes: the same weights in a folder of nq and in one for ``transformers``.

    ``rows`` is an ``.npz`` of windows in whole batches, ``calibration`` one of windows to calibrate
    8-bit models on.
    """

    model: Path
    hugging_face: Path
    windows: WindowConfig
    rows: Path
    calibration: Path
    batch_size: int

    @property
    def length(self) -> int:
        """Pieces in a window."""
        return self.windows.max_seq_length


@dataclass(frozen=True)
class Peer:
    """One library with one setting: a profile of nq, or the compute type of the other libraries.

    ``packages`` are those that it needs besides our dependencies.
    """

    maker: str
    variant: str
    packages: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.maker}/{self.variant}"


_TORCH = ("torch", "transformers")
_ONNX = ("onnx", "onnxruntime")
BASELINE = Peer("nq", "baseline")
PEERS = {
    str(peer): peer
    for peer in (
        BASELINE,
        Peer("nq", "mixed+grappler+frozen+buckets"),
        Peer("nq", "mixed+openvino", ("openvino",)),
        Peer("nq", "mixed+openvino+int8", ("openvino", "nncf")),
        Peer("nq", "onnx", (*_ONNX, "tf2onnx")),
        Peer("nq", "onnx+int8", (*_ONNX, "tf2onnx")),
        Peer("transformers", "float32", _TORCH),
        Peer("transformers", "bfloat16", _TORCH),
        Peer("transformers", "int8", _TORCH),
        Peer("onnxruntime", "float32", (*_TORCH, *_ONNX)),
        Peer("onnxruntime", "int8", (*_TORCH, *_ONNX)),
        Peer("openvino", "float32", (*_TORCH, "openvino")),
        Peer("openvino", "bfloat16", (*_TORCH, "openvino")),
        Peer("openvino", "int8", (*_TORCH, "openvino", "nncf")),
    )
}


def _nq(task: Task, variant: str) -> tuple[str, Run]:
    """Loads a predictor that returns the logits of all positions, not only of the best."""
    import_tensorflow()
    from nq.config import DecisionConfig
    from nq.inference.load import ScorerSpec, load_predictor
    from nq.inference.profile import Profile
    from nq.inference.reduction import TopK
    from nq.model.folder import ModelFolder
    from nq.model.model import Model

    model = Model.alone(ModelFolder(task.model), task.windows, DecisionConfig())
    calibration = {task.model: read_rows(task.calibration)}
    spec = ScorerSpec(model, Profile(variant), task.batch_size, calibration=calibration)
    predictor = load_predictor(spec, TopK(task.length, text_only=False))
    rows = read_rows(task.rows)

    def run() -> FloatArray:
        return all_logits(predictor.scores(rows))

    return predictor.precision, run


def all_logits(scores: Values) -> FloatArray:
    """Returns start and end logits ``[2, N, L]`` from the scores of all positions, best first."""
    best = np.stack([scores["start_logit"], scores["end_logit"]])
    pos = np.stack([scores["start_pos"], scores["end_pos"]])
    logits = np.empty_like(best)
    np.put_along_axis(logits, pos, best, axis=2)
    logits[:, :, 0] = scores["cls_logit"].T
    return logits


def _transformers(task: Task, variant: str) -> tuple[str, Run]:
    import torch

    model = _pretrained(task, torch.bfloat16 if variant == "bfloat16" else torch.float32)
    if variant == "int8":
        model = torch.ao.quantization.quantize_dynamic(
            model,
            {torch.nn.Linear},
            dtype=torch.qint8,
        )

    def compute(batch: Values) -> list[Any]:
        with torch.inference_mode():
            outputs = model(**{name: torch.from_numpy(x) for name, x in batch.items()})
        return [logits.float().numpy() for logits in outputs]

    return variant, _over_batches(compute, task)


def _onnxruntime(task: Task, variant: str) -> tuple[str, Run]:
    import onnxruntime
    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        example = _example(task)
        outputs = ["start_logits", "end_logits"]
        torch.onnx.export(
            _pretrained(task, torch.float32),
            (),
            str(path),
            kwargs=example,
            input_names=list(example),
            output_names=outputs,
            dynamic_axes={name: {0: "batch", 1: "length"} for name in (*example, *outputs)},
            dynamo=False,  # the newer exporter needs another package
        )
        if variant == "int8":
            quantized = path.with_name("int8.onnx")
            quantize_dynamic(str(path), str(quantized), weight_type=QuantType.QInt8)
            path = quantized
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def compute(batch: Values) -> list[Any]:
        logits: list[Any] = session.run(outputs, dict(batch))
        return logits

    return variant, _over_batches(compute, task)


def _openvino(task: Task, variant: str) -> tuple[str, Run]:
    import openvino
    import torch

    model = openvino.convert_model(_pretrained(task, torch.float32), example_input=_example(task))
    names = [model_input.any_name for model_input in model.inputs]
    hints = {"float32": {"INFERENCE_PRECISION_HINT": "f32"}}
    hints["bfloat16"] = {"INFERENCE_PRECISION_HINT": "bf16"}
    if variant == "int8":
        import nncf

        windows = list(_batches(task, task.calibration, 1))
        model = nncf.quantize(
            model,
            nncf.Dataset(windows),
            subset_size=len(windows),
            model_type=nncf.ModelType.TRANSFORMER,
        )
    model.reshape({name: [task.batch_size, task.length] for name in names})
    options = {"PERFORMANCE_HINT": "LATENCY", **hints.get(variant, {})}
    compiled = openvino.Core().compile_model(model, "CPU", options)

    def compute(batch: Values) -> list[Any]:
        outputs = compiled(dict(batch), share_inputs=True)
        return [outputs[0], outputs[1]]

    return variant, _over_batches(compute, task)


LOADERS: Mapping[str, Callable[[Task, str], tuple[str, Run]]] = {
    "nq": _nq,
    "transformers": _transformers,
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
}
"""Each loads a variant of a library; returns its compute type and its run."""


def read_rows(path: Path) -> dict[str, IntArray]:
    """Returns the columns of windows in an ``.npz``."""
    with np.load(path) as columns:
        return dict(columns)


def _pretrained(task: Task, dtype: Any) -> Any:
    """Returns the model of ``transformers``, which returns a tuple of start and end logits."""
    from transformers import AutoModelForQuestionAnswering

    return AutoModelForQuestionAnswering.from_pretrained(
        task.hugging_face, dtype=dtype, return_dict=False
    ).eval()


def _example(task: Task) -> Values:
    """Returns the first batch, with which exports trace the model."""
    import torch

    batch = next(_batches(task, task.rows, task.batch_size))
    return {name: torch.from_numpy(x) for name, x in batch.items()}


def _batches(task: Task, path: Path, size: int) -> Iterator[dict[str, IntArray]]:
    """Yields batches of windows as int64, under Hugging Face's names of the model's inputs."""
    from nq.model.folder import ModelFolder

    segments = ModelFolder(task.model).config.type_vocab_size > 1
    names = {name: own for name, own in INPUTS.items() if segments or own != "segment_ids"}
    rows = read_rows(path)
    for first in range(0, len(rows["input_ids"]), size):
        yield {
            name: rows[own][first : first + size].astype(np.int64) for name, own in names.items()
        }


def _over_batches(compute: Callable[[Values], list[Any]], task: Task) -> Run:
    batches = list(_batches(task, task.rows, task.batch_size))

    def run() -> FloatArray:
        return np.concatenate([np.stack(compute(batch)) for batch in batches], axis=1)

    return run
