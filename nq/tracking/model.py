"""Saves and logs models in MLflow's format, as ``mlflow.pyfunc.load_model`` loads them."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nq import extras
from nq.tracking import store

CODE = Path(__file__).parents[1] / "serving" / "mlflow_model.py"
"""The file that defines the model; MLflow copies it and runs the copy when it loads the model."""
NAME = "nq"
EXAMPLE = [
    {
        "question": "when was it automated",
        "page": "The lighthouse was first lit in 1874.\n\nIt was automated in 1986.",
        "top": 3,
    }
]
"""Input of the model."""


@dataclass(frozen=True)
class PackagedModel:
    """A model to save in MLflow's format.

    Args:
        folders: model folders: ``model``, and with a second model ``second_model``.
        profile: optimizations to run under; ``None`` for the default ones.
        extras: extras of the distribution that the profile needs.
    """

    folders: Mapping[str, Path]
    profile: str | None = None
    extras: tuple[str, ...] = ()

    @property
    def requirement(self) -> str:
        """What pip has to install for the model."""
        return extras.requirement(extras.tensorflow_extra(), "mlflow", *self.extras)


def save_model(model: PackagedModel, folder: Path, logged: Any = None) -> None:
    """Saves a model: its folders, the code that loads them, signature, example, requirements.

    Args:
        model: the model.
        folder: to make.
        logged: MLflow's entity of a model that belongs to a run.
    """
    store.import_mlflow()
    from mlflow import pyfunc
    from mlflow.models import Model

    about = {}
    if logged is not None:
        about = {
            "artifact_path": logged.artifact_location,
            "run_id": logged.source_run_id,
            "model_uuid": logged.model_id,
            "model_id": logged.model_id,
        }
    pyfunc.save_model(
        folder,
        python_model=str(CODE),
        artifacts={name: str(path) for name, path in model.folders.items()},
        model_config={"profile": model.profile},
        signature=signature(),
        input_example=EXAMPLE,
        pip_requirements=[model.requirement],
        mlflow_model=Model(**about),
    )


def log_model(client: Any, experiment_id: str, run_id: str, model: PackagedModel) -> str:
    """Logs a model with a run; returns its URI.

    ``mlflow.pyfunc.log_model`` would log to the store of the whole process, which is not changed.
    """
    from mlflow.entities import LoggedModelOutput, LoggedModelStatus

    logged = client.create_logged_model(experiment_id, NAME, source_run_id=run_id)
    with tempfile.TemporaryDirectory(prefix="nq-mlflow-") as temporary:
        folder = Path(temporary) / "model"
        save_model(model, folder, logged)
        client.log_model_artifacts(logged.model_id, str(folder))
    client.finalize_logged_model(logged.model_id, LoggedModelStatus.READY)
    client.log_outputs(run_id, [LoggedModelOutput(logged.model_id, step=0)])
    return f"models:/{logged.model_id}"


def signature() -> Any:
    """Returns MLflow's signature of the model: questions and pages in, answers out.

    All inputs are optional to MLflow, so that the model itself reports one that is missing, in one
    line; MLflow would repeat the whole page in its error.
    """
    from mlflow.models import ModelSignature
    from mlflow.types.schema import AnyType, Array, ColSpec, DataType, Object, Property, Schema

    ends = ("start", "end")
    properties = [
        Property("text", DataType.string),
        *(Property(f"{end}_token", DataType.long) for end in ends),
        *(Property(f"{end}_char", DataType.long, False) for end in ends),
    ]
    span = Object(properties)
    short = Object([*properties, *(Property(f"{end}_in_long", DataType.long) for end in ends)])
    probabilities = ("short_probability", "long_probability")
    other = Object(
        [
            Property("answer", DataType.string, False),
            Property("long_answer", span, False),
            *(Property(name, DataType.double, False) for name in probabilities),
        ]
    )
    inputs = [ColSpec(DataType.string, name, False) for name in ("question", "page")]
    # not a number, since pandas turns a column of integers with a missing one into floats
    inputs.append(ColSpec(AnyType(), "top", False))
    outputs = [
        ColSpec(DataType.string, "question"),
        ColSpec(DataType.string, "answer", False),
        ColSpec(DataType.string, "yes_no_answer"),
        ColSpec(Array(short), "short_answers"),
        ColSpec(span, "long_answer", False),
        *(ColSpec(DataType.double, name, False) for name in probabilities),
        ColSpec(Array(other), "runners_up"),
    ]
    return ModelSignature(inputs=Schema(inputs), outputs=Schema(outputs))
