"""The files of a model folder: shape and settings in JSON, and the weights.

Four kinds of folder hold weights: one ``model.safetensors``, several of them with an index,
a TensorFlow 1 checkpoint with Google's names, and an object-based TensorFlow 2 checkpoint with
those of the 2020 port. Pickles are never loaded.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nq.config import CascadeDecision, DecisionConfig, ModelConfig, WindowConfig
from nq.errors import check_argument
from nq.files import atomic_write
from nq.formats.input_files import sha256
from nq.json_files import read_json_object
from nq.model import names, registry, safetensors_file, tf_checkpoint
from nq.model.families import decode_config, layout_of
from nq.model.shapes import check_length
from nq.model.tensors import CheckpointTensors
from nq.preprocess.tokenizers.load import NAMES as TOKENIZERS

CONFIG, TF_CONFIG, SETTINGS = registry.CONFIG, registry.TF_CONFIG, "nq.json"
WEIGHTS, INDEX = safetensors_file.WEIGHTS, safetensors_file.INDEX
CARD = "README.md"
OTHERS = (CONFIG, TF_CONFIG, SETTINGS, CARD, *TOKENIZERS, "merges.txt", "tokenizer_config.json")
"""Files that a model folder may have besides its weights."""
OTHER_MODELS = ("first_model", "second_model")
"""Settings that name another model, with which a model answers."""
SHARD = re.compile(r"[^/\\\x00-\x1f]{1,200}\.safetensors")
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
CONVERT_PICKLE = (
    "convert it where you trust it and have transformers: python -c 'import sys; from "
    "transformers import AutoModelForQuestionAnswering as M; "
    "M.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[2])' FOLDER NEW_FOLDER"
)


@dataclass(frozen=True)
class ModelSettings:
    """The settings that a model folder holds besides its weights.

    Args:
        windows: how pages become windows.
        decision: how scores become answers.
        cascades: the decisions of this model as the second one behind others, by the digest of
            the first model's weights.
        first_model: the model that ranks the blocks for this one, where this one is given alone;
            text with a slash is a folder, other text a name.
        second_model: in the same way, the model that reads the blocks that this one ranks best.
        pruning: what was removed from the model, one object for each time (``nq.model.pruning``).
    """

    windows: WindowConfig = field(default_factory=WindowConfig)
    decision: DecisionConfig = field(default_factory=DecisionConfig)
    cascades: Mapping[str, CascadeDecision] = field(default_factory=dict)
    first_model: str | None = None
    second_model: str | None = None
    pruning: tuple[Mapping[str, Any], ...] = ()


def load_config(folder: str | Path) -> ModelConfig:
    """Returns the encoder's shape from ``config.json``, or from Google's ``bert_config.json``.

    Raises:
        FileNotFoundError: the folder has neither file.
        ValueError: the file is damaged, or its model is not supported.
    """
    path, google = Path(folder) / CONFIG, Path(folder) / TF_CONFIG
    if not path.is_file() and not google.is_file():
        if tf_checkpoint.find_prefix(Path(folder)):
            raise FileNotFoundError(
                f"no {TF_CONFIG} in {folder} beside the TensorFlow checkpoint: put there the one "
                "that the checkpoint came with"
            )
        raise FileNotFoundError(
            f"no model in {folder}: expected {CONFIG}, model.safetensors and vocab.txt or "
            f"spiece.model (or {TF_CONFIG}, a TensorFlow checkpoint and its vocabulary)"
        )
    if not path.is_file():
        path = google
    values = read_json_object(path)
    if path == google and values.get("hidden_act") == "gelu":
        values["hidden_act"] = "gelu_new"  # Google's code approximates it by tanh
    try:
        return decode_config(values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def load_joint_config(folder: str | Path) -> ModelConfig:
    """Returns the encoder's shape, as ``load_config`` does, of a model that gives answers.

    Raises:
        FileNotFoundError: the folder has no model.
        ValueError: the file is damaged, or the model is a dual encoder, which only ranks blocks.
    """
    config = load_config(folder)
    if config.is_dual_encoder:
        raise ValueError(
            f"{folder} is a dual encoder, which ranks blocks and has no heads for answers: nq "
            "answer takes it as --model or --second-model, with another model"
        )
    return config


def load_settings(folder: str | Path) -> ModelSettings:
    """Returns the settings in ``nq.json``, the defaults if there is no such file.

    Raises:
        ValueError: the file is damaged.
    """
    path = Path(folder) / SETTINGS
    if not path.is_file():
        return ModelSettings()
    values = read_json_object(path)
    try:
        return ModelSettings(
            WindowConfig.from_dict(values.get("windows", {})),
            DecisionConfig.from_dict(values.get("decision", {})),
            _decode_cascades(values.get("cascades", {})),
            **_decode_other_model(values),
            pruning=_decode_pruning(values.get("pruning", [])),
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _decode_cascades(values: Any) -> dict[str, CascadeDecision]:
    if not isinstance(values, dict):
        raise ValueError(f"cascades is {values!r:.80}: expected an object")
    return {digest: CascadeDecision.from_dict(value) for digest, value in values.items()}


def _decode_other_model(values: Mapping[str, Any]) -> dict[str, str]:
    given = {name: values[name] for name in OTHER_MODELS if name in values}
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)} exclude each other")
    for name, value in given.items():
        if not (isinstance(value, str) and value):
            raise ValueError(f"{name} is {value!r:.80}: expected the name of a model, or a folder")
    return given


def _decode_pruning(values: Any) -> tuple[Mapping[str, Any], ...]:
    if not (isinstance(values, list) and all(isinstance(value, dict) for value in values)):
        raise ValueError(f"pruning is {values!r:.80}: expected a list of objects")
    return tuple(values)


def save_settings(folder: str | Path, settings: ModelSettings) -> None:
    """Writes windows, decisions and what was pruned into a model folder's ``nq.json``."""
    values: dict[str, Any] = {
        "windows": settings.windows.to_dict(),
        "decision": settings.decision.to_dict(),
    }
    cascades = {digest: decision.to_dict() for digest, decision in settings.cascades.items()}
    others: dict[str, Any] = {name: getattr(settings, name) for name in OTHER_MODELS}
    others |= {"cascades": cascades, "pruning": list(settings.pruning)}
    write_json(Path(folder) / SETTINGS, values | {name: x for name, x in others.items() if x})


