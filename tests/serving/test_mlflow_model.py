"""The model that MLflow loads and serves: saved, logged with a run, loaded, asked over HTTP."""

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import nq
from nq.commands.main import console
from nq.formats.documents import page_of
from nq.mlflow_store import ENVIRONMENT, import_mlflow
from nq.worker import Worker, run_module
from tests.conftest import Commands
from tests.support.child_processes import PATIENCE_S, free_port, wait_until
from tests.support.nq_records import simplified, write_lines

pytestmark = pytest.mark.slow  # importing MLflow takes seconds

HTML = "<h1>Lake</h1><p>The lake is <b>deep</b> and old.</p><ul><li>it is the moon</li></ul>"
ROWS: list[dict[str, Any]] = [
    {"question": "is the lake deep", "page": "The lake is old.\n\nIt is deep.", "top": 0},
    {"question": "what is old", "page": HTML},
]


@pytest.fixture(scope="module")
def saved(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mlflow") / "saved"
    assert console(["convert", str(tiny_model), str(folder), "--to", "mlflow"]) == 0
    return folder


def load(uri: str | Path) -> Any:
    import_mlflow()
    import mlflow.pyfunc

    return mlflow.pyfunc.load_model(str(uri))


@pytest.fixture(scope="module")
def loaded(saved: Path) -> Any:
    return load(saved)


def expected(model: Path) -> list[dict[str, Any]]:
    """Returns the answers of the Python API, without errors."""
    with nq.load(model) as reader:
        answers = [
            reader.ask(row["question"], page_of(row["page"], "it"), row.get("top", 3))
            for row in ROWS
        ]
    return [{**answer.to_dict(), "error": None} for answer in answers]


def test_it_answers_as_the_python_api_does(saved: Path, loaded: Any, tiny_model: Path) -> None:
    import pandas as pd

    answers = expected(tiny_model)
    assert [len(answer["runners_up"]) for answer in answers] == [0, 1]
    assert loaded.predict(ROWS) == loaded.predict(pd.DataFrame(ROWS)) == answers
    assert loaded.predict([]) == loaded.predict(pd.DataFrame(ROWS[:0])) == []
    (example,) = json.loads((saved / "input_example.json").read_text("utf-8"))
    assert loaded.predict([example])[0].keys() == answers[0].keys()
    requirements = (saved / "requirements.txt").read_text("utf-8").splitlines()
    assert f"nq-pipeline[mlflow,openvino]=={nq.__version__}" in requirements


BAD_ROWS: list[tuple[dict[str, Any], str]] = [
    ({"question": "who", "page": " \n"}, "page"),
    ({"question": "who", "page": None}, "page is "),
    ({"question": None, "page": "the lake"}, "question is "),
    ({"question": "who", "page": "the lake", "top": "many"}, "top is 'many'"),
    ({"question": "who", "page": "the lake", "top": float("inf")}, "top is inf"),
]


def test_a_bad_row_has_an_error_and_the_others_their_answers(loaded: Any, tiny_model: Path) -> None:
    good = expected(tiny_model)
    answers = loaded.predict([ROWS[0], *(row for row, _ in BAD_ROWS), ROWS[1]])
    assert [answers[0], answers[-1]] == good
    for (row, error), answer in zip(BAD_ROWS, answers[1:-1], strict=True):
        assert error in answer["error"] and "\n" not in answer["error"]
        assert answer["question"] == (row["question"] or "")
        assert answer.keys() == good[0].keys()
        empty = ("answer", "document", "short_probability", "long_probability", "long_answer")
        assert {answer[name] for name in empty} == {None}
        assert answer["short_answers"] == answer["runners_up"] == answer["skipped_documents"] == []


@pytest.fixture(scope="module")
def served(saved: Path) -> Iterator[str]:
    """The address of a real server of the model."""
    port = free_port()
    # MLflow starts uvicorn by its name
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    server = Worker(run_module, name="serves a model", variables={**ENVIRONMENT, "PATH": path})
    command = ["mlflow", "models", "serve", "--model-uri", str(saved), "--env-manager", "local"]
    server.send([*command, "--port", str(port)])
    address = f"http://127.0.0.1:{port}"

    def is_alive() -> bool:
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"{address}/ping", trust_env=False).status_code == 200
        return False

    try:
        wait_until(is_alive, server.process)
        yield address
    finally:
        server.end()


