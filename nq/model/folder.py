"""The model folder of a call: its path and its settings, checked."""

from __future__ import annotations

from pathlib import Path

from nq.bundle import bundled_model
from nq.config import DecisionConfig, WindowConfig
from nq.errors import check_argument
from nq.model.checkpoint import ModelSettings, load_settings


def folder_and_settings(
    model: str | Path | None, windows: WindowConfig | None, decision: DecisionConfig | None
) -> tuple[Path, ModelSettings]:
    """Returns a model folder and its settings, which the arguments replace.

    Args:
        model: a model folder; by default the bundled model. It need not exist.
        windows: how pages become windows; by default the settings of the folder.
        decision: how scores become answers; by default the settings of the folder.

    Raises:
        ValueError: an argument has the wrong type, or the settings of the folder are damaged.
    """
    for name, value, kind, expected in (
        ("model", model, str | Path, "the path of a model folder"),
        ("windows", windows, WindowConfig, "nq.WindowConfig(…)"),
        ("decision", decision, DecisionConfig, "nq.DecisionConfig(…)"),
    ):
        check_argument(value is None or isinstance(value, kind), name, value, expected)
    folder = bundled_model() if model is None else Path(model)
    if windows is None or decision is None:
        own = load_settings(folder)
        windows, decision = windows or own.windows, decision or own.decision
    return folder, ModelSettings(windows, decision)
