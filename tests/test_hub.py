"""Models and data of the hub, fetched by its real client from a server of the tests."""

import json
import logging
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

import nq
from experiments.peers.pipeline import LIVE, write_model
from nq.errors import Error
from nq.formats.input_files import find_files, shown
from nq.model.registry import model_folder, model_name
from tests.conftest import Commands
from tests.formats.hugging_face_rows import row
from tests.formats.hugging_face_rows import write as write_rows
from tests.formats.test_parquet import SQUAD, squad_rows
from tests.formats.test_parquet import write_rows as write_questions
from tests.support import nq_records
from tests.support.child_processes import ROOT, python, started
from tests.support.hub_server import Hub, serve

MODEL, DATA = "Org/reader.v2", "datasets/org/questions"
FILES = {"config.json", "model.safetensors", "tokenizer_config.json", "vocab.txt"}
FIND = "import sys; from nq.model.registry import model_folder; print(model_folder(sys.argv[1]))"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a model, with others that are not fetched."""
    folder = write_model(tmp_path_factory.mktemp("repository") / "model")
    for name in ("pytorch_model.bin", "README.md", "modeling.py", "onnx/model.onnx"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("not fetched", encoding="utf-8")
    return folder


@pytest.fixture
def server(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with a model and data, which this process uses with an empty cache."""
    shutil.copytree(repository, tmp_path / "model")
    data = tmp_path / "data"
    (data / "default" / "old").mkdir(parents=True)
    rows = [row(nq_records.v1(number)) for number in range(4)]
    write_rows(data / "default" / "validation-00000-of-00002.parquet", rows[:2])
    write_rows(data / "default" / "validation-00001-of-00002.parquet", rows[2:])
    write_rows(data / "default" / "old" / "validation-2.parquet", rows)
    write_questions(data / "squad.parquet", squad_rows(), SQUAD)
    monkeypatch.chdir(tmp_path)
    with serve({MODEL: tmp_path / "model", DATA: data}) as running:
        use(running, tmp_path / "cache", monkeypatch)
        yield running


