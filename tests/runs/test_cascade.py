"""Tests runs with a second model: its scores, resuming, tuning and pairs."""

import json
import shutil
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

import nq
from nq.bundle import bundled_model, bundled_sample
from nq.commands.main import console
from nq.config import (
    BLOCK_SCOPE,
    CascadeWeights,
    RankingWeights,
    WindowConfig,
)
from nq.evaluation.answer_files import PREDICTIONS
from nq.formats.outputs import encode_prediction
from nq.model.folder import ModelFolder, save_settings
from nq.model.model import Model
from nq.records import SCORE_COLUMNS, READER_WINDOW, Columns
from nq.runs.folder import JOB, KEPT_SCORES
from nq.runs.job import Job
from nq.runs.result import Result
from nq.runs.run import run
from nq.runs.score_store import ScoreStore
from tests.conftest import Commands
from tests.runs.test_resume import run_killed, until_killed
from tests.support.jobs import flat_job, request_of

QUESTIONS, ALL = 6, 1000


def make_job(model: Path, second: Path | None, output: Path, **settings: Any) -> Job:
    job = {"profile": "baseline", "batch_size": 4, "limit": QUESTIONS, "keep_scores": True}
    files = [bundled_sample()]
    return flat_job(files, model, second_model=second, output=output, **{**job, **settings})


def scores_of(result: Result) -> list[Columns]:
    store = ScoreStore(result.folder / KEPT_SCORES)
    return [store.columns(key) for key in store]


def predictions(folder: Path) -> bytes:
    return (folder / PREDICTIONS).read_bytes()


@pytest.mark.slow
def test_the_second_model_has_the_scores_that_it_has_alone(
    tiny_model: Path, tiny_mpnet: Path, tmp_path: Path
) -> None:
    """The models have other families, vocabularies and window settings."""
    first, alone = (
        run(make_job(model, None, tmp_path / model.name)) for model in (tiny_model, tiny_mpnet)
    )
    every = run(make_job(tiny_model, tiny_mpnet, tmp_path / "every", read_blocks=ALL))
    few = run(make_job(tiny_model, tiny_mpnet, tmp_path / "few", read_blocks=2))
    assert every.totals.reader_windows == alone.totals.windows != every.totals.windows
    assert every.measured.time["reader_s"] > 0 == alone.measured.time["reader_s"]
    assert few.totals.windows == few.totals.counters.computed_windows == first.totals.windows
    assert few.examples < few.totals.reader_windows < alone.totals.windows / 2
    for both in (every, few):
        for columns, of_first, of_second in zip(*map(scores_of, (both, first, alone)), strict=True):
            number = columns[READER_WINDOW]
            if both is every:
                assert number[number >= 0].tolist() == of_second["window_ids"][:, 0].tolist()
            for name in SCORE_COLUMNS:
                np.testing.assert_array_equal(columns[name][number < 0], of_first[name], name)
                read = of_second[name][number[number >= 0]]
                np.testing.assert_allclose(columns[name][number >= 0], read, atol=1e-5)


@pytest.mark.slow
def test_a_run_is_described_compared_and_repeated_in_memory(
    tiny_model: Path, tiny_mpnet: Path, tmp_path: Path
) -> None:
    profile = "mixed+prune+rescore"
    job = make_job(
        *(tiny_model, tiny_mpnet, tmp_path / "run"),
        read_blocks=2,
        profile=profile,
        keep_scores=True,
    )
    other = replace(job, profile="baseline", output=tmp_path / "baseline")
    result = run(replace(job, against=run(other).folder))
    assert result.parity is not None and result.parity.answers == QUESTIONS
    assert result.parity.max_drift is not None
    description = json.loads((result.folder / JOB).read_text("utf-8"))["job"]
    assert description["second_model"] == str(tiny_mpnet)
    assert description["decision"]["read_blocks"] == 2
    assert description["reader_windows"]["max_seq_length"] == 24
    assert Job.from_dict(description).to_dict() == description
    written = orjson.loads(predictions(result.folder))["predictions"]
    assert result.examples == len(written) == QUESTIONS
    examples = islice(nq.read_examples(bundled_sample()), QUESTIONS)
    with nq.load(tiny_model, profile=profile, second_model=tiny_mpnet, read_blocks=2) as reader:
        assert reader.decision == job.model.decision
        for prediction, expected in zip(reader.predict(examples), written, strict=True):
            encoded = encode_prediction(prediction)
            for score in ("long_answer_score", "short_answers_score"):
                assert encoded.pop(score) == pytest.approx(expected.pop(score), abs=1e-4)
            assert encoded == expected


def run_until_killed(model: Path, second: Path, output: Path) -> None:
    """Answers until SIGKILL; runs in a process of its own."""
    job = make_job(model, second, output, batch_size=1, read_blocks=2)
    run(job, progress=until_killed())


@pytest.mark.slow
def test_a_run_that_was_killed_continues_to_the_same_bytes(
    tiny_model: Path, tiny_mpnet: Path, tmp_path: Path
) -> None:
    settings = {"batch_size": 1, "read_blocks": 2}
    undisturbed = run(make_job(tiny_model, tiny_mpnet, tmp_path / "undisturbed", **settings))
    killed = tmp_path / "killed"
    run_killed("tests.runs.test_cascade", "run_until_killed", tiny_model, tiny_mpnet, killed)
    assert not (tmp_path / "killed" / PREDICTIONS).exists()
    resumed = run(make_job(tiny_model, tiny_mpnet, tmp_path / "killed", **settings))
    assert 0 < resumed.totals.resumed_windows < resumed.totals.windows == undisturbed.totals.windows
    assert resumed.totals.reader_windows == undisturbed.totals.reader_windows
    assert predictions(resumed.folder) == predictions(undisturbed.folder)
    for path in (undisturbed.folder / KEPT_SCORES).iterdir():
        assert (resumed.folder / KEPT_SCORES / path.name).read_bytes() == path.read_bytes()


