"""The peers: who computes the model's logits, and how each is used.

Ours run through ``nq.model``. The others are used as a person would who has nothing of ours but
a folder for ``transformers``: its model on torch, and torch's exports of that in ONNX Runtime
and in OpenVINO. Each gets what is known to be fast there: static shapes, a hint of the type,
calibration on real windows.
"""

from __future__ import annotations

import contextlib
import importlib.util
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nq.config import WindowConfig
from nq.model.runtime import import_tensorflow
from nq.records import FloatArray, IntArray

INPUTS = {
    "input_ids": "input_ids",
    "attention_mask": "input_mask",
    "token_type_ids": "segment_ids",
}
"""Hugging Face's names of the inputs, and ours."""

EXTRAS = {
    "torch": "peers",
    "transformers": "peers",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "tf2onnx": "onnx",
    "openvino": "openvino",
    "nncf": "openvino",
}
"""Packages, and the extra of ours that brings each."""

Run = Callable[[], FloatArray]
"""Computes all windows -> start and end logits, float32 ``[2, N, L]``."""


@dataclass(frozen=True)
class Task:
    """What every peer computes.

    Args:
        model: a model folder of ours.
        hugging_face: the same weights in a folder for ``transformers``.
        windows: how the windows were made.
        shards: TFRecords, on some of whose windows ours calibrates.
        rows: an ``.npz`` of the ``N`` windows.
        calibration: an ``.npz`` of the windows that ours calibrates on, for the others.
        batch_size: windows in a batch; ``N`` is a multiple of it.
    """

    model: Path
    hugging_face: Path
    windows: WindowConfig
    shards: Sequence[Path]
    rows: Path
    calibration: Path
    batch_size: int

    @property
    def length(self) -> int:
        """Pieces in a window."""
        return self.windows.max_seq_length


@dataclass(frozen=True)
class Peer:
    """One way to compute the model.

    Args:
        maker: whose, a key of ``LOADERS``.
        variant: a profile of ours, or the type that the others compute in.
        packages: what it needs besides ours.
    """

    maker: str
    variant: str
    packages: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.maker}/{self.variant}"

    @property
    def ours(self) -> bool:
        """Whether it runs through ``nq.model``."""
        return self.maker == "ours"

    def missing(self) -> str:
        """Which packages are not installed, and what to run; empty if all are."""
        missing = [name for name in self.packages if importlib.util.find_spec(name) is None]
        if not missing:
            return ""
        extras = ",".join(dict.fromkeys(EXTRAS[name] for name in missing))
        return f"{' and '.join(missing)} not installed: run pip install 'nq[{extras}]'"


