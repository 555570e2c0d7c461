"""The weights in a model folder.

Four kinds of folder hold weights: one ``model.safetensors``, several of them with an index,
a TensorFlow 1 checkpoint with Google's names, and an object-based TensorFlow 2 checkpoint with
those of the 2020 port. Pickles are never loaded.
"""

from __future__ import annotations

import json
from pathlib import Path

from nq.model import names, safetensors_file, tf_checkpoint
from nq.model.families import layout_of
from nq.model.settings import CONFIG, load_config
from nq.model.tensors import CheckpointTensors

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
CONVERT_PICKLE = (
    "convert it where you trust it and have transformers: python -c 'import sys; from "
    "transformers import AutoModelForQuestionAnswering as M; "
    "M.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[2])' FOLDER NEW_FOLDER"
)


def weight_files(folder: str | Path) -> list[Path]:
    """Returns the files that hold a folder's weights, in a fixed order.

    Raises:
        FileNotFoundError: there are none, or one of several is missing.
        ValueError: the only weights are a pickle, or it is unclear which of several TensorFlow
            checkpoints is meant.
    """
    path = Path(folder)
    if (path / WEIGHTS).is_file():
        return [path / WEIGHTS]
    if (path / INDEX).is_file():
        return _shards(path / INDEX)
    prefix = tf_checkpoint.find_prefix(path)
    if prefix:
        return tf_checkpoint.files_of(prefix)
    for name in PICKLES:
        if (path / name).is_file():
            raise ValueError(f"{path / name} is a pickle, which is never loaded: {CONVERT_PICKLE}")
    raise FileNotFoundError(
        f"no {WEIGHTS} in {folder}: weights are read from safetensors only, or from a "
        "TensorFlow checkpoint (NAME.index and NAME.data-…)"
    )


def _shards(index: Path) -> list[Path]:
    try:
        shards = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{index} is not an index with a weight_map: {error}") from error
    missing = [shard for shard in shards if not (index.parent / shard).is_file()]
    if missing:
        raise FileNotFoundError(
            f"{index} names {len(shards)} files, of which {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing: copy or download them"
        )
    return [index.parent / shard for shard in shards]


def read_tensors(folder: str | Path) -> CheckpointTensors:
    """Returns the tensors of a folder's weights, by canonical name.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, or the weights are a pickle.
    """
    files = weight_files(folder)
    if files[0].suffix == ".index":
        return tf_checkpoint.read(files[0].with_suffix(""))
    has_config = (Path(folder) / CONFIG).is_file()
    return safetensors_file.read(
        files, layout_of(load_config(folder)) if has_config else names.BERT
    )


def check(folder: str | Path) -> None:
    """Checks a folder's config and, for safetensors, its weights without TensorFlow.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, or config and weights do not belong together.
    """
    config = load_config(folder)
    if weight_files(folder)[0].suffix == ".safetensors":
        read_tensors(folder).table(config)