def use(server: Hub, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets what the client has read from the environment when it was imported."""
    monkeypatch.setattr(constants, "ENDPOINT", server.address)
    template = server.address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)


def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


def error_of(model: str) -> str:
    """Returns the one line of the error for a model."""
    with pytest.raises(Error) as raised:
        model_folder(model)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def names_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


# --- Models -------------------------------------------------------------------------------


def test_a_model_is_fetched_once_with_the_files_that_are_read(
    server: Hub, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "nq")
    folder, commit = model_folder(MODEL), server.commit(MODEL)
    assert names_in(folder) == FILES
    assert (folder.name, model_name(folder)) == (commit, f"{MODEL}@{commit}")
    (line,) = (record.message for record in caplog.records)
    assert MODEL in line and commit in line and " KiB " in line
    server.requests.clear()
    assert model_folder(MODEL) == folder
    assert server.requests == [f"GET /api/models/{MODEL}"]
    server.requests.clear()
    assert model_folder(f"{MODEL}@{commit}") == folder
    assert server.requests == []


def test_a_reader_of_the_hub_answers_and_names_itself(server: Hub) -> None:
    name = f"{MODEL}@{server.commit(MODEL)}"
    with nq.pipeline("question-answering", model=f"{MODEL}@main", device="cpu") as reader:
        answer = reader(LIVE)
        assert LIVE["context"][answer["start"] : answer["end"]] == answer["answer"]
        assert repr(reader) == f"Reader(model={name!r}, profile='openvino', device='cpu')"


def test_a_folder_comes_before_a_model_of_its_name(server: Hub) -> None:
    Path("Org").mkdir()
    Path("model").rename(MODEL)
    assert model_folder(MODEL) == Path(MODEL)
    assert server.requests == []


def test_a_revision_that_moved(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    old = model_folder(MODEL)
    config = Path("model/config.json")
    config.write_text(config.read_text().replace("{", '{"auto_map": {}, ', 1))
    new = model_folder(f"{MODEL}@main")
    assert new.name == server.commit(MODEL) != old.name
    assert model_folder(f"{MODEL}@{old.name}") == old  # which the hub has no more
    offline(monkeypatch)
    assert model_folder(MODEL) == new


def test_shards_are_fetched_with_their_index(server: Hub) -> None:
    Path("model/model.safetensors").rename("model/model-00001-of-00001.safetensors")
    weights = {"weight_map": {"a": "model-00001-of-00001.safetensors"}}
    Path("model/model.safetensors.index.json").write_text(json.dumps(weights))
    Path("model/other.safetensors").write_bytes(b"")
    assert names_in(model_folder(MODEL)) == {
        *FILES - {"model.safetensors"},
        *("model.safetensors.index.json", "model-00001-of-00001.safetensors"),
    }


# --- Errors -------------------------------------------------------------------------------


def test_names_that_do_not_exist(server: Hub) -> None:
    assert error_of("org/none").startswith("org/none ") and server.address in error_of("org/none")
    assert error_of(f"{MODEL}@v9").startswith(f"{MODEL}@v9 ")


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        ({"gated": {MODEL}}, f"ADDRESS/{MODEL}.* HF_TOKEN"),
        ({"status": 503}, r"ADDRESS.* 503\b"),
        ({"sizes": {"config.json": 100 << 30}}, r"config\.json.* 100\.0 GiB.* 64\.0 MiB"),
    ],
    ids=str,
)
def test_answers_with_which_no_model_is_fetched(
    answer: dict[str, Any], named: str, server: Hub
) -> None:
    vars(server).update(answer)
    assert re.search(named.replace("ADDRESS", server.address), error_of(MODEL))
    assert not any("/resolve/" in request for request in server.requests)


def test_the_cache_is_used_where_the_hub_cannot_be_reached(
    server: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = model_folder(MODEL)
    server.status = 503
    assert model_folder(MODEL) == folder
    offline(monkeypatch)
    assert model_folder(MODEL) == model_folder(f"{MODEL}@{folder.name}") == folder
    (folder / "model.safetensors").unlink()
    for name in ("org/none", f"{MODEL}@v9", f"{MODEL}@{'0' * 40}", MODEL):
        assert re.match(f"{name} .*{constants.HF_HUB_CACHE}.* HF_HUB_OFFLINE", error_of(name))


@pytest.mark.parametrize(
    ("removed", "named"), [("config.json", "config.json"), ("model.safetensors", "safetensors")]
)
def test_a_repository_that_is_no_model(removed: str, named: str, server: Hub) -> None:
    Path("model", removed).rename("model/reader.gguf")
    server.requests.clear()
    assert MODEL in error_of(MODEL) and named in error_of(MODEL)
    assert not any("/resolve/" in request for request in server.requests)


# --- Hostile answers ----------------------------------------------------------------------

OUTSIDE = "../../../outside"


@pytest.mark.parametrize(
    "answer", [{"sha": OUTSIDE}, {"names": [OUTSIDE]}, {"names": ["/outside"]}], ids=str
)
def test_no_answer_becomes_a_path_outside_the_cache(
    answer: dict[str, Any], server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vars(server).update(answer)
    assert "outside" in error_of(MODEL)
    offline(monkeypatch)
    assert MODEL in error_of(MODEL)  # of what is in the cache now
    assert not list(tmp_path.glob("cache/*/snapshots/*/*"))


# --- Interrupted and at the same time -----------------------------------------------------


def environment(server: Hub, home: Path, **others: str) -> dict[str, str]:
    return {"HF_ENDPOINT": server.address, "HF_HOME": str(home), **others}


def test_the_next_run_fetches_only_what_is_missing(server: Hub, tmp_path: Path) -> None:
    folder = model_folder(MODEL)
    (folder / "model.safetensors").resolve().unlink()  # the link is dangling
    server.requests.clear()
    assert names_in(model_folder(MODEL)) == FILES
    assert not any("vocab.txt" in request for request in server.requests)


@pytest.mark.slow
def test_two_processes_fetch_a_model_and_obey_the_variables(server: Hub, tmp_path: Path) -> None:
    server.delay_s, home = 0.1, tmp_path / "home"
    variables = environment(server, home, HF_TOKEN="hf_x")
    server.gated.add(MODEL)
    arguments = "-c", FIND, MODEL
    with (
        started(*arguments, folder=ROOT, **variables) as one,
        started(*arguments, folder=ROOT, **variables) as other,
    ):
        folders = {process.communicate()[0].strip() for process in (one, other)}
    snapshots = home / "hub" / "models--Org--reader.v2" / "snapshots"
    assert folders == {str(snapshots / server.commit(MODEL))}
    server.status = 404
    done = python("-c", FIND, MODEL, folder=ROOT, **environment(server, home, HF_HUB_OFFLINE="1"))
    assert (done.stdout.strip(), done.stderr) == (folders.pop(), "")


# --- Data ---------------------------------------------------------------------------------


def test_a_glob_of_the_hub_becomes_files_of_one_commit(server: Hub) -> None:
    address = "hf://datasets/org/questions/default/validation-*.parquet"
    files, commit = find_files(address), server.commit(DATA)
    first = f"hf://datasets/org/questions@{commit}/default/validation-00000-of-00002.parquet"
    assert [shown(path) for path in files] == [first, first.replace("00000-of", "00001-of")]
    assert not any("/old/" in request for request in server.requests)
    assert [e.example_id for e in nq.read_examples(address)] == [0, 1, 2, 3]
    server.requests.clear()
    assert find_files(f"hf://datasets/org/questions@{commit}/default/") == files
    assert find_files(first) == files[:1]
    assert server.requests == []


@pytest.mark.parametrize(
    ("address", "named"),
    [
        ("hf://datasets/org/questions/x*", r"x\*"),
        ("hf://datasets/org/questions@../squad.parquet", r"'\.\.'"),
        ("hf://org/name/a.parquet", "^hf://org/name/a.parquet "),
        ("hf://", "^hf:// .*hf://datasets/ORG/NAME/PATH"),
    ],
)
def test_addresses_without_files(address: str, named: str, server: Hub) -> None:
    with pytest.raises(Error, match=named):
        find_files(address)


@pytest.mark.slow
def test_commands_take_models_and_data_of_the_hub(server: Hub, commands: Commands) -> None:
    data, name = "hf://datasets/org/questions/squad.parquet", f"{MODEL}@{server.commit(MODEL)}"
    options = "--data", data, "--model", MODEL, "--no-track"
    result = commands.json("answer", *options, "--output", "run", "--formats", "squad")
    assert result["examples"] == 3
    job = json.loads(Path("run/job.json").read_text(encoding="utf-8"))["job"]
    assert model_name(Path(job["models"][0]["folder"])) == name
    assert [shown(path) for path in job["files"]] == [
        f"hf://datasets/org/questions@{server.commit(DATA)}/squad.parquet"
    ]
    gold = "--gold_path", data, "--predictions_path", "run/predictions.json"
    assert "squad_f1" in json.loads(commands.out("eval", *gold))
    commands.out("convert", MODEL, "converted")
    assert Path("converted/README.md").read_text(encoding="utf-8").startswith(f"# {name}\n")
    bad = "hf://datasets/org/none/a.parquet"
    assert "org/none" in commands.error("answer", "--data", bad, "--no-track")
