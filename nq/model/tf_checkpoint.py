"""TensorFlow checkpoints: Google's TensorFlow 1 format and the object graph of the 2020 port.

A checkpoint NAME is the file NAME.index with one or several files NAME.data-….
"""

import re
from pathlib import Path
from typing import Any

from nq.model import names
from nq.model.names import Shape
from nq.model.tensors import CheckpointTensors

PREFERRED = ("bert_joint.ckpt", "model_cpkt-1")
_IGNORED = re.compile(
    r"_CHECKPOINTABLE_OBJECT_GRAPH|save_counter|\.OPTIMIZER_SLOT|^optimizer/|^global_step$"
    r"|/adam_[mv]$"
)
_PORT_MODULE = re.compile(r"(embedding_lookup|embedding_postprocessor|encoder|pooler_transform)/.*")


def find_prefix(folder: Path) -> Path | None:
    """Returns the path of a folder's checkpoint without suffix, ``None`` if it has none."""
    checkpoints = sorted(path.name.removesuffix(".index") for path in folder.glob("*.index"))
    preferred = [name for name in PREFERRED if name in checkpoints]
    if not preferred and len(checkpoints) > 1:
        raise ValueError(f"{folder} holds the checkpoints {', '.join(checkpoints)}: keep one")
    return next((folder / name for name in (*preferred, *checkpoints)), None)


def read(prefix: Path) -> CheckpointTensors:
    """Returns the tensors of a checkpoint; its keys tell which of the two formats it has."""
    import tensorflow as tf

    errors = (tf.errors.OpError, LookupError, ValueError, RuntimeError, TypeError)
    try:
        reader = tf.train.load_checkpoint(str(prefix))
        stored = reader.get_variable_to_shape_map()
    except errors as error:
        raise _damaged(prefix, error) from error
    is_object_graph = any("CHECKPOINTABLE_OBJECT_GRAPH" in name for name in stored)
    shapes: dict[str, Shape] = {}
    stored_names: dict[str, str] = {}
    for stored_name, dimensions in stored.items():
        if _IGNORED.search(stored_name):
            continue
        shape = tuple(dimensions)
        name = _port_name(stored_name, shape) if is_object_graph else stored_name
        if name in shapes:
            raise ValueError(f"{prefix} holds two models; expected the one that `mk_model` makes")
        shapes[name], stored_names[name] = shape, stored_name

    def read_tensor(name: str) -> Any:
        try:
            return reader.get_tensor(stored_names[name]).astype("float32", copy=False)
        except errors as error:
            raise _damaged(f"{prefix}: {name}", error) from error

    return CheckpointTensors(names.TF2 if is_object_graph else names.TF1, shapes, read_tensor)


def _port_name(name: str, shape: Shape) -> str:
    """Returns a name of the object graph without the path to the encoder or the head.

    The graph names the heads by number only; their kernels and biases have 2 and 5 rows.

    >>> _port_name("model/layer_with_weights-2/bias/.ATTRIBUTES/VARIABLE_VALUE", (5,))
    'ans_type/bias'
    """
    name = name.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE")
    module = _PORT_MODULE.search(name)
    if module:
        return module.group()
    head = {2: "logits", 5: "ans_type"}.get(shape[0]) if shape else None
    return f"{head}/{name.rsplit('/', 1)[-1]}" if head else name


def _damaged(what: Path | str, error: Exception) -> ValueError:
    cause = (str(error).strip() or type(error).__name__).splitlines()[0]
    return ValueError(f"{what} is damaged: {cause}")
