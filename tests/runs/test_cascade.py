"""Tests runs with a reader: its scores, resuming, comparing, tuning, and what is refused."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

import nq
from nq.bundle import bundled_sample
from nq.commands import answer, ask, convert, tune
from nq.config import (
    BLOCK,
    CascadeDecision,
    CascadeWeights,
    DecisionConfig,
    RankingWeights,
    WindowConfig,
)
from nq.formats.predictions import encode_prediction
from nq.model.folder import SETTINGS, load_settings, save_settings, weights_digest
from nq.model.spec import find_model, mention_decision
from nq.records import SCORE_COLUMNS, SECOND_WINDOW, Columns
from nq.runs.job import Job
from nq.runs.result import JOB, KEPT_SCORES, PREDICTIONS, Result
from nq.runs.run import run
from nq.runs.score_store import ScoreStore
from nq.runs.scoring import Plan
from tests.runs.test_resume import run_killed

QUESTIONS = 6
ALL = 1000


def make_job(model: Path, second: Path | None, output: Path, **settings: Any) -> Job:
    job = {"profile": "baseline", "batch_size": 4, "limit": QUESTIONS, "keep_scores": True}
    return Job([bundled_sample()], model, second_model=second, output=output, **{**job, **settings})


def with_model(job: Job, **settings: Any) -> Job:
    return replace(job, model=replace(job.model, **settings))


def scores_of(result: Result) -> list[Columns]:
    store = ScoreStore(result.folder / KEPT_SCORES)
    return [store.columns(key) for key in store]


def predictions(folder: Path) -> bytes:
    return (folder / PREDICTIONS).read_bytes()


# --- scores


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["baseline", "grappler+buckets+prune"])
def test_a_reader_of_all_blocks_has_the_scores_that_it_has_alone(
    tiny_model: Path, tiny_mpnet: Path, tmp_path: Path, profile: str
) -> None:
    """The models have other families, vocabularies and window settings."""
    job = make_job(tiny_model, tiny_mpnet, tmp_path / "both", profile=profile, read_blocks=ALL)
    both = run(job)
    profile = profile.replace("+prune", "")
    alone = run(make_job(tiny_mpnet, None, tmp_path / "alone", profile=profile))
    assert both.reader_windows == alone.windows != both.windows
    assert both.time["reader_s"] > 0 == alone.time["reader_s"]
    for columns, expected in zip(scores_of(both), scores_of(alone), strict=True):
        is_reader = columns[SECOND_WINDOW] >= 0
        assert columns[SECOND_WINDOW][is_reader].tolist() == expected["window_ids"][:, 0].tolist()
        for name in SCORE_COLUMNS:
            if "buckets" in profile:  # the windows share batches with others
                np.testing.assert_allclose(columns[name][is_reader], expected[name], atol=1e-5)
            else:
                np.testing.assert_array_equal(columns[name][is_reader], expected[name], name)


@pytest.mark.slow
def test_a_reader_reads_few_windows_and_the_first_model_all_of_its_own(
    tiny_model: Path, tiny_mpnet: Path, tmp_path: Path
) -> None:
    both = run(make_job(tiny_model, tiny_mpnet, tmp_path / "both", read_blocks=2))
    first = run(make_job(tiny_model, None, tmp_path / "first"))
    reader = run(make_job(tiny_mpnet, None, tmp_path / "reader"))
    assert both.windows == both.read_windows == first.windows
    assert both.examples < both.reader_windows < reader.windows / 2
    table = zip(*map(scores_of, (both, first, reader)), strict=True)
    for columns, of_first, of_reader in table:
        number = columns[SECOND_WINDOW]
        for name in SCORE_COLUMNS:
            np.testing.assert_array_equal(columns[name][number < 0], of_first[name], name)
            read = of_reader[name][number[number >= 0]]
            np.testing.assert_allclose(columns[name][number >= 0], read, atol=1e-5)


# --- runs


@pytest.mark.slow
def test_a_run_is_described_and_repeated_in_memory(
    tiny_model: Path, tiny_mpnet: Path, tmp_path: Path
) -> None:
    job = make_job(tiny_model, tiny_mpnet, tmp_path, read_blocks=2, profile="mixed+prune+rescore")
    result = run(job)
    description = json.loads((tmp_path / JOB).read_text("utf-8"))["job"]
    assert description["second_model"] == str(tiny_mpnet)
    assert description["decision"]["read_blocks"] == 2
    assert description["second_windows"]["max_seq_length"] == 24
    again = Job.from_dict(description)
    assert again.to_dict() == description
    assert replace(again, files=job.files, output=job.output, keep_scores=True) == job
    written = orjson.loads(predictions(tmp_path))["predictions"]
    assert result.examples == len(written) == QUESTIONS
    examples = islice(nq.read_examples(bundled_sample()), QUESTIONS)
    profile = "mixed+prune+rescore"
    with nq.load(tiny_model, profile=profile, second_model=tiny_mpnet, read_blocks=2) as reader:
        assert reader.decision == job.model.decision
        for prediction, expected in zip(reader.predict(examples), written, strict=True):
            encoded = encode_prediction(prediction)
            for score in ("long_answer_score", "short_answers_score"):
                assert encoded.pop(score) == pytest.approx(expected.pop(score), abs=1e-4)
            assert encoded == expected


def run_until_killed(model: Path, reader: Path, output: Path) -> None:
    """Answers until SIGKILL, in the second half of the windows; runs in a process of its own."""
    completed = 0

    def kill(windows: int, total: int) -> None:
        nonlocal completed
        completed += windows
        if completed > total // 2:
            os.kill(os.getpid(), signal.SIGKILL)

    run(make_job(model, reader, output, batch_size=1, read_blocks=2), progress=kill)


@pytest.mark.slow
def test_a_run_that_was_killed_continues_to_the_same_bytes(
    tiny_model: Path, tiny_mpnet: Path, tmp_path: Path
) -> None:
    settings = {"batch_size": 1, "read_blocks": 2}
    undisturbed = run(make_job(tiny_model, tiny_mpnet, tmp_path / "undisturbed", **settings))
    code = "from tests.runs.test_cascade import run_until_killed; run_until_killed(*paths, last)"
    run_killed(code, tiny_model, tiny_mpnet, tmp_path / "killed")
    assert not (tmp_path / "killed" / PREDICTIONS).exists()
    resumed = run(make_job(tiny_model, tiny_mpnet, tmp_path / "killed", **settings))
    assert 0 < resumed.resumed_windows < resumed.windows == undisturbed.windows
    assert resumed.reader_windows == undisturbed.reader_windows
    assert predictions(resumed.folder) == predictions(undisturbed.folder)
    names = [path.name for path in sorted((undisturbed.folder / KEPT_SCORES).iterdir())]
    for name in names:
        expected = (undisturbed.folder / KEPT_SCORES / name).read_bytes()
        assert (resumed.folder / KEPT_SCORES / name).read_bytes() == expected


@pytest.mark.slow
def test_profiles_of_a_cascade_are_compared(
    tiny_model: Path, tiny_mpnet: Path, tmp_path: Path
) -> None:
    result = run(
        make_job(
            *(tiny_model, tiny_mpnet, tmp_path),
            read_blocks=2,
            profile="grappler+buckets",
            against="baseline",
        )
    )
    assert result.parity is not None
    assert (result.parity.answers, result.parity.changed) == (QUESTIONS, 0)
    assert result.parity.max_drift is not None and 0 < result.parity.max_drift < 1e-3


def test_everything_of_the_reader_identifies_a_run(
    tiny_model: Path, tiny_mpnet: Path, tmp_path: Path
) -> None:
    job = make_job(tiny_model, tiny_mpnet, tmp_path)
    decision = job.model.cascade
    assert isinstance(decision, CascadeDecision)
    reader = Path(shutil.copytree(tiny_mpnet, tmp_path / "reader"))
    vocab = (reader / "vocab.txt").read_text("utf-8")
    (reader / "vocab.txt").write_text(vocab.replace("lake", "pond"), "utf-8")
    ranker = replace(decision.ranker, weights=RankingWeights(evidence=0.5))
    windows, second = WindowConfig(max_seq_length=20, max_query_length=8), job.model.second
    assert second is not None
    others = [
        make_job(tiny_model, None, tmp_path),
        make_job(tiny_model, reader, tmp_path),
        make_job(tiny_model, tiny_mpnet, tmp_path, read_blocks=5),
        with_model(job, second=replace(second, windows=windows)),
        with_model(job, decision=replace(decision, ranker=ranker)),
    ]
    scores = [str(Plan.of(one).scores) for one in (job, *others)]
    assert len(set(scores)) == len(scores)
    tuned = replace(decision, weights=replace(decision.weights, ranker=0.5))
    assert str(Plan.of(with_model(job, decision=tuned)).scores) == scores[0]


def test_both_models_read_the_same_blocks(tiny_model: Path, tiny_mpnet: Path) -> None:
    windows = replace(load_settings(tiny_model).windows, max_contexts=7)
    job = make_job(tiny_model, tiny_mpnet, Path("out"), windows=windows)
    expected = replace(load_settings(tiny_mpnet).windows, max_contexts=7)
    assert job.model.models[1].windows == expected


# --- the decision of both models


def test_a_reader_without_a_decision_for_the_model_has_its_own(
    tiny_model: Path, tiny_mpnet: Path, tmp_path: Path
) -> None:
    reader = Path(shutil.copytree(tiny_mpnet, tmp_path / "reader"))
    own = DecisionConfig(long_threshold=0.3, weights=RankingWeights(bm25=0.5, null=2.0))
    save_settings(reader, replace(load_settings(reader), decision=own))
    decision = make_job(tiny_model, reader, tmp_path).model.decision
    assert decision == CascadeDecision(
        long_threshold=0.3,
        weights=CascadeWeights(bm25=0.5, null=2.0),
        ranker=load_settings(tiny_model).decision,
    )
    given = make_job(tiny_model, reader, tmp_path, decision=DecisionConfig(), read_blocks=9)
    assert given.model.decision == CascadeDecision(
        read_blocks=9, ranker=load_settings(tiny_model).decision
    )


@pytest.mark.slow
def test_a_tuned_decision_is_found_when_both_models_are_given(
    tiny_model: Path,
    tiny_mpnet: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    reader = Path(shutil.copytree(tiny_mpnet, tmp_path / "reader"))
    before = load_settings(reader)
    arguments = ["--data", str(bundled_sample()), "--model", str(tiny_model)]
    arguments += [
        "--second-model",
        str(reader),
        "--read-blocks",
        "3",
        "--profile",
        "baseline",
        "--json",
    ]
    assert tune.main(arguments) == 0
    output = capsys.readouterr()
    figures = json.loads(output.out)
    assert figures["model"] == str(reader) and figures["odd_examples"] > 0
    assert "no decision" not in output.err
    after = load_settings(reader)
    tuned = after.cascades[weights_digest(tiny_model)]
    assert (after.windows, after.decision) == (before.windows, before.decision)
    assert tuned.read_blocks == 3 and tuned.ranker == load_settings(tiny_model).decision
    assert tuned.weights.ranker != 0
    assert tuned.long_threshold == figures["long_threshold"]
    assert make_job(tiny_model, reader, tmp_path).model.decision == tuned
    assert make_job(tiny_model, reader, tmp_path, read_blocks=2).model.decision == replace(
        tuned, read_blocks=2
    )
    save_settings(reader, replace(after, decision=DecisionConfig()))  # as nq tune --model READER
    assert load_settings(reader).cascades == after.cascades


def test_settings_without_cascades_are_written_as_before(tmp_path: Path, tiny_model: Path) -> None:
    settings = load_settings(tiny_model)
    save_settings(tmp_path, settings)
    written = json.loads((tmp_path / SETTINGS).read_text("utf-8"))
    assert list(written) == ["windows", "decision"]
    assert list(written["decision"]["weights"])[:2] == ["evidence", "bm25"]
    assert "ranker" not in written["decision"]["weights"]


# --- what is refused


Refused = Callable[[Sequence[str], int, str], None]


def remove_settings(folder: Path) -> None:
    (folder / SETTINGS).unlink()


def cut_weights(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])


def break_settings(folder: Path) -> None:
    (folder / SETTINGS).write_text('{"cascades": []}')


def lengthen_windows(folder: Path) -> None:
    (folder / SETTINGS).write_text('{"windows": {"max_seq_length": 512}}')


def remove_vocabulary(folder: Path) -> None:
    (folder / "vocab.txt").unlink()


@pytest.fixture
def refused(
    tiny_model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Refused:
    """Checks that every command refuses some options in one line, before it computes anything."""

    def check(options: Sequence[str], code: int, message: str) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "page.txt").write_text("The lake is deep.")
        model = ["--model", str(tiny_model)]
        for command, arguments in (
            (answer.main, [*model, "--no-track", *options]),
            (tune.main, ["--data", str(bundled_sample()), *model, *options]),
            (ask.main, ["how deep is it", "page.txt", *model, *options]),
        ):
            assert command(arguments) == code
            lines = capsys.readouterr().err.splitlines()
            assert message in lines[-1]
            assert code == 2 or len(lines) == 1
        assert not list(tmp_path.glob("runs/*/results"))

    return check


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (cut_weights, "model.safetensors is damaged"),
        (break_settings, "cascades is []: expected an object"),
        (lengthen_windows, "max_seq_length 512"),
        (remove_vocabulary, "no tokenizer in "),
        (shutil.rmtree, "no model in "),
    ],
)
def test_a_bad_folder_of_a_reader_is_refused(
    change: Callable[[Path], None],
    message: str,
    refused: Refused,
    tiny_mpnet: Path,
    tmp_path: Path,
) -> None:
    reader = Path(shutil.copytree(tiny_mpnet, tmp_path / "reader"))
    change(reader)
    refused(["--second-model", str(reader)], 1, message)


def test_the_model_itself_is_no_reader(refused: Refused, tiny_model: Path, tmp_path: Path) -> None:
    message = "has the weights of the model itself: give another model"
    refused(["--second-model", str(tiny_model)], 1, message)
    copy = Path(shutil.copytree(tiny_model, tmp_path / "copy"))
    remove_settings(copy)
    refused(["--second-model", str(copy)], 1, message)


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ("--read-blocks 2", 1, "read_blocks is 2 without a second model: give one too"),
        ("--second-model MODEL --read-blocks 0", 2, "--read-blocks: must be at least 1, got 0"),
        ("--second-model MODEL --read-blocks -3", 2, "--read-blocks: must be at least 1, got -3"),
        ("--second-model MODEL --read-blocks x", 2, "must be a whole number, got 'x'"),
    ],
)
def test_a_bad_number_of_blocks_is_refused(
    options: str,
    code: int,
    message: str,
    refused: Refused,
    tiny_mpnet: Path,
) -> None:
    refused(options.replace("MODEL", str(tiny_mpnet)).split(), code, message)


@pytest.mark.parametrize("rule", ["bert-joint", "kisialiou"])
def test_a_decision_that_ranks_no_blocks_is_refused(
    rule: str,
    tiny_model: Path,
    tiny_mpnet: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    models = ["--model", str(tiny_model), "--second-model", str(tiny_mpnet)]
    assert answer.main([*models, "--decision", rule, "--no-track"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"decision {rule} ranks no blocks for a second model" in line
    decision = DecisionConfig(rule=rule)
    with pytest.raises(nq.Error, match="ranks no blocks"):
        nq.load(tiny_model, second_model=tiny_mpnet, decision=decision)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"second_model": 5}, "second_model is 5: expected the path of a model folder"),
        ({"read_blocks": 1}, "read_blocks is 1 without a second model"),
        (
            {"second_model": "r", "read_blocks": 0},
            "read_blocks is 0: expected a whole",
        ),
        (
            {"second_model": "r", "read_blocks": True},
            "read_blocks is True: expected a whole",
        ),
        (
            {"second_model": "r", "decision": "default"},
            "decision is 'default': expected nq.",
        ),
        ({"decision": CascadeDecision()}, "is for two models: give a second model too"),
    ],
)
def test_bad_arguments_of_a_job(settings: Any, message: str, tiny_model: Path) -> None:
    with pytest.raises(ValueError, match=message):
        Job([bundled_sample()], tiny_model, **settings)


def test_prepared_windows_have_no_pages_to_read(
    tiny_model: Path,
    tiny_mpnet: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from nq.commands import preprocess

    monkeypatch.chdir(tmp_path)
    source = ["--data", str(bundled_sample()), "--limit", "1", "--tokenizer", str(tiny_model)]
    assert preprocess.main([*source, "--output", "windows"]) == 0
    capsys.readouterr()
    (shard,) = map(str, (tmp_path / "windows").glob("*.tfrecord"))
    models = ["--model", str(tiny_model), "--second-model", str(tiny_mpnet)]
    assert answer.main(["--data", shard, *models, "--no-track"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "is a TFRecord file: give the records from which it was made" in line


# --- models that name the other one


def naming(source: Path, folder: Path, **other: str) -> Path:
    """Returns a copy of a model that names the other model of a pair."""
    copy = Path(shutil.copytree(source, folder))
    settings: dict[str, Any] = dict(other)
    save_settings(copy, replace(load_settings(copy), **settings))
    return copy


def test_a_model_stands_for_the_pair_that_its_settings_name(
    tiny_model: Path, tiny_mpnet: Path, tmp_path: Path
) -> None:
    ranker = naming(tiny_model, tmp_path / "ranker", second_model=str(tiny_mpnet))
    second = naming(tiny_mpnet, tmp_path / "second", first_model=str(tiny_model))
    for job, model, other in (
        (Job([bundled_sample()], ranker), ranker, tiny_mpnet),
        (Job([bundled_sample()], str(ranker)), ranker, tiny_mpnet),
        (Job([bundled_sample()], ranker, second_model=second), ranker, second),
        (Job([bundled_sample()], second), tiny_model, second),
        (Job([bundled_sample()], second, second_model=tiny_model), second, tiny_model),
    ):
        assert [one.folder for one in job.model.models] == [model, other]
        assert job == Job([bundled_sample()], model, second_model=other)
    examples = list(islice(nq.read_examples(bundled_sample()), 2))
    with nq.load(second) as alone, nq.load(tiny_model, second_model=second) as both:
        assert list(alone.predict(examples)) == list(both.predict(examples))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"second_model": "a", "first_model": "b"},
            "first_model and second_model exclude",
        ),
        ({"second_model": 3}, "second_model is 3: expected"),
        ({"first_model": ""}, "first_model is '': expected"),
        ({"first_model": "nowhere"}, "folder/nq.json: no model 'nowhere'"),
        ({"second_model": "nowhere"}, "folder/nq.json: no model 'nowhere'"),
    ],
)
def test_a_wrong_name_of_the_other_model_is_refused(
    values: dict[str, Any], message: str, refused: Refused, tiny_mpnet: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(tiny_mpnet, tmp_path / "folder"))
    settings = json.loads((folder / SETTINGS).read_bytes())
    (folder / SETTINGS).write_text(json.dumps(settings | values))
    refused(["--model", str(folder)], 1, message)


def test_the_names_of_other_models_are_kept(tmp_path: Path, tiny_model: Path) -> None:
    copy = naming(tiny_model, tmp_path / "copy", second_model="lakes")
    assert json.loads((copy / SETTINGS).read_bytes())["second_model"] == "lakes"
    assert convert.main([str(copy), str(tmp_path / "converted")]) == 0
    assert load_settings(tmp_path / "converted") == load_settings(copy)


def test_an_installed_model_is_not_tuned_through_its_pair(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ranker = naming(tiny_model, tmp_path / "ranker", second_model="small")
    assert tune.main(["--data", str(bundled_sample()), "--model", str(ranker)]) == 1
    assert f"--second-model, and {nq.bundled_model()} is an installed model: copy it" in (
        capsys.readouterr().err
    )


# --- a second model that only ranks


@pytest.fixture(scope="module")
def dual_encoder(tiny_mpnet: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dual encoder whose windows have one block each."""
    folder = tmp_path_factory.mktemp("models") / "dual"
    assert convert.main([str(tiny_mpnet), str(folder), "--dual-encoder"]) == 0
    settings = load_settings(folder)
    windows = replace(load_settings(tiny_mpnet).windows, window_scope=BLOCK)
    save_settings(folder, replace(settings, windows=windows))
    return folder


