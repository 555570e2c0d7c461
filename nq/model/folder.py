"""The files of a model folder: shape and settings in JSON, and the weights.

Four kinds of folder hold weights: one ``model.safetensors``, several of them with an index,
a TensorFlow 1 checkpoint with Google's names, and an object-based TensorFlow 2 checkpoint with
those of the 2020 port. Pickles are never loaded.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from nq import storage
from nq.config import CascadeDecision, DecisionConfig, WindowConfig
from nq.errors import ChangedError, Error, check_argument
from nq.formats.lines import check_whole
from nq.json_files import dump_json, read_json_object
from nq.model import names, registry, tensor_files
from nq.model.config import ModelConfig
from nq.model.families import decode_config, layout_of
from nq.model.tensor_files import INDEX, WEIGHTS
from nq.model.tensors import CheckpointTensors
from nq.preprocess.tokenizers import FILES
from nq.preprocess.tokenizers.base import Tokenizer
from nq.preprocess.tokenizers.load import load_tokenizer, max_length

CONFIG = registry.CONFIG
TF_CONFIG = registry.TF_CONFIG
SETTINGS = registry.SETTINGS
CARD = "README.md"
OTHERS = (CONFIG, TF_CONFIG, SETTINGS, CARD, *FILES)
"""Files that a model folder may have besides its weights."""
SHARD = re.compile(r"[^/\\\x00-\x1f]{1,200}\.safetensors")
SQUAD = "squad"
"""The rule and the features of readers of SQuAD."""
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")


@dataclass(frozen=True)
class ModelSettings:
    """The settings that a model folder holds besides its weights.

    Args:
        removed_parts: which heads, units and layers were removed, one object for each time.
        weights: the SHA-256 of the weight files by their names; empty where nq did not write them.
    """

    windows: WindowConfig = field(default_factory=WindowConfig)
    decision: DecisionConfig = field(default_factory=DecisionConfig)
    removed_parts: tuple[Mapping[str, Any], ...] = ()
    weights: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelFolder:
    """The files of a model, each of which is read once, when it is first needed.

    Sent to another process it reads the files there, which must have the same weights.

    Args:
        path: the folder.
        sent: digest of the weights in the process that sent it.
    """

    path: Path
    sent: str | None = field(default=None, compare=False, repr=False)

    @classmethod
    def find(cls, model: str | Path) -> Self:
        """Finds one model (``nq.model.registry.model_folder``), and does not check its files."""
        path = registry.model_folder(model)
        if registry.is_pair(path):
            pair = read_pair(path)
            raise ValueError(f"{pair.name} is two models: give one, such as {pair.reader.path}")
        return cls(path)

    @classmethod
    def open(cls, model: str | Path) -> Self:
        """Finds one model, and checks its files."""
        folder = cls.find(model)
        folder.check()
        return folder

    def __reduce__(self) -> tuple[Any, ...]:
        return ModelFolder, (self.path, self.sent or self.digest)

    @cached_property
    def name(self) -> str:
        """The name of the model for records: of the hub's with the commit, else its folder's."""
        return registry.model_name(self.path)

    @cached_property
    def config(self) -> ModelConfig:
        """The encoder's shape, of ``config.json`` or of Google's ``bert_config.json``."""
        paths = (self.path / name for name in (CONFIG, TF_CONFIG))
        path = next((path for path in paths if path.is_file()), None)
        if path is None:
            if tensor_files.find_tensorflow(self.path):
                raise FileNotFoundError(
                    f"no {TF_CONFIG} in {self.path} beside the TensorFlow checkpoint"
                )
            raise FileNotFoundError(
                f"no model in {self.path}: expected {CONFIG}, model.safetensors and vocab.txt or "
                f"spiece.model (or {TF_CONFIG}, a TensorFlow checkpoint and its vocabulary)"
            )
        values = read_json_object(path)
        if path.name == TF_CONFIG and values.get("hidden_act") == "gelu":
            values["hidden_act"] = "gelu_new"  # Google's code approximates it by tanh
        try:
            return decode_config(values)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    @property
    def joint_config(self) -> ModelConfig:
        """The encoder's shape of a model that gives answers."""
        if self.config.is_dual_encoder:
            raise ValueError(
                f"{self.path} is a dual encoder, which only ranks: choose another model"
            )
        return self.config

    @cached_property
    def settings(self) -> ModelSettings:
        """The settings in ``nq.json``.

        Without such a file they are the defaults, and those of a reader of SQuAD for one that was
        not trained with nq.
        """
        path = self.path / SETTINGS
        if path.is_file():
            return read_settings(path)
        is_reader = False
        with contextlib.suppress(OSError, ValueError):  # the check of the model reports it
            is_reader = self.weight_files[0].suffix != ".index" and self.is_squad_reader
        if not is_reader:
            return ModelSettings()
        longest = WindowConfig(compat=SQUAD).max_seq_length
        length = min(longest, self.config.positions, max_length(self.path))
        query = min(WindowConfig.max_query_length, length // 4)
        windows = WindowConfig(length, max_query_length=query, compat=SQUAD)
        return ModelSettings(windows, DecisionConfig(rule=windows.switches.rule))

    @cached_property
    def weight_files(self) -> list[Path]:
        """The files that hold the weights, in a fixed order."""
        path = self.path
        if (path / WEIGHTS).is_file():
            return [path / WEIGHTS]
        if (path / INDEX).is_file():
            return _shards(path / INDEX)
        prefix = tensor_files.find_tensorflow(path)
        if prefix:
            data = sorted(path.glob(f"{prefix.name}.data-*"))
            if not data:
                missing = f"{prefix}.index is there but no {prefix.name}.data-…"
                raise FileNotFoundError(f"{missing}: copy it")
            return [Path(f"{prefix}.index"), *data]
        advice = registry.CONVERT_PICKLE.format("FOLDER")
        for name in PICKLES:
            if (path / name).is_file():
                raise ValueError(f"{path / name} is a pickle, which is never loaded: {advice}")
        raise FileNotFoundError(f"no {WEIGHTS} in {path}, nor a TensorFlow checkpoint")

    @property
    def files(self) -> list[Path]:
        """The files of the model, without others in its folder."""
        others = (self.path / name for name in (*OTHERS, INDEX))
        return [*self.weight_files, *(path for path in others if path.is_file())]

    @property
    def file_digests(self) -> dict[str, str]:
        """The SHA-256 of each weight file by the file's name."""
        return {path.name: storage.sha256(path) for path in self.weight_files}

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the weight files; ``ValueError`` if ``nq.json`` has others."""
        digests = self.file_digests
        expected = self.settings.weights
        for name, digest in digests.items():
            if expected and expected.get(name) != digest:
                raise ValueError(
                    f"{self.path / name} is damaged or was changed: its SHA-256 is not that in "
                    f"{SETTINGS}; copy or download it again, or remove weights there if you "
                    "changed it"
                )
        digest = "+".join(digests.values())
        if self.sent not in (None, digest):
            raise Error(f"{self.path} has other weights than where the command was started")
        return digest

    @cached_property
    def _stored(self) -> CheckpointTensors:
        files = self.weight_files
        if files[0].suffix == ".index":
            for file in files:
                check_whole(file)
            return tensor_files.read_tensorflow(files[0].with_suffix(""))
        has_config = (self.path / CONFIG).is_file()
        return tensor_files.read_safetensors(
            files, layout_of(self.config) if has_config else names.BERT
        )

    def tensors(self) -> CheckpointTensors:
        """Returns the tensors of the weights, by canonical name, when their digest is checked."""
        stored = self._stored
        _ = self.digest
        return stored

    def has_head(self, name: str) -> bool:
        """Returns whether the model has the head ``name``; a dual encoder needs none."""
        if self.config.is_dual_encoder:
            return True
        return self._stored.fill(self._stored.table(self.config)[f"{name}/kernel"])

    @cached_property
    def is_squad_reader(self) -> bool:
        """Whether the model has a head for spans and none for types of answers."""
        return self.has_head("span_output") and not self.has_head("type_output")

    @cached_property
    def _tokenizers(self) -> dict[str, Tokenizer]:
        return {}

    def tokenizer(self, compat: str = WindowConfig.compat) -> Tokenizer:
        """Returns the tokenizer; ``compat`` may replace WordPiece by another."""
        if compat not in self._tokenizers:
            self._tokenizers[compat] = load_tokenizer(self.path, compat)
        return self._tokenizers[compat]

    def check(self) -> None:
        """Checks the config, the digests of the weights and, of safetensors, the headers.

        It takes 1 ms for a MB, no TensorFlow. Nothing is made yet whose size the config determines.
        """
        config = self.config
        if self.weight_files[0].suffix == ".safetensors":
            self._stored.table(config)  # before all is read
        _ = self.digest

    def copy(self, target: Path, settings: ModelSettings | None = None) -> Path:
        """Copies the model alone to ``target``, which it returns; ``settings`` replace its own."""
        paths = self.files
        target.mkdir(parents=True)
        for path in paths:
            shutil.copyfile(path, target / path.name)
        if settings is not None:
            save_settings(target, replace(settings, weights=self.settings.weights))
        return target

    def key(self, compat: str) -> dict[str, str]:
        """Returns what tells this model from others, as JSON values, wherever its folder is."""
        return {**self._content, "tokenizer": self.tokenizer(compat).digest}

    @property
    def _content(self) -> dict[str, str]:
        config, settings = (asdict(one) for one in (self.config, self.settings))
        return {"weights": self.digest, "settings": storage.digest_json([config, settings])}

    def check_same(self) -> None:
        """Raises ``Error`` if shape, settings, weights or tokenizers are no longer those read.

        A tokenizer is compared if it was loaded, as it was when its digest was first read.
        """
        now = ModelFolder(self.path)
        read = [one.digest for one in self._tokenizers.values()]
        tokenizers = [now.tokenizer(compat).digest for compat in self._tokenizers]
        if [self._content, *read] != [now._content, *tokenizers]:
            raise ChangedError(f"the model in {self.path} changed while it was used: start again")


@dataclass(frozen=True)
class PairFolder:
    """Two models in one folder: a ranker, and a reader of the blocks that it ranks best.

    The file ``nq.json`` of the folder names the folders of both in it, ``ranker`` and ``reader``,
    and has the decision of both, ``decision``.
    """

    path: Path
    ranker: ModelFolder
    reader: ModelFolder
    decision: CascadeDecision

    @property
    def name(self) -> str:
        """The name for records."""
        return registry.model_name(self.path)

    def check_same(self) -> None:
        """Raises ``Error`` if ``nq.json`` is no longer what was read."""
        if read_pair(self.path) != self:
            raise ChangedError(f"{self.path / SETTINGS} changed while it was used: start again")


def open_folder(model: str | Path | None = None) -> ModelFolder | PairFolder:
    """Finds one model or two (``nq.model.registry.model_folder``), and checks their files."""
    path = registry.model_folder(model)
    folder = read_pair(path) if registry.is_pair(path) else ModelFolder(path)
    models = (folder.ranker, folder.reader) if isinstance(folder, PairFolder) else (folder,)
    for one in models:
        registry.model_folder(one.path)
        one.check()
    return folder


def read_pair(path: Path) -> PairFolder:
    """Returns a pair folder whose models are not checked yet."""
    settings = path / SETTINGS
    values = read_json_object(settings)
    try:
        folders = [_beside(settings, name, values.get(name)) for name in ("ranker", "reader")]
        decision = CascadeDecision.from_dict(values.get("decision", {}))
    except ValueError as error:
        raise ValueError(f"{settings}: {error}") from error
    ranker, reader = map(ModelFolder, folders)
    return PairFolder(path, ranker, reader, decision)


def _beside(settings: Path, name: str, value: object) -> Path:
    """Returns the folder that ``nq.json`` of a pair names."""
    is_name = isinstance(value, str) and Path(value).name == value not in ("", "..")
    check_argument(is_name, name, value, "the name of a folder beside it")
    folder = settings.parent / str(value)
    if not folder.is_dir():
        raise FileNotFoundError(f"{settings} names the {name} {value}, which is missing: {folder}")
    return folder


def save_pair(pair: PairFolder, decision: CascadeDecision) -> None:
    """Writes ``nq.json`` of a pair folder."""
    names = {"ranker": pair.ranker.path.name, "reader": pair.reader.path.name}
    dump_json(pair.path / SETTINGS, {**names, "decision": asdict(decision)})


def read_settings(path: Path) -> ModelSettings:
    """Returns the settings in the file ``nq.json`` of a model folder."""
    values = read_json_object(path)
    parts = values.get("removed_parts", [])
    weights = values.get("weights", {})
    try:
        check_argument(isinstance(weights, dict), "weights", weights, "an object")
        are_objects = isinstance(parts, list) and all(isinstance(one, dict) for one in parts)
        check_argument(are_objects, "removed_parts", parts, "a list of objects")
        return ModelSettings(
            WindowConfig.from_dict(values.get("windows", {})),
            DecisionConfig.from_dict(values.get("decision", {})),
            tuple(parts),
            weights,
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def save_settings(folder: str | Path, settings: ModelSettings) -> None:
    """Writes settings into a model folder's ``nq.json``."""
    values = {name: value for name, value in asdict(settings).items() if value}
    dump_json(Path(folder) / SETTINGS, values)


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
