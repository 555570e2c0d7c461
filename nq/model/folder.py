"""The files of a model folder: shape and settings in JSON, and the weights.

Four kinds of folder hold weights: one ``model.safetensors``, several of them with an index,
a TensorFlow 1 checkpoint with Google's names, and an object-based TensorFlow 2 checkpoint with
those of the 2020 port. Pickles are never loaded.
"""

import contextlib
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from nq.config import NQ_CONTEXTS, CascadeDecision, DecisionConfig, WindowConfig
from nq.errors import check_argument
from nq.formats.lines import check_whole
from nq.json_files import dump_json, read_json_object
from nq.model import names, registry, tensor_files
from nq.model.config import ModelConfig
from nq.model.families import decode_config, layout_of
from nq.model.tensor_files import INDEX, WEIGHTS
from nq.model.tensors import CheckpointTensors, check_length
from nq.preprocess.tokenizers import FILES
from nq.preprocess.tokenizers.load import max_length
from nq.storage import sha256

CONFIG, TF_CONFIG, SETTINGS = registry.CONFIG, registry.TF_CONFIG, "nq.json"
CARD = "README.md"
OTHERS = (CONFIG, TF_CONFIG, SETTINGS, CARD, *FILES)
"""Files that a model folder may have besides its weights."""
SHARD = re.compile(r"[^/\\\x00-\x1f]{1,200}\.safetensors")
SQUAD, SQUAD_LENGTH, SQUAD_OVERLAP = "squad", 384, 128
"""The rule and the features of readers of SQuAD; the pieces of their windows, and those that two of
them share, in the scripts of transformers."""
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")


@dataclass(frozen=True)
class ModelSettings:
    """The settings that a model folder holds besides its weights.

    Args:
        cascades: the decisions of this model as the second one behind others, by the digest of
            the first model's weights.
        second_model: the model that reads the blocks that this one ranks best, where this one is
            given alone; text with a slash is a folder, other text a name.
        removed_parts: which heads, units and layers were removed, one object for each time.
        weights: the SHA-256 of the weight files by their names; empty where nq did not write them.
    """

    windows: WindowConfig = field(default_factory=WindowConfig)
    decision: DecisionConfig = field(default_factory=DecisionConfig)
    cascades: Mapping[str, CascadeDecision] = field(default_factory=dict)
    second_model: str | None = None
    removed_parts: tuple[Mapping[str, Any], ...] = ()
    weights: Mapping[str, str] = field(default_factory=dict)