def test_mlflow_serves_it(served: str, tiny_model: Path) -> None:
    with httpx.Client(base_url=served, timeout=PATIENCE_S, trust_env=False) as client:
        empty = {"question": "who", "page": ""}
        answers = client.post("/invocations", json={"inputs": [*ROWS, empty]}).json()
        last = answers["predictions"].pop()
        assert client.post("/invocations", json={"inputs": []}).json() == {"predictions": []}
        refused = client.post("/invocations", json={"inputs": [{"question": "who"}]})
    assert answers == {"predictions": expected(tiny_model)}
    assert last["error"] and last["answer"] is None
    assert refused.status_code == 400
    assert "no column page" in refused.json()["message"].splitlines()[-1]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "data.jsonl", [simplified(n, words=40) for n in (1, 2)])


@pytest.fixture
def store(saved: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A database for all runs, because MLflow takes seconds to create one."""
    import mlflow

    uri = f"sqlite:///{saved.parent / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    mlflow.set_tracking_uri(uri)
    yield
    mlflow.set_tracking_uri(None)


@pytest.mark.usefixtures("store")
def test_a_run_has_the_model_with_its_settings(
    data: Path, tiny_model: Path, tmp_path: Path, commands: Commands
) -> None:
    import mlflow

    paths = ["--data", data, "--model", tiny_model, "--output", tmp_path / "run"]
    options = ["--profile", "openvino", "--set", "doc_stride=5", "--log-model"]
    result = commands.json("answer", *paths, *options)
    assert f"mlflow models serve -m {result['model_uri']} --env-manager local" in commands.err
    model = load(result["model_uri"])
    logged = mlflow.get_logged_model(model.metadata.model_id)
    assert logged.name == f"{tiny_model.name} · openvino"
    assert {"micro_f1", "windows_per_s"} <= {metric.key for metric in logged.metrics}
    reader = model.unwrap_python_model().reader
    assert (str(reader.profile), reader.windows.doc_stride) == ("openvino", 5)
    with nq.load(tiny_model, profile="openvino", windows=reader.windows) as same:
        page = page_of(ROWS[0]["page"], "it")
        answer = same.ask(ROWS[0]["question"], page, 0)
        assert model.predict(ROWS[:1]) == [{**answer.to_dict(), "error": None}]


@pytest.mark.usefixtures("store")
def test_a_run_of_two_models_has_both(
    data: Path, tiny_pair: Path, tmp_path: Path, commands: Commands
) -> None:
    import mlflow

    page = page_of(ROWS[1]["page"], "it")
    with nq.load(tiny_pair, profile="openvino", read_blocks=1) as reader:
        answer = reader.ask(ROWS[1]["question"], page)
    options = ["--data", data, "--profile", "openvino", "--read-blocks", "1", "--log-model"]
    paths = ["--model", tiny_pair, "--output", tmp_path / "run"]
    result = commands.json("answer", *paths, *options)
    model = load(result["model_uri"])
    (loaded,) = model.predict(ROWS[1:])
    assert loaded == {**answer.to_dict(), "error": None}
    opened = nq.Model.open(tiny_pair)
    logged = mlflow.get_logged_model(model.metadata.model_id)
    assert logged.tags["weights"] == "+".join(part.digest for part in opened.parts)
    assert mlflow.get_run(result["run_id"]).data.params["decision.read_blocks"] == "1"


@pytest.mark.usefixtures("store")
def test_a_registered_model_is_a_new_version_under_the_alias_of_its_profile(
    data: Path, tiny_model: Path, tmp_path: Path, commands: Commands
) -> None:
    from mlflow import MlflowClient

    paths = ["--data", data, "--model", tiny_model, "--profile", "buckets+openvino"]
    for version in ("1", "2"):
        output = tmp_path / version
        result = commands.json("answer", *paths, "--output", output, "--register", "lake model")
        assert result["model_uri"] == f"models:/lake model/{version}"
        by_alias = MlflowClient().get_model_version_by_alias("lake model", "buckets-openvino")
        assert (str(by_alias.version), by_alias.run_id) == (version, result["run_id"])
    model = load("models:/lake model@buckets-openvino")
    assert str(model.unwrap_python_model().reader.profile) == "buckets+openvino"
    error = commands.error("answer", *paths, "--register", "a", "--no-track", code=2)
    assert "--log-model and --register need a recorded run" in error


@pytest.mark.usefixtures("store")
def test_a_training_has_its_model(
    data: Path, tiny_model: Path, tmp_path: Path, commands: Commands
) -> None:
    paths = ["--data", data, "--init", tiny_model, "--output", tmp_path / "new"]
    sizes = "--max-seq-length 32 --doc-stride 8 --max-query-length 8 --epochs 1 --batch-size 2"
    uri = commands.json("train", *paths, *sizes.split(), "--log-model")["model_uri"]
    assert load(uri).predict(ROWS) == expected(tmp_path / "new")
