"""Tests of the table of optional packages."""

from __future__ import annotations

import sys

import pytest

from nq.errors import Error
from nq.extras import EXTRAS, missing, require


@pytest.fixture
def uninstalled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hides some packages, whether they are installed or not."""
    for name in ("tensorflow", "apache_beam", "mlflow", "openvino", "nncf", "tf2onnx"):
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.usefixtures("uninstalled")
@pytest.mark.parametrize(
    ("extra", "names"),
    [
        ("cpu", "TensorFlow is"),
        ("beam", "Apache Beam is"),
        ("mlflow", "MLflow is"),
        ("openvino", "openvino and nncf are"),
    ],
)
def test_error_names_the_command_that_installs_the_extra(extra: str, names: str) -> None:
    assert missing(extra) == EXTRAS[extra]
    with pytest.raises(Error) as error:
        require(extra)
    assert str(error.value) == f"{names} not installed: run pip install 'nq-pipeline[{extra}]'"
