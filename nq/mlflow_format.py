"""Saves models in MLflow's format."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nq import extras
from nq.mlflow_store import import_mlflow

CODE = Path(__file__).parent / "serving" / "mlflow_model.py"
"""The file that defines the model; MLflow copies it and runs the copy when it loads the model."""
EXAMPLE = [
    {
        "question": "when was it automated",
        "page": "The lighthouse was first lit in 1874.\n\nIt was automated in 1986.",
        "top": 3,
    }
]


def save_model(
    folder: Path,
    model: Path,
    profile: str | None = None,
    needed: Sequence[str] = ("openvino",),
    logged: Any = None,
) -> None:
    """Saves a model as ``mlflow.pyfunc.load_model`` loads it, with its code and requirements.

    The ``model`` is its folder, ``needed`` are the extras of the profile, by default of the one for
    questions in memory, and ``logged`` is MLflow's entity of a model that belongs to a run.
    """
    import_mlflow()
    # MLflow warns of type hints in its own code when it is imported
    warnings.filterwarnings(
        "ignore",
        ".*Any type hint is inferred as AnyType",
        UserWarning,
    )
    from mlflow import pyfunc
    from mlflow.models import Model, ModelSignature
    from mlflow.types.schema import AnyType, ColSpec, DataType, Schema

    # all inputs are optional to MLflow, which would repeat the whole page in its error
    inputs = [ColSpec(DataType.string, name, False) for name in ("question", "page")]
    # not a number, since pandas turns a column of integers with a missing one into floats
    inputs.append(ColSpec(AnyType(), "top", False))
    fields = (
        (DataType.string, ("question", "answer", "document", "yes_no_answer", "error")),
        (DataType.double, ("short_probability", "score", "long_probability")),
        (DataType.long, ("unread_blocks",)),
        (DataType.boolean, ("asks_yes_no",)),
        (AnyType(), ("short_answers", "long_answer", "runners_up", "skipped_documents")),
    )
    outputs = [ColSpec(kind, name, name == "question") for kind, names in fields for name in names]
    about = {"run_id": logged.source_run_id, "model_id": logged.model_id} if logged else {}
    names = [extras.tensorflow_extra() if name == "cpu" else name for name in needed]
    pyfunc.save_model(
        folder,
        python_model=str(CODE),
        artifacts={"model": str(model)},
        model_config={"profile": profile},
        signature=ModelSignature(inputs=Schema(inputs), outputs=Schema(outputs)),
        input_example=EXAMPLE,
        pip_requirements=[extras.requirement("mlflow", *names)],
        mlflow_model=Model(**about),
    )
