"""Tests that names, settings, runs and scores of earlier versions are still read.

``tests/golden/old_runs`` has the settings of a model folder and two runs with kept scores, written
by version 0.1.0 before its names changed: under ``baseline``, and under ``mixed+refine+recheck``,
where two of three examples were rescored. They answered ``questions`` with the tiny model.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nq.commands.report import main as report
from nq.config import DecisionConfig, RankingWeights
from nq.inference.profile import Profile
from nq.model.folder import SETTINGS, load_settings, save_settings
from nq.runs.job import Job
from nq.runs.parity import compare
from nq.runs.result import JOB, KEPT_SCORES, METRICS, PREDICTIONS
from nq.runs.run import run, run_once
from nq.runs.score_store import REQUEST, ScoreStore
from nq.runs.scoring import Plan
from tests import nq_records

OLD_RUNS = Path(__file__).parents[1] / "golden" / "old_runs"
PROFILES = {"baseline": "baseline", "mixed": "mixed+prune+rescore"}
"""Maps the folder of each old run to the profile's present name."""
DECISION = DecisionConfig(
    short_threshold=0.2655,
    weights=RankingWeights(bm25=0.3, position=-0.2, max_evidence=900.0, no_short=0.1, yes=-6.0),
)
RENAMED = {"overlap": 0.3, "place": -0.2, "most_evidence": 900.0, "whole": 0.1}


def read(path: Path) -> Any:
    return json.loads(path.read_bytes())


def check_predictions(run: Path, old: Path, tolerance: float) -> None:
    folders = (run / PREDICTIONS, old / PREDICTIONS)
    for prediction, expected in zip(*(read(f)["predictions"] for f in folders), strict=True):
        for score in ("long_answer_score", "short_answers_score"):
            assert prediction.pop(score) == pytest.approx(expected.pop(score), abs=tolerance)
        assert prediction == expected


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    records = [nq_records.simplified(i, words=8 * i) for i in (1, 2, 3)]
    return nq_records.write_lines(tmp_path / "questions.jsonl", records)


@pytest.fixture
def old_model(tiny_model: Path, tmp_path: Path) -> Path:
    """A copy of the tiny model with the settings of an earlier version."""
    folder = Path(shutil.copytree(tiny_model, tmp_path / "model"))
    shutil.copyfile(OLD_RUNS / SETTINGS, folder / SETTINGS)
    return folder


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("refine", "prune"),
        ("mixed+recheck", "mixed+rescore"),
        ("recheck+refine+mixed", "mixed+prune+rescore"),
        ("grappler+refine", "grappler+prune"),
    ],
)
def test_old_names_of_optimizations_are_accepted(old: str, new: str) -> None:
    assert Profile.parse(old) == Profile.parse(new)
    assert str(Profile.parse(old)) == new
    assert str(Job([__file__], profile=old, against=old).profile) == new


@pytest.mark.parametrize("text", ["refine+prune", "mixed+recheck+rescore"])
def test_an_optimization_by_both_names_is_named_twice(text: str) -> None:
    with pytest.raises(ValueError, match="is named twice"):
        Profile.parse(text)


def test_old_settings_of_a_model_folder_are_read(old_model: Path) -> None:
    assert RENAMED.items() <= read(old_model / SETTINGS)["decision"]["weights"].items()
    settings = load_settings(old_model)
    assert settings.decision == DECISION
    save_settings(old_model, settings)
    assert load_settings(old_model) == settings
    assert not RENAMED.keys() & read(old_model / SETTINGS)["decision"]["weights"].keys()


@pytest.mark.parametrize("name", PROFILES)
def test_the_description_of_an_old_run_is_read(name: str) -> None:
    description = read(OLD_RUNS / name / JOB)
    assert RENAMED.items() <= description["job"]["decision"]["weights"].items()
    job = Job.from_dict(description["job"])
    assert job.files == ("/data/questions.jsonl",)
    assert (str(job.profile), job.model) == (PROFILES[name], Path("/models/tiny"))
    assert (job.decision, job.batch_size, job.limit) == (DECISION, 4, None)
    assert Job.from_dict(job.to_dict()) == job