def write_json(path: Path, value: Any) -> None:
    """Writes a value as indented JSON."""
    with atomic_write(path) as file:
        file.write((json.dumps(value, indent=2) + "\n").encode())


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
    """Returns the files that an index names, which must lie beside it."""
    weight_map = read_json_object(index).get("weight_map")
    if not (isinstance(weight_map, dict) and weight_map):
        raise ValueError(f"{index} is not an index: expected a weight_map from tensors to files")
    names = set(map(str, weight_map.values()))
    shards = sorted(name for name in names if SHARD.fullmatch(name))
    if len(shards) < len(names):
        raise ValueError(
            f"{index} names the file {min(names.difference(shards))!r:.80}: expected names such as "
            "model-00001-of-00002.safetensors, in the same folder"
        )
    missing = [shard for shard in shards if not (index.parent / shard).is_file()]
    if missing:
        raise FileNotFoundError(
            f"{index} names {len(shards)} files, of which {', '.join(missing[:3])} "
            f"{'is' if len(missing) == 1 else 'are'} missing: copy or download them"
        )
    return [index.parent / shard for shard in shards]


def copy_model(source: Path, target: Path, settings: ModelSettings | None = None) -> None:
    """Copies the files of a model, and nothing else that its folder may hold.

    Args:
        source: model folder of any kind.
        target: folder to make.
        settings: of the copy; by default those of the source.

    Raises:
        FileNotFoundError, ValueError: as ``weight_files``.
        OSError: a file cannot be read or written.
    """
    others = [source / name for name in (*OTHERS, INDEX) if (source / name).is_file()]
    paths = [*weight_files(source), *others]
    target.mkdir(parents=True)
    for path in paths:
        shutil.copyfile(path, target / path.name)
    if settings is not None:
        save_settings(target, settings)


def weights_digest(folder: str | Path) -> str:
    """Returns the SHA-256 of the weight files of a model folder.

    Raises:
        FileNotFoundError, ValueError: as ``weight_files``.
    """
    return "+".join(sha256(path) for path in weight_files(folder))


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


def check(folder: str | Path, windows: WindowConfig | None = None) -> None:
    """Checks a folder's config and, for safetensors, the headers of its weights.

    It takes milliseconds and no TensorFlow. Nothing is made yet whose size the config determines.

    Args:
        folder: a model folder.
        windows: must not be longer than the model's positions.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, or config and weights do not belong together.
    """
    config = load_config(folder)
    if weight_files(folder)[0].suffix == ".safetensors":
        read_tensors(folder).table(config)
    if windows is not None:
        check_length(config, windows.max_seq_length)


def folder_and_settings(
    model: str | Path | None,
    windows: WindowConfig | None,
    decision: DecisionConfig | None,
    name: str = "model",
) -> tuple[Path, ModelSettings]:
    """Returns a model folder and its settings, which the arguments replace.

    Args:
        model: a model folder, which need not exist, or the name of a model; by default the
            bundled model.
        windows: how pages become windows; by default the settings of the folder.
        decision: how scores become answers; by default the settings of the folder.
        name: of the argument ``model``, for errors.

    Raises:
        FileNotFoundError, Error: there is no model of this name (``nq.model.registry``).
        ValueError: an argument has the wrong type, or the settings of the folder are damaged.
    """
    for argument, value, kind, expected in (
        (name, model, str | Path, "the path of a model folder, or a name"),
        ("windows", windows, WindowConfig, "nq.WindowConfig(…)"),
        ("decision", decision, DecisionConfig, "nq.DecisionConfig(…)"),
    ):
        check_argument(value is None or isinstance(value, kind), argument, value, expected)
    folder = registry.model_folder(model)
    if windows is None or decision is None:
        own = load_settings(folder)
        windows, decision = windows or own.windows, decision or own.decision
    return folder, ModelSettings(windows, decision)