_TORCH = ("torch", "transformers")
_ONNX = ("onnx", "onnxruntime")
BASELINE = Peer("ours", "baseline")
PEERS = {
    str(peer): peer
    for peer in (
        BASELINE,
        Peer("ours", "mixed+grappler+frozen+buckets"),
        Peer("ours", "mixed+openvino", ("openvino",)),
        Peer("ours", "mixed+openvino+int8", ("openvino", "nncf")),
        Peer("ours", "onnx", (*_ONNX, "tf2onnx")),
        Peer("ours", "onnx+int8", (*_ONNX, "tf2onnx")),
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


@contextlib.contextmanager
def loaded(peer: Peer, task: Task) -> Iterator[tuple[str, Run]]:
    """The peer with its model loaded: the type that it computes in, and its run."""
    with LOADERS[peer.maker](task, peer.variant) as found:
        yield found


@contextlib.contextmanager
def _ours(task: Task, variant: str) -> Iterator[tuple[str, Run]]:
    """A predictor from which the logits of all positions leave, not the best alone."""
    import_tensorflow()
    from nq.inference.batches import Shape
    from nq.inference.loading import Loader
    from nq.inference.predict import some_windows
    from nq.inference.predictor import Predictor
    from nq.inference.profile import Profile
    from nq.inference.top_k import Selection
    from nq.preprocess.tokenizers.load import load_tokenizer

    shape = Shape(task.batch_size, task.windows.max_seq_length)
    loader = Loader(
        task.model,
        load_tokenizer(task.model),
        task.windows,
        "default",
        task.batch_size,
        lambda: some_windows(task.shards, shape),
    )
    made = loader.predictor(Profile.parse(variant))
    everything = replace(made.task, selection=Selection(task.length, text_only=False))
    predictor = Predictor(everything, shape)
    rows = read_rows(task.rows)

    def run() -> FloatArray:
        return all_logits(predictor.scores(rows))

    with predictor.ready():
        yield predictor.engine.precision, run


def all_logits(scores: Mapping[str, Any]) -> FloatArray:
    """Start and end logits ``[2, N, L]`` from scores of all positions, best first."""
    found = np.stack([scores["start_logit"], scores["end_logit"]])
    pos = np.stack([scores["start_pos"], scores["end_pos"]])
    logits = np.empty_like(found)
    np.put_along_axis(logits, pos, found, axis=2)
    logits[:, :, 0] = scores["cls_logit"].T
    return logits


@contextlib.contextmanager
def _transformers(task: Task, variant: str) -> Iterator[tuple[str, Run]]:
    import torch

    model = _pretrained(task, torch.bfloat16 if variant == "bfloat16" else torch.float32)
    if variant == "int8":
        model = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)

    def compute(batch: Mapping[str, Any]) -> list[Any]:
        found = model(**{name: torch.from_numpy(x) for name, x in batch.items()})
        return [logits.float().numpy() for logits in found]

    with torch.inference_mode():
        yield variant, _over_batches(compute, task)


@contextlib.contextmanager
def _onnxruntime(task: Task, variant: str) -> Iterator[tuple[str, Run]]:
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
            dynamo=False,  # the newer exporter needs one package more
        )
        if variant == "int8":
            smaller = path.with_name("int8.onnx")
            quantize_dynamic(str(path), str(smaller), weight_type=QuantType.QInt8)
            path = smaller
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def compute(batch: Mapping[str, Any]) -> list[Any]:
        found: list[Any] = session.run(outputs, dict(batch))
        return found

    yield variant, _over_batches(compute, task)


@contextlib.contextmanager
def _openvino(task: Task, variant: str) -> Iterator[tuple[str, Run]]:
    import openvino
    import torch

    model = openvino.convert_model(_pretrained(task, torch.float32), example_input=_example(task))
    names = [given.any_name for given in model.inputs]
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

    def compute(batch: Mapping[str, Any]) -> list[Any]:
        found = compiled(dict(batch), share_inputs=True)
        return [found[0], found[1]]

    yield variant, _over_batches(compute, task)


LOADERS: Mapping[str, Callable[[Task, str], contextlib.AbstractContextManager[tuple[str, Run]]]] = {
    "ours": _ours,
    "transformers": _transformers,
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
}


def read_rows(path: Path) -> dict[str, IntArray]:
    """The columns of windows in an ``.npz``."""
    with np.load(path) as columns:
        return dict(columns)


def _pretrained(task: Task, dtype: Any) -> Any:
    """The model of ``transformers``; it gives a tuple of start and end logits."""
    from transformers import AutoModelForQuestionAnswering

    return AutoModelForQuestionAnswering.from_pretrained(
        task.hugging_face, dtype=dtype, return_dict=False
    ).eval()


def _example(task: Task) -> dict[str, Any]:
    """The first batch, which exports follow the model with."""
    import torch

    batch = next(_batches(task, task.rows, task.batch_size))
    return {name: torch.from_numpy(x) for name, x in batch.items()}


def _batches(task: Task, path: Path, size: int) -> Iterator[dict[str, IntArray]]:
    """Windows under Hugging Face's names, as many as the model takes, in int64."""
    from nq.model.checkpoint import load_config

    segments = load_config(task.model).type_vocab_size > 1
    names = {name: own for name, own in INPUTS.items() if segments or own != "segment_ids"}
    rows = read_rows(path)
    for first in range(0, len(rows["input_ids"]), size):
        yield {
            name: rows[own][first : first + size].astype(np.int64) for name, own in names.items()
        }


def _over_batches(compute: Callable[[Mapping[str, Any]], list[Any]], task: Task) -> Run:
    batches = list(_batches(task, task.rows, task.batch_size))

    def run() -> FloatArray:
        return np.concatenate([np.stack(compute(batch)) for batch in batches], axis=1)

    return run