def test_the_scores_of_old_runs_are_read() -> None:
    baseline, mixed = (ScoreStore(OLD_RUNS / name / KEPT_SCORES) for name in PROFILES)
    assert list(baseline) == list(mixed) == [(0, 1), (0, 2), (0, 3)]
    assert [len(baseline[key]) for key in baseline] == [len(mixed[key]) for key in mixed]
    differences = [
        float(np.abs(baseline[key].cls_logit - mixed[key].cls_logit).max()) for key in baseline
    ]
    assert differences[0] > 1e-4  # bfloat16
    assert max(differences[1:]) < 1e-5  # rescored in float32, in parts of their own
    assert all(mixed.computed(key).all() for key in mixed)


def test_old_runs_are_compared() -> None:
    parity = compare(OLD_RUNS / "mixed", OLD_RUNS / "baseline")
    assert (parity.against, parity.answers, parity.changed) == ("baseline", 3, 0)
    assert parity.max_drift and 1e-4 < parity.max_drift < 0.2
    assert set(parity.f1.values()) == {0.0}


@pytest.mark.slow
@pytest.mark.parametrize("name", PROFILES)
def test_a_run_gives_the_answers_of_the_old_one(
    name: str, questions: Path, old_model: Path, tmp_path: Path
) -> None:
    job = Job(
        [questions],
        old_model,
        PROFILES[name],
        batch_size=4,
        output=tmp_path / "run",
        keep_scores=True,
    )
    result = run(job)
    old = OLD_RUNS / name
    check_predictions(result.folder, old, tolerance=1e-5 if name == "baseline" else 1e-2)
    metrics = read(old / METRICS)
    assert result.metrics == metrics["metrics"]
    for count in ("examples", "windows", "read_windows", "answered", "dead_letters"):
        assert getattr(result, count) == metrics[count]
    assert result.rescored == metrics["rechecked"]
    parity = compare(result.folder, old)
    assert (parity.against, parity.changed) == (metrics["profile"], 0)
    assert parity.max_drift is not None and parity.max_drift < 0.05
    description, old_description = read(result.folder / JOB), read(old / JOB)
    assert description["job"].keys() == old_description["job"].keys()
    for request in (description["request"], old_description["request"]):
        del request["version"]
    assert description["request"] == old_description["request"]


@pytest.mark.slow
def test_an_interrupted_old_run_is_resumed(
    questions: Path, old_model: Path, tmp_path: Path
) -> None:
    """An earlier version left its parts in ``results``, and the request beside them."""
    job = Job([questions], old_model, "baseline", batch_size=4, output=tmp_path / "run")
    unfinished = tmp_path / "run" / "results"
    shutil.copytree(OLD_RUNS / "baseline" / KEPT_SCORES, unfinished)
    request = read(unfinished / REQUEST)
    scores = dict(Plan.of(job).scores)
    assert request.keys() == scores.keys()
    for digest in ("weights", "windows"):  # of the tiny model's bytes, and of the version
        request[digest] = scores[digest]
    assert request == scores
    (unfinished / REQUEST).write_text(json.dumps(request, sort_keys=True), encoding="utf-8")
    result = run(job)
    assert result.resumed_windows == result.windows == 23
    assert result.read_windows == 0
    check_predictions(result.folder, OLD_RUNS / "baseline", tolerance=1e-12)


def test_a_finished_old_run_is_not_run_again(
    questions: Path, old_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job([questions], old_model, "baseline", batch_size=4, root=tmp_path, keep_scores=True)
    folder = Plan.of(job).folder
    shutil.copytree(OLD_RUNS / "baseline", folder)
    monkeypatch.setattr("nq.runs.run.run", None)
    assert run_once(job) == folder
    assert Plan.of(replace(job, batch_size=5)).folder != folder


@pytest.mark.parametrize("name", PROFILES)
def test_the_report_of_an_old_run_is_written(
    name: str,
    questions: Path,
    old_model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = tmp_path / "page.html"
    folders = ["--data", str(questions), "--model", str(old_model), "--output", str(page)]
    assert report([str(OLD_RUNS / name), *folders, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["questions"], result["problems"]) == (3, [])
    assert result["analysis"]["examples"] == 3
    assert str(Profile.parse(PROFILES[name])) in page.read_text(encoding="utf-8")


def test_the_report_of_an_old_run_without_its_data_has_its_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert report([str(OLD_RUNS / "mixed"), "--output", str(page), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["questions"], result["analysis"]) == (3, None)
    assert result["problems"][0].startswith("/data/questions.jsonl does not exist: give the new")
    assert "/data/questions.jsonl does not exist" in page.read_text(encoding="utf-8")