@pytest.mark.slow
def test_a_second_model_that_only_ranks_adds_block_scores(
    tiny_model: Path, dual_encoder: Path, tmp_path: Path
) -> None:
    own = load_settings(tiny_model).decision
    alone = run(make_job(tiny_model, None, tmp_path / "alone"))
    job = make_job(tiny_model, dual_encoder, tmp_path / "all", read_blocks=ALL)
    decision = job.model.cascade
    assert decision == CascadeDecision(
        **{**vars(own), "weights": CascadeWeights(**own.weights.to_dict())},
        ranker=own,
        read_blocks=ALL,
    )
    all_blocks = run(job)
    assert all_blocks.reader_windows > QUESTIONS
    assert predictions(tmp_path / "all") == predictions(tmp_path / "alone")
    weights = replace(decision.weights, ranker=100.0)
    few = run(
        make_job(
            tiny_model,
            dual_encoder,
            tmp_path / "few",
            read_blocks=2,
            decision=replace(decision, weights=weights),
        )
    )
    assert few.reader_windows < all_blocks.reader_windows
    assert few.windows == alone.windows
    assert predictions(tmp_path / "few") != predictions(tmp_path / "alone")


def test_two_models_that_only_rank_are_mentioned(
    dual_encoder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "nq")
    mention_decision(find_model(dual_encoder, second_model=dual_encoder))
    assert f"{dual_encoder} only ranks blocks: give --second-model MODEL for short" in caplog.text
    assert f"so that of {dual_encoder} is used" in caplog.text
