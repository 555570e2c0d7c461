"""What the studies compute: full windows of random pieces, by a model of random weights.

The time of a full window depends on shapes alone, so that neither trained weights nor real text are
needed. A step computes one batch and returns when its logits are in memory.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from experiments import Values, command
from experiments.planning import models
from nq.model.config import ModelConfig

SHAPES = {
    "tiny": ModelConfig(
        vocab_size=100,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
    ),
    "minilm": ModelConfig(hidden_size=384, num_hidden_layers=6, intermediate_size=1536),
    "base": models.SHAPES["bert-base"],
    "rembert": models.SHAPES["rembert"],
    "rembert-8": dataclasses.replace(models.SHAPES["rembert"], num_hidden_layers=8),
}
"""Models of the studies; ``tiny`` is for trying a command."""
ENGINE_PACKAGES = {
    "tensorflow": (),
    "tensorflow-bfloat16": (),
    "tensorflow-eager": (),
    "openvino": ("openvino",),
    "onnx": ("onnx", "onnxruntime", "tf2onnx"),
    "torch": ("torch", "transformers"),
}
"""Engines, each with the packages that it needs besides TensorFlow."""
PROFILES = {
    "tensorflow": "grappler",
    "tensorflow-bfloat16": "mixed+grappler",
    "onnx": "onnx",
}
"""Engines that nq runs as they are, each with its profile."""
HINTS = {
    "INFERENCE_PRECISION_HINT": "f32",
    "PERFORMANCE_HINT": "LATENCY",
    "NUM_STREAMS": "1",
    "ENABLE_CPU_PINNING": False,
}
K = 20
"""Positions that a step keeps of each window, as for answers."""

Step = Callable[[], None]


@dataclass(frozen=True)
class Workload:
    """What one step computes: windows of ``length`` pieces, by a shape and an engine."""

    shape: str
    engine: str
    length: int
    batch: int = 1
    threads: int = 1

    @property
    def config(self) -> ModelConfig:
        """The shape of the encoder."""
        return SHAPES[self.shape]


def missing(engine: str) -> str:
    """Returns what to install for an engine; empty if all is installed."""
    return command.missing(ENGINE_PACKAGES[engine])


class Model:
    """A model with weights of its own, of which several steps may be made."""

    def __init__(self, workload: Workload, seed: int = 0) -> None:
        others = {"tensorflow-eager": _eager, "openvino": _openvino, "torch": _torch}
        self._make = others.get(workload.engine, _engine)(workload, seed)
        self.step()()  # compiles, and fills caches

    def step(self) -> Step:
        """Returns a step that may run beside others of this model."""
        return self._make()


def rows(workload: Workload, seed: int = 0) -> Values:
    """Returns a batch of full windows of random pieces."""
    return full_windows(workload.config.vocab_size, workload.batch, workload.length, seed)


def full_windows(vocab_size: int, count: int, length: int, seed: int = 0) -> Values:
    """Returns ``count`` full windows of random pieces below ``vocab_size``."""
    import numpy as np

    draw = np.random.default_rng(seed)
    size = (count, length)
    pos = np.broadcast_to(np.arange(length, dtype=np.int32), size)
    return {
        "input_ids": draw.integers(0, vocab_size, size).astype(np.int32),
        "input_mask": np.ones(size, np.int32),
        "segment_ids": np.minimum(pos // 8, 1).astype(np.int32),
        "token_map": pos.copy(),
    }


def _network(config: ModelConfig, seed: int, policy: str = "float32") -> Any:
    from nq.model.runtime import import_tensorflow

    import_tensorflow()
    from nq.inference.engine import Network
    from nq.model import joint

    return Network(config, joint.build(config, dtype=policy, seed=seed))


def _engine(workload: Workload, seed: int) -> Callable[[], Step]:
    """An engine of nq under a profile."""
    profile = PROFILES[workload.engine]
    threads = workload.threads
    step = engine_step(workload.config, profile, rows(workload), threads, seed)
    return lambda: step


def engine_step(
    config: ModelConfig,
    name: str,
    batch: Values,
    threads: int | None = None,
    seed: int = 0,
) -> Step:
    """Returns a step that computes windows with the engine of a profile of nq."""
    from nq.inference.profile import Profile

    profile = Profile(name)
    network = _network(config, seed, profile.policy("CPU"))
    from nq.inference.batches import Shape
    from nq.inference.engine import Computation, make_engine
    from nq.inference.reduction import TopK

    reduction = TopK(K, text_only=False)
    engine = make_engine(Computation(network, profile, reduction, threads=threads))
    with engine.options():
        compiled = engine.compiled(Shape(*batch["input_ids"].shape))
        compiled(batch)  # Grappler rewrites the graph at its first call, under these options

    def step() -> None:
        compiled(batch)

    return step


def _eager(workload: Workload, seed: int) -> Callable[[], Step]:
    """The layers one after the other, each operation from Python, as PyTorch's default is."""
    model = _network(workload.config, seed).model
    inputs = rows(workload)
    del inputs["token_map"]

    def step() -> None:
        for logits in model(inputs, training=False).values():
            logits.numpy()

    return lambda: step


def _openvino(workload: Workload, seed: int) -> Callable[[], Step]:
    import tempfile
    from pathlib import Path

    network = _network(workload.config, seed)
    import openvino

    from nq.model.graph import write_graph

    core = openvino.Core()
    with tempfile.TemporaryDirectory() as folder, network.stored() as files:
        path = Path(folder) / "model.xml"
        write_graph(files, workload.config, path)
        model = core.read_model(path)
    names = [node.any_name for node in model.inputs]
    model.reshape({name: [workload.batch, workload.length] for name in names})
    options = {**HINTS, "INFERENCE_NUM_THREADS": workload.threads}
    compiled = core.compile_model(model, "CPU", options)
    batch = rows(workload)
    inputs = {name: batch[name] for name in names}

    def make() -> Step:
        request = compiled.create_infer_request()  # one alone may not run twice at once

        def step() -> None:
            request.infer(inputs, share_inputs=True)

        return step

    return make


def _torch(workload: Workload, seed: int) -> Callable[[], Step]:
    """The model of ``transformers`` of the same shape, which has the span head only."""
    import torch
    import transformers

    from nq.model.families import encode_config

    torch.set_num_threads(workload.threads)
    torch.manual_seed(seed)
    values = encode_config(workload.config)
    config = transformers.AutoConfig.for_model(**{"model_type": values.pop("model_type"), **values})
    model = transformers.AutoModelForQuestionAnswering.from_config(config).eval()
    batch = rows(workload)
    inputs = {
        "input_ids": batch["input_ids"],
        "token_type_ids": batch["segment_ids"],
        "attention_mask": batch["input_mask"],
    }
    tensors = {name: torch.from_numpy(values).long() for name, values in inputs.items()}

    def step() -> None:
        with torch.inference_mode():
            model(**tensors)

    return lambda: step