def test_everything_of_the_second_model_identifies_a_run(
    tiny_model: Path, tiny_mpnet: Path, tmp_path: Path
) -> None:
    def scores(job: Job, **settings: Any) -> str:
        other = replace(job, model=replace(job.model, **settings))
        return str(other.scores(request_of(other)))

    job = make_job(tiny_model, tiny_mpnet, tmp_path)
    decision, second = job.model.cascade, job.model.second
    assert decision is not None and second is not None
    other = Path(shutil.copytree(tiny_mpnet, tmp_path / "other"))
    vocab = (other / "vocab.txt").read_text("utf-8")
    (other / "vocab.txt").write_text(vocab.replace("lake", "pond"), "utf-8")
    first = replace(decision.first, weights=RankingWeights(evidence=0.5))
    short = replace(second, windows=WindowConfig(max_seq_length=20, max_query_length=8))
    different = [
        scores(job),
        scores(make_job(tiny_model, None, tmp_path)),
        scores(make_job(tiny_model, other, tmp_path)),
        scores(make_job(tiny_model, tiny_mpnet, tmp_path, read_blocks=5)),
        scores(job, second=short),
        scores(job, decision=replace(decision, first=first)),
    ]
    assert len(set(different)) == len(different)
    tuned = replace(decision, weights=replace(decision.weights, block_score=0.5))
    assert scores(job, decision=tuned) == scores(job)


@pytest.mark.slow
def test_a_tuned_decision_is_found_when_both_models_are_given(
    tiny_model: Path, tiny_mpnet: Path, tmp_path: Path, commands: Commands
) -> None:
    second = Path(shutil.copytree(tiny_mpnet, tmp_path / "second"))
    before = ModelFolder(second).settings
    data = ["--data", bundled_sample(), "--model", tiny_model]
    models = ["--second-model", second, "--read-blocks", "3", "--profile", "baseline"]
    figures = commands.json("tune", *data, *models)
    assert figures["model"] == str(second) and figures["odd_examples"] > 0
    after = ModelFolder(second).settings
    tuned = after.cascades[ModelFolder(tiny_model).digest]
    assert (after.windows, after.decision) == (before.windows, before.decision)
    assert tuned.read_blocks == 3 and tuned.first == ModelFolder(tiny_model).settings.decision
    assert tuned.weights.block_score != 0
    assert tuned.long_threshold == figures["long_threshold"]
    assert Model.open(tiny_model, second_model=second).decision == tuned
    fewer = Model.open(tiny_model, second_model=second, read_blocks=2)
    assert fewer.decision == replace(tuned, read_blocks=2)


def naming(source: Path, folder: Path, **other: str) -> Path:
    """Returns a copy of a model that names the other model of a pair."""
    copy = Path(shutil.copytree(source, folder))
    settings: dict[str, Any] = dict(other)
    save_settings(copy, replace(ModelFolder(copy).settings, **settings))
    return copy


def test_a_model_stands_for_the_pair_that_its_settings_name(
    tiny_model: Path, tiny_mpnet: Path, tmp_path: Path
) -> None:
    ranker = naming(tiny_model, tmp_path / "ranker", second_model=str(tiny_mpnet))
    for found, model, other in (
        (Model.open(str(ranker)), ranker, tiny_mpnet),
        (Model.open(ranker, second_model="small"), ranker, bundled_model()),
    ):
        assert [one.folder for one in found.models] == [model, other]
        assert found == Model.open(model, second_model=other)
    assert console(["convert", str(ranker), str(tmp_path / "converted")]) == 0
    assert ModelFolder(tmp_path / "converted").settings == ModelFolder(ranker).settings


@pytest.mark.slow
def test_a_second_model_that_only_ranks_adds_block_scores(
    tiny_model: Path, tiny_mpnet: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dual_encoder = tmp_path / "dual"
    assert console(["convert", str(tiny_mpnet), str(dual_encoder), "--dual-encoder"]) == 0
    windows = replace(ModelFolder(tiny_mpnet).settings.windows, window_scope=BLOCK_SCOPE)
    save_settings(dual_encoder, replace(ModelFolder(dual_encoder).settings, windows=windows))
    own = ModelFolder(tiny_model).settings.decision
    run(make_job(tiny_model, None, tmp_path / "alone"))
    job = make_job(tiny_model, dual_encoder, tmp_path / "all", read_blocks=ALL)
    decision = job.model.cascade
    assert decision is not None and decision.first == own
    assert decision.weights == CascadeWeights(**own.weights.to_dict())
    all_blocks = run(job)
    assert all_blocks.totals.reader_windows > QUESTIONS
    assert predictions(tmp_path / "all") == predictions(tmp_path / "alone")
    ranking = replace(decision, weights=replace(decision.weights, block_score=100.0))
    few = make_job(tiny_model, dual_encoder, tmp_path / "few", read_blocks=2, decision=ranking)
    assert run(few).totals.reader_windows < all_blocks.totals.reader_windows
    assert predictions(tmp_path / "few") != predictions(tmp_path / "alone")
    advice = Model.open(dual_encoder).advice
    assert str(dual_encoder) in advice and "--second-model" in advice
