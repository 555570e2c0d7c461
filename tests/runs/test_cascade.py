"""Tests runs of a ranker and a reader: their scores, resuming, tuning, and pair folders."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

import nq
from nq.bundle import bundled_sample
from nq.commands.main import console
from nq.config import CascadeDecision, RankingWeights, WindowConfig
from nq.errors import Error
from nq.evaluation.answer_files import PREDICTIONS
from nq.formats.outputs import encode_prediction
from nq.lab.compare import compare_two
from nq.model.folder import ModelFolder, PairFolder, open_folder, save_settings
from nq.model.model import Model
from nq.records import READER_WINDOW, SCORE_COLUMNS, Columns
from nq.runs.folder import JOB, KEPT_SCORES, FinishedRun
from nq.runs.job import Job
from nq.runs.result import Result
from nq.runs.run import run
from nq.runs.score_store import ScoreStore
from tests.conftest import Commands
from tests.runs.test_resume import run_killed, until_killed
from tests.support.folders import tree, write
from tests.support.jobs import flat_job, request_of

QUESTIONS, ALL = 6, 1000


def make_job(reader: Path, ranker: Path | None, output: Path, **settings: Any) -> Job:
    job = {"profile": "openvino", "batch_size": 4, "limit": QUESTIONS, "keep_scores": True}
    return flat_job([bundled_sample()], reader, ranker=ranker, output=output, **{**job, **settings})


def scores_of(result: Result) -> list[Columns]:
    store = ScoreStore(result.folder / KEPT_SCORES)
    return [store.columns(key) for key in store]


def predictions(folder: Path) -> bytes:
    return (folder / PREDICTIONS).read_bytes()


@pytest.mark.slow
def test_both_models_have_the_scores_that_they_have_alone(
    tiny_model: Path, tiny_mpnet: Path, tmp_path: Path
) -> None:
    """The models have other families, vocabularies and window settings."""
    first, alone = (
        run(make_job(model, None, tmp_path / model.name)) for model in (tiny_model, tiny_mpnet)
    )
    every = run(make_job(tiny_mpnet, tiny_model, tmp_path / "every", read_blocks=ALL))
    few = run(make_job(tiny_mpnet, tiny_model, tmp_path / "few", read_blocks=2))
    assert every.totals.reader_windows == alone.totals.windows != every.totals.windows
    assert every.measured.time["reader_s"] > 0 == alone.measured.time["reader_s"]
    assert few.totals.windows == few.totals.counters.computed_windows == first.totals.windows
    assert few.examples < few.totals.reader_windows < alone.totals.windows / 2
    for both in (every, few):
        for columns, of_ranker, of_reader in zip(
            *map(scores_of, (both, first, alone)), strict=True
        ):
            number = columns[READER_WINDOW]
            if both is every:
                assert number[number >= 0].tolist() == of_reader["window_ids"][:, 0].tolist()
            for name in SCORE_COLUMNS:
                np.testing.assert_array_equal(columns[name][number < 0], of_ranker[name], name)
                read = of_reader[name][number[number >= 0]]
                np.testing.assert_allclose(columns[name][number >= 0], read, atol=1e-5)


@pytest.mark.slow
def test_a_run_is_described_compared_and_repeated_in_memory(
    tiny_model: Path, tiny_mpnet: Path, tmp_path: Path
) -> None:
    profile = "mixed+prune+rescore"
    job = make_job(tiny_mpnet, tiny_model, tmp_path / "run", read_blocks=2, profile=profile)
    other = replace(job, profile="baseline", output=tmp_path / "baseline")
    finished = FinishedRun(run(other).folder)
    result = run(job)
    compared = compare_two(FinishedRun(result.folder), finished)
    assert compared.n_questions == QUESTIONS and compared[0].max_drift is not None
    description = json.loads((result.folder / JOB).read_text("utf-8"))["job"]
    assert [one["folder"] for one in description["models"]] == [str(tiny_model), str(tiny_mpnet)]
    assert [one["windows"]["max_seq_length"] for one in description["models"]] == [32, 24]
    assert description["pair"] is None
    assert description["decision"]["read_blocks"] == 2
    assert Job.from_dict(description).to_dict() == description
    written = orjson.loads(predictions(result.folder))["predictions"]
    assert result.examples == len(written) == QUESTIONS
    examples = islice(nq.read_examples(bundled_sample()), QUESTIONS)
    with nq.load(tiny_mpnet, profile=profile, ranker=tiny_model, read_blocks=2) as reader:
        assert reader.decision == job.model.decision
        for prediction, expected in zip(reader.predict(examples), written, strict=True):
            encoded = encode_prediction(prediction)
            for score in ("long_answer_score", "short_answers_score"):
                assert encoded.pop(score) == pytest.approx(expected.pop(score), abs=1e-4)
            assert encoded == expected


def run_until_killed(reader: Path, ranker: Path, output: Path) -> None:
    """Answers until SIGKILL; runs in a process of its own."""
    job = make_job(reader, ranker, output, batch_size=1, read_blocks=2)
    run(job, progress=until_killed())


@pytest.mark.slow
def test_a_run_that_was_killed_continues_to_the_same_bytes(
    tiny_model: Path, tiny_mpnet: Path, tmp_path: Path
) -> None:
    settings = {"batch_size": 1, "read_blocks": 2}
    undisturbed = run(make_job(tiny_mpnet, tiny_model, tmp_path / "undisturbed", **settings))
    killed = tmp_path / "killed"
    run_killed("tests.runs.test_cascade", "run_until_killed", tiny_mpnet, tiny_model, killed)
    assert not (tmp_path / "killed" / PREDICTIONS).exists()
    resumed = run(make_job(tiny_mpnet, tiny_model, tmp_path / "killed", **settings))
    assert 0 < resumed.totals.resumed_windows < resumed.totals.windows == undisturbed.totals.windows
    assert resumed.totals.reader_windows == undisturbed.totals.reader_windows
    assert predictions(resumed.folder) == predictions(undisturbed.folder)
    for path in (undisturbed.folder / KEPT_SCORES).iterdir():
        assert (resumed.folder / KEPT_SCORES / path.name).read_bytes() == path.read_bytes()


def test_everything_of_both_models_identifies_a_run(
    tiny_model: Path, tiny_mpnet: Path, tmp_path: Path
) -> None:
    def scores(job: Job, **settings: Any) -> str:
        other = replace(job, model=replace(job.model, **settings))
        return str(other.scores(request_of(other)))

    job = make_job(tiny_mpnet, tiny_model, tmp_path)
    decision, (ranker, reader) = job.model.cascade, job.model.parts
    assert decision is not None
    other = Path(shutil.copytree(tiny_mpnet, tmp_path / "other"))
    vocab = (other / "vocab.txt").read_text("utf-8")
    (other / "vocab.txt").write_text(vocab.replace("lake", "pond"), "utf-8")
    first = replace(decision.first, weights=RankingWeights(evidence=0.5))
    short = replace(reader, windows=WindowConfig(max_seq_length=20, max_query_length=8))
    different = [
        scores(job),
        scores(make_job(tiny_model, None, tmp_path)),
        scores(make_job(tiny_mpnet, None, tmp_path)),
        scores(make_job(other, tiny_model, tmp_path)),
        scores(make_job(tiny_model, tiny_mpnet, tmp_path)),
        scores(make_job(tiny_mpnet, tiny_model, tmp_path, read_blocks=5)),
        scores(job, parts=(ranker, short)),
        scores(job, decision=replace(decision, first=first)),
    ]
    assert len(set(different)) == len(different)
    tuned = replace(decision, weights=replace(decision.weights, block_score=0.5))
    assert scores(job, decision=tuned) == scores(job)


def tune(commands: Commands, model: Path, *options: object) -> Any:
    paths = ["--data", bundled_sample(), "--model", model, "--profile", "openvino"]
    return commands.json("tune", *paths, *options)


@pytest.mark.slow
def test_tuning_two_models_makes_a_pair_folder_that_answers_as_tuned(
    tiny_model: Path, tiny_mpnet: Path, tmp_path: Path, commands: Commands
) -> None:
    before, pair = [tree(model) for model in (tiny_model, tiny_mpnet)], tmp_path / "pair"
    options = ["--ranker", tiny_model, "--read-blocks", "3"]
    paths = ["--data", bundled_sample(), "--model", tiny_mpnet, "--profile", "openvino"]
    assert "--output" in commands.error("tune", *paths, *options)
    figures = tune(commands, tiny_mpnet, *options, "--output", pair)
    assert [tree(model) for model in (tiny_model, tiny_mpnet)] == before
    assert figures["model"] == str(pair) and figures["odd_examples"] > 0
    opened, given = Model.open(pair), Model.open(tiny_mpnet, ranker=tiny_model)
    assert [one.digest for one in opened.parts] == [one.digest for one in given.parts]
    assert [one.windows for one in opened.parts] == [one.windows for one in given.parts]
    tuned = opened.cascade
    assert tuned is not None and tuned.first == ModelFolder(tiny_model).settings.decision
    assert tuned.read_blocks == 3 and tuned.weights.block_score != 0
    assert tuned.long_threshold == figures["long_threshold"]
    assert (opened.name, opened.advice) == ("pair", "")
    assert Model.open(pair, read_blocks=2).decision == replace(tuned, read_blocks=2)
    apart = flat_job([bundled_sample()], tiny_mpnet, "openvino", ranker=tiny_model, decision=tuned)
    for name, model in (("apart", apart.model), ("pair", opened)):
        run(replace(apart, model=model, limit=QUESTIONS, output=tmp_path / "runs" / name))
    assert predictions(tmp_path / "runs" / "apart") == predictions(tmp_path / "runs" / "pair")


@pytest.mark.slow
def test_a_pair_folder_is_tuned_in_place_or_as_a_copy(
    tiny_pair: Path, tmp_path: Path, commands: Commands
) -> None:
    pair = Path(shutil.copytree(tiny_pair, tmp_path / "pair"))
    before = tree(pair)
    tune(commands, pair, "--output", tmp_path / "copy")
    assert tree(pair) == before
    figures = tune(commands, pair)
    changed = {name for name, data in tree(pair).items() if data != before[name]}
    assert changed == {"nq.json"}
    in_place, copy = (open_folder(folder) for folder in (pair, tmp_path / "copy"))
    assert isinstance(in_place, PairFolder) and isinstance(copy, PairFolder)
    assert in_place.decision == copy.decision != Model.open(tiny_pair).decision
    assert in_place.decision.long_threshold == figures["long_threshold"]
    assert (in_place.ranker.digest, in_place.reader.digest) == (
        copy.ranker.digest,
        copy.reader.digest,
    )


@pytest.mark.slow
def test_a_run_of_a_pair_is_reported_and_compared_where_the_pair_moved(
    tiny_pair: Path, tmp_path: Path, commands: Commands
) -> None:
    pair = Path(shutil.copytree(tiny_pair, tmp_path / "pair"))
    results = {
        name: run(
            Job(
                [bundled_sample()],
                Model.open(pair, read_blocks=blocks),
                "openvino",
                output=tmp_path / name,
                limit=QUESTIONS,
                keep_scores=True,
            )
        )
        for name, blocks in (("few", 1), ("more", 3))
    }
    assert results["few"].totals.reader_windows < results["more"].totals.reader_windows
    assert json.loads((tmp_path / "few" / JOB).read_bytes())["job"]["pair"] == str(pair)
    compared = commands.json("report", tmp_path / "few", tmp_path / "more")
    assert len(compared["rows"]) == 2, compared
    pair.rename(tmp_path / "moved")
    assert str(pair) in commands.error("report", tmp_path / "few")
    moved = FinishedRun(tmp_path / "few", model=tmp_path / "moved")
    assert [one.folder.parent for one in moved.job.model.parts] == [tmp_path / "moved"] * 2
    assert moved.job.model.decision == Model.open(tmp_path / "moved", read_blocks=1).decision
    report = commands.out("report", tmp_path / "few", "--model", tmp_path / "moved")
    assert "moved" in report or (tmp_path / "few" / "report.html").is_file()
    other = tmp_path / "moved" / "reader"
    assert "tokenizer" in commands.error("report", tmp_path / "few", "--model", other)


def in_settings(**values: Any) -> Callable[[Path], object]:
    def change(pair: Path) -> None:
        path = pair / "nq.json"
        path.write_text(json.dumps(json.loads(path.read_bytes()) | values), "utf-8")

    return change


def without(name: str) -> Callable[[Path], object]:
    def remove(pair: Path) -> None:
        path = pair / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return remove


def linked(name: str, target: str) -> Callable[[Path], object]:
    def link(pair: Path) -> None:
        shutil.move(pair / name, pair.parent / "outside")
        (pair / name).symlink_to(target)

    return link


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (without("ranker"), r"nq\.json names the ranker ranker, which is missing"),
        (without("reader"), r"nq\.json names the reader reader, which is missing"),
        (without("ranker/model.safetensors"), r"no model\.safetensors in \S+ranker"),
        (without("reader/model.safetensors"), r"no model\.safetensors in \S+reader"),
        (without("reader/config.json"), r"reader.*config\.json"),
        (without("ranker/vocab.txt"), r"ranker.*vocab\.txt"),
        (in_settings(ranker="../outside"), r"nq\.json: ranker is '\.\./outside'"),
        (in_settings(reader="/etc"), r"nq\.json: reader is '/etc'"),
        (in_settings(reader=".."), r"nq\.json: reader is '\.\.'"),
        (in_settings(ranker=""), r"nq\.json: ranker is ''"),
        (in_settings(reader=None), r"nq\.json: reader is None"),
        (in_settings(reader="ranker"), r"has the weights of the reader"),
        (in_settings(decision={"read_blocks": 0}), r"nq\.json: .*read_blocks"),
        (in_settings(decision={"rule": "bert-joint"}), r"ranks no blocks for a ranker"),
        (in_settings(decision=[]), r"nq\.json"),
        (lambda pair: (pair / "nq.json").write_text("{"), r"nq\.json"),
        (linked("reader/vocab.txt", "../../outside"), r"vocab\.txt is a link out of"),
        (linked("ranker", "../outside"), r"ranker/\S+ is a link out of"),
        (linked("nq.json", "../outside"), r"nq\.json is a link out of"),
    ],
)
def test_a_damaged_pair_is_one_line(
    tiny_pair: Path,
    tmp_path: Path,
    damage: Callable[[Path], object],
    problem: str,
    commands: Commands,
) -> None:
    pair = Path(shutil.copytree(tiny_pair, tmp_path / "pair"))
    damage(pair)
    page = write(tmp_path / "page.txt", "The lake is deep.")
    error = commands.error("ask", "who", page, "--model", pair, "--profile", "openvino")
    assert re.search(problem, error), error
    assert str(pair) in error or "ranks no blocks" in error


def test_a_pair_that_changes_while_it_is_used_is_noticed(tiny_pair: Path, tmp_path: Path) -> None:
    pair = Path(shutil.copytree(tiny_pair, tmp_path / "pair"))
    model = Model.open(pair)
    model.check_same()
    in_settings(decision={"read_blocks": 9})(pair)
    with pytest.raises(Error, match=r"nq\.json changed while it was used"):
        model.check_same()
    assert model.decision != Model.open(pair).decision
    settings = ModelFolder(pair / "reader").settings
    save_settings(pair / "reader", replace(settings, windows=WindowConfig(doc_stride=5)))
    with pytest.raises(Error, match="reader changed while it was used"):
        model.check_same()


def test_a_pair_is_copied_and_described_as_a_whole(tiny_pair: Path, tmp_path: Path) -> None:
    model = Model.open(tiny_pair, read_blocks=2)
    copied = Model.open(model.copy(tmp_path / "copy"))
    assert copied.decision == model.decision
    assert [one.windows for one in copied.parts] == [one.windows for one in model.parts]
    assert copied.key[:2] == model.key[:2]
    assert Model.from_dict(model.to_dict()).to_dict() == model.to_dict()
    assert copied == model.moved(tmp_path / "copy")
    assert copied.size_mb == pytest.approx(model.size_mb, rel=0.1)


def test_what_takes_one_model_refuses_a_pair_in_one_line(
    tiny_pair: Path, tiny_model: Path, tiny_mpnet: Path, tmp_path: Path, commands: Commands
) -> None:
    with pytest.raises(ValueError, match=r"is two models: give one, such as .*reader"):
        ModelFolder.open(tiny_pair)
    out, data = ["--output", tmp_path / "out"], ["--data", bundled_sample()]
    ask = ["ask", "who", write(tmp_path / "page.txt", "The lake is deep."), "--model"]
    for arguments, problem in (
        (["convert", tiny_pair, tmp_path / "out"], "is two models: give one"),
        (["preprocess", *data, *out, "--model", tiny_pair], "is two models: give one"),
        (["train", *data, *out, "--init", tiny_pair], "is two models: give one"),
        ([*ask, tiny_pair, "--ranker", tiny_model], "is two models already: leave the ranker out"),
        ([*ask, tiny_mpnet, "--ranker", tiny_pair], "is two models: give one"),
        ([*ask, tiny_model, "--ranker", tiny_model], "has the weights of the reader"),
        ([*ask, tiny_model, "--read-blocks", "2"], "without a ranker"),
    ):
        error = commands.error(*arguments)
        assert problem in error, error
    assert not (tmp_path / "out").exists()


def test_the_bundled_models_given_apart_are_the_bundled_pair() -> None:
    pair = Model.open()
    assert pair.name == "ranker+small"
    assert Model.open("small", ranker="ranker") == pair == Model.open("ranker+small")
    assert isinstance(pair.decision, CascadeDecision)
    for name, part in zip(("ranker", "small"), pair.parts, strict=True):
        assert Model.open(name).parts == (part,)
        assert Model.open(name).decision == part.files.settings.decision


@pytest.fixture
def dual_encoder(tiny_mpnet: Path, tmp_path: Path) -> Path:
    """A dual encoder that encodes each block by itself."""
    folder = tmp_path / "dual"
    assert console(["convert", str(tiny_mpnet), str(folder), "--dual-encoder"]) == 0
    return folder


@pytest.mark.slow
def test_a_dual_encoder_ranks_for_a_reader_and_is_none(
    tiny_model: Path, dual_encoder: Path, tmp_path: Path
) -> None:
    run(make_job(tiny_model, None, tmp_path / "alone"))
    job = make_job(tiny_model, dual_encoder, tmp_path / "all", read_blocks=ALL)
    decision = job.model.cascade
    assert decision is not None
    assert decision.first == ModelFolder(dual_encoder).settings.decision
    all_blocks = run(job)
    assert predictions(tmp_path / "all") == predictions(tmp_path / "alone")
    ranking = replace(decision, weights=replace(decision.weights, block_score=100.0))
    few = make_job(tiny_model, dual_encoder, tmp_path / "few", read_blocks=2, decision=ranking)
    assert run(few).totals.reader_windows < all_blocks.totals.reader_windows
    assert predictions(tmp_path / "few") != predictions(tmp_path / "alone")
    with pytest.raises(ValueError, match="only ranks blocks: give it as the ranker"):
        Model.open(dual_encoder, ranker=tiny_model)
    advice = Model.open(dual_encoder).advice
    assert str(dual_encoder) in advice and "--ranker" in advice
    assert "nq tune --ranker" in job.model.advice
