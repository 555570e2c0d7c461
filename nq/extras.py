"""The optional packages of nq: which extra installs them and whether they are installed."""

import contextlib
import importlib.metadata
import importlib.util
from collections.abc import Iterable
from pathlib import Path

from nq import __version__
from nq.errors import Error

EXTRAS = {
    "cpu": ("tensorflow",),
    "beam": ("apache_beam",),
    "mlflow": ("mlflow",),
    "openvino": ("openvino",),
    "int8": ("nncf",),
    "hub": ("huggingface_hub",),
    "pdf": ("pypdf",),
    "onnx": ("onnx", "onnxruntime", "tf2onnx"),
    "plots": ("matplotlib",),
    "transformers": ("transformers", "sentencepiece"),
    "zstd": ("zstandard",),
    "serve": ("fastapi", "fastapi_offline", "prometheus_client", "uvicorn"),
}
"""Maps each extra of the distribution to the import names of the packages that it installs."""

DISTRIBUTION = "nq-pipeline"
_PROJECTS = {"tensorflow": "TensorFlow", "apache_beam": "Apache Beam", "mlflow": "MLflow"}


def missing(extra: str) -> tuple[str, ...]:
    """Returns the import names of an extra's packages that are not installed.

    No package is imported.
    """
    return tuple(name for name in EXTRAS[extra] if importlib.util.find_spec(name) is None)


def versions(names: Iterable[str]) -> dict[str, str]:
    """Returns the versions of those of some distributions that are installed, by name."""
    found = {}
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def tensorflow_extra() -> str:
    """Returns the extra that installs the TensorFlow that is installed: ``cpu`` or ``gpu``."""
    return "cpu" if versions(["tensorflow-cpu"]) else "gpu"


def has_gpu() -> bool:
    """Returns whether there is a GPU, and a TensorFlow that can use it."""
    has_tensorflow = not missing("cpu")
    return Path("/dev/nvidiactl").exists() and has_tensorflow and tensorflow_extra() == "gpu"


def requirement(*extras: str) -> str:
    """Returns the requirement of this version of nq with extras, as pip reads it."""
    return f"{DISTRIBUTION}[{','.join(extras)}]=={__version__}"


def install(*extras: str) -> str:
    """Returns the advice to install extras.

    >>> install("hub")
    "run pip install 'nq-pipeline[hub]'"
    """
    advice = f"run pip install '{DISTRIBUTION}[{','.join(extras)}]'"
    if "cpu" in extras:
        advice += f" (or '{DISTRIBUTION}[gpu]' for an NVIDIA GPU)"
    return advice


def require(*extras: str) -> None:
    """Checks that the packages of extras are installed.

    Raises:
        Error: A package is not installed; the message names the command that installs it.
    """
    lacking = [extra for extra in extras if missing(extra)]
    names = [_PROJECTS.get(name, name) for extra in lacking for name in missing(extra)]
    if names:
        verb = "is" if len(names) == 1 else "are"
        raise Error(f"{' and '.join(names)} {verb} not installed: {install(*lacking)}")