def load_config(folder: str | Path) -> ModelConfig:
    """Returns the encoder's shape from ``config.json``, or from Google's ``bert_config.json``."""
    paths = (Path(folder) / name for name in (CONFIG, TF_CONFIG))
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        if tensor_files.find_tensorflow(Path(folder)):
            raise FileNotFoundError(f"no {TF_CONFIG} in {folder} beside the TensorFlow checkpoint")
        raise FileNotFoundError(
            f"no model in {folder}: expected {CONFIG}, model.safetensors and vocab.txt or "
            f"spiece.model (or {TF_CONFIG}, a TensorFlow checkpoint and its vocabulary)"
        )
    values = read_json_object(path)
    if path.name == TF_CONFIG and values.get("hidden_act") == "gelu":
        values["hidden_act"] = "gelu_new"  # Google's code approximates it by tanh
    try:
        return decode_config(values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def load_joint_config(folder: str | Path) -> ModelConfig:
    """Returns the encoder's shape, as ``load_config`` does, of a model that gives answers."""
    config = load_config(folder)
    if config.is_dual_encoder:
        raise ValueError(f"{folder} is a dual encoder, which only ranks: choose another model")
    return config


def load_settings(folder: str | Path) -> ModelSettings:
    """Returns the settings in ``nq.json``.

    Without such a file they are the defaults, and those of a reader of SQuAD for one that was
    not trained with nq.
    """
    path = Path(folder) / SETTINGS
    if not path.is_file():
        is_reader = False
        with contextlib.suppress(OSError, ValueError):  # the check of the model reports it
            is_reader = weight_files(folder)[0].suffix != ".index" and is_squad_reader(folder)
        return _squad_settings(folder) if is_reader else ModelSettings()
    values = read_json_object(path)
    cascades, parts = values.get("cascades", {}), values.get("removed_parts", [])
    second, weights = values.get("second_model"), values.get("weights", {})
    try:
        is_name = second is None or (isinstance(second, str) and second != "")
        check_argument(is_name, "second_model", second, "a model or a folder")
        for name, value in (("cascades", cascades), ("weights", weights)):
            check_argument(isinstance(value, dict), name, value, "an object")
        are_objects = isinstance(parts, list) and all(isinstance(one, dict) for one in parts)
        check_argument(are_objects, "removed_parts", parts, "a list of objects")
        windows = WindowConfig.from_dict(values.get("windows", {}))
        if windows.max_contexts == NQ_CONTEXTS:  # the default as a number, not a limit of documents
            windows = replace(windows, max_contexts=0)
        return ModelSettings(
            windows,
            DecisionConfig.from_dict(values.get("decision", {})),
            {digest: CascadeDecision.from_dict(value) for digest, value in cascades.items()},
            second,
            tuple(parts),
            weights,
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _squad_settings(folder: str | Path) -> ModelSettings:
    """Returns the settings of a reader of SQuAD: plain windows, the best span or the null span."""
    length = min(SQUAD_LENGTH, load_config(folder).positions, max_length(folder))
    windows = WindowConfig(
        max_seq_length=length,
        doc_stride=length - min(SQUAD_OVERLAP, length // 2),
        max_query_length=min(WindowConfig.max_query_length, length // 4),
        compat=SQUAD,
    )
    return ModelSettings(windows, DecisionConfig(rule=SQUAD))


def save_settings(folder: str | Path, settings: ModelSettings) -> None:
    """Writes settings into a model folder's ``nq.json``."""
    values = {name: value for name, value in asdict(settings).items() if value}
    dump_json(Path(folder) / SETTINGS, values)


def weight_files(folder: str | Path) -> list[Path]:
    """Returns the files that hold a folder's weights, in a fixed order."""
    path = Path(folder)
    if (path / WEIGHTS).is_file():
        return [path / WEIGHTS]
    if (path / INDEX).is_file():
        return _shards(path / INDEX)
    prefix = tensor_files.find_tensorflow(path)
    if prefix:
        data = sorted(path.glob(f"{prefix.name}.data-*"))
        if not data:
            raise FileNotFoundError(f"{prefix}.index is there but no {prefix.name}.data-…: copy it")
        return [Path(f"{prefix}.index"), *data]
    advice = registry.CONVERT_PICKLE.format("FOLDER")
    for name in PICKLES:
        if (path / name).is_file():
            raise ValueError(f"{path / name} is a pickle, which is never loaded: {advice}")
    raise FileNotFoundError(f"no {WEIGHTS} in {folder}, nor a TensorFlow checkpoint")


def _shards(index: Path) -> list[Path]:
    """Returns the files that an index names, which must lie beside it."""
    weight_map = read_json_object(index).get("weight_map")
    if not (isinstance(weight_map, dict) and weight_map):
        raise ValueError(f"{index} is not an index: expected a weight_map from tensors to files")
    shards = sorted(set(map(str, weight_map.values())))
    for name in shards:
        if not SHARD.fullmatch(name):
            raise ValueError(
                f"{index} names the file {name!r:.80}: expected names such as "
                "model-00001-of-00002.safetensors, in the same folder"
            )
    there = {path.name for path in index.parent.iterdir() if path.is_file()}
    missing = [shard for shard in shards if shard not in there]
    if missing:
        what = f"{index} names {len(shards)} files, of which {len(missing)} are missing"
        raise FileNotFoundError(f"{what}: {', '.join(missing[:3])}")
    return [index.parent / shard for shard in shards]


def model_files(folder: Path) -> list[Path]:
    """Returns the files of a model, without others in its folder."""
    others = (folder / name for name in (*OTHERS, INDEX))
    return [*weight_files(folder), *(path for path in others if path.is_file())]


def copy_model(source: Path, target: Path, settings: ModelSettings | None = None) -> Path:
    """Copies a model alone to ``target``, which it returns; ``settings`` replace its own."""
    paths = model_files(source)
    target.mkdir(parents=True)
    for path in paths:
        shutil.copyfile(path, target / path.name)
    if settings is not None:
        save_settings(target, replace(settings, weights=load_settings(source).weights))
    return target


def file_digests(folder: str | Path) -> dict[str, str]:
    """Returns the SHA-256 of each weight file of a model folder by the file's name."""
    return {path.name: sha256(path) for path in weight_files(folder)}


def weights_digest(folder: str | Path) -> str:
    """Returns the SHA-256 of a folder's weight files; ``ValueError`` if ``nq.json`` has others."""
    digests, expected = file_digests(folder), load_settings(folder).weights
    for name, digest in digests.items() if expected else ():
        if expected.get(name) != digest:
            raise ValueError(
                f"{Path(folder) / name} is damaged or was changed: its SHA-256 is not that in "
                f"{SETTINGS}; copy or download it again, or remove weights there if you changed it"
            )
    return "+".join(digests.values())


def read_tensors(folder: str | Path, check_digest: bool = True) -> CheckpointTensors:
    """Returns the tensors of a folder's weights, by canonical name."""
    files = weight_files(folder)
    for file in files:
        check_whole(file)
    if check_digest:
        weights_digest(folder)
    if files[0].suffix == ".index":
        return tensor_files.read_tensorflow(files[0].with_suffix(""))
    layout = layout_of(load_config(folder)) if (Path(folder) / CONFIG).is_file() else names.BERT
    return tensor_files.read_safetensors(files, layout)


def has_head(folder: str | Path, name: str) -> bool:
    """Returns whether a model has the head ``name``; a dual encoder needs none."""
    config, tensors = load_config(folder), read_tensors(folder, check_digest=False)
    return config.is_dual_encoder or tensors.fill(tensors.table(config)[f"{name}/kernel"])


def is_squad_reader(folder: str | Path) -> bool:
    """Returns whether a model has a head for spans and none for types of answers."""
    return has_head(folder, "span_output") and not has_head(folder, "type_output")


def check_model(folder: str | Path, windows: WindowConfig | None = None) -> None:
    """Checks a folder's config, the digests of its weights and, of safetensors, the headers.

    It takes 1 ms for a MB, no TensorFlow. Nothing is made yet whose size the config determines.
    """
    config = load_config(folder)
    if weight_files(folder)[0].suffix == ".safetensors":
        read_tensors(folder, check_digest=False).table(config)  # before all is read
    weights_digest(folder)
    if windows is not None:
        check_length(config, windows.max_seq_length)
