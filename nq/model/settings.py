"""The JSON files of a model folder: ``config.json`` (the encoder's shape) and ``nq.json``."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nq.config import DecisionConfig, ModelConfig, WindowConfig
from nq.model import tf_checkpoint
from nq.model.families import decode_config

CONFIG, TF_CONFIG, SETTINGS = "config.json", "bert_config.json", "nq.json"


@dataclass(frozen=True)
class ModelSettings:
    """The settings that a model folder holds besides its weights.

    Args:
        windows: how pages become windows.
        decision: how scores become answers.
    """

    windows: WindowConfig = field(default_factory=WindowConfig)
    decision: DecisionConfig = field(default_factory=DecisionConfig)


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
    values = _read_json(path)
    if path == google and values.get("hidden_act") == "gelu":
        values["hidden_act"] = "gelu_new"  # Google's code approximates it by tanh
    try:
        return decode_config(values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def load_settings(folder: str | Path) -> ModelSettings:
    """Returns the settings in ``nq.json``, the defaults if there is no such file.

    Raises:
        ValueError: the file is damaged.
    """
    path = Path(folder) / SETTINGS
    if not path.is_file():
        return ModelSettings()
    values = _read_json(path)
    try:
        return ModelSettings(
            WindowConfig.from_dict(values.get("windows", {})),
            DecisionConfig.from_dict(values.get("decision", {})),
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def save_settings(folder: str | Path, settings: ModelSettings) -> None:
    """Writes windows and decision into a model folder's ``nq.json``."""
    values = {"windows": settings.windows.to_dict(), "decision": settings.decision.to_dict()}
    write_json(Path(folder) / SETTINGS, values)


def write_json(path: Path, value: Any) -> None:
    """Writes a value as indented JSON."""
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path} holds {type(values).__name__}, expected a JSON object")
    return values
