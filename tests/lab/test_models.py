"""Tests the comparison of models by real runs of two tiny ones, which are read as quiet."""

import json
import shutil
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

import nq
from nq import storage, tracking
from nq.bundle import bundled_sample
from nq.config import DecisionConfig, TrackingConfig
from nq.evaluation.evaluate import example_gold
from nq.evaluation.gate import is_better
from nq.evaluation.nq_eval import Gold
from nq.evaluation.tuning import FOLDS, MIN_TUNED, tune_decision, unseen_answers
from nq.lab import rounds
from nq.lab.measure import compare
from nq.lab.models import Judged, judged_answers, name_models, save_judged
from nq.lab.page import Comparison
from nq.lab.rows import FITTED, SHIPPED
from nq.mlflow_store import DEFAULT_EXPERIMENT, connect
from nq.model.model import Model
from nq.records import Annotation, Example, ExampleId, Prediction, Scores, Span, YesNo
from nq.runs.folder import FinishedRun
from nq.runs.tuning import start_decision
from tests.conftest import Commands
from tests.support.jobs import answer_here

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Compared:
    rows: Comparison
    files: list[str]
    saved: Path
    store: str

    def run(self, model: Path) -> FinishedRun:
        """Returns the run of a model."""
        for mark in self.rows.folder.glob("*/job.json"):
            (one,) = storage.read_json(mark)["job"]["models"]
            if one["folder"] == str(model):
                return FinishedRun(mark.parent, self.files)
        raise LookupError(model)


@pytest.fixture(scope="module")
def compared(
    tiny_model: Path, tiny_mpnet: Path, tmp_path_factory: pytest.TempPathFactory
) -> Compared:
    folder = tmp_path_factory.mktemp("models")
    file = Path(shutil.copy(bundled_sample(), folder / "questions.jsonl"))
    store, saved = f"sqlite:///{folder}/mlflow.db", folder / "saved"
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of MLflow
        patch.setattr(rounds, "answer_in_process", answer_here)
        rows = compare(
            [file],
            "openvino",
            models=[tiny_model, tiny_mpnet],
            rounds=2,
            save_tuned=saved,
            output=folder / "out",
            track=TrackingConfig(store),
        )
    return Compared(rows, [str(file)], saved, store)


def test_each_model_has_a_row_with_its_figures(
    compared: Compared, tiny_model: Path, tiny_mpnet: Path
) -> None:
    rows = {row.model: row for row in compared.rows}
    assert set(rows) == {tiny_model.name, tiny_mpnet.name}
    for row in rows.values():
        assert row.profile == "openvino" and row.error == "" and len(row.ratios) == 2
        names = {"micro_f1", "long_f1", "short_f1"}
        assert (
            set(row.quality) == set(row.fitted) == set(row.judged) == names
            and row.behind is not None
        )
        assert min(row.questions_per_s or 0, row.first_start_s or 0, row.size_mb or 0) > 0
    first, other = rows[tiny_model.name], rows[tiny_mpnet.name]
    assert (first.changed, first.ratios) == (0, (1.0, 1.0)) and first.against == tiny_model.name
    assert other.changed is not None and 0 < other.changed <= MIN_TUNED
    assert min(row.behind[0] for row in rows.values() if row.behind) == 0
    for row in rows.values():
        assert row.decision != SHIPPED or row.judged == row.quality
        assert row.f1 == row.judged["micro_f1"]
    best = max(rows.values(), key=lambda row: row.judged["micro_f1"])
    assert best.behind is not None and best.behind[0] == 0


def test_no_decision_has_seen_the_question_that_it_answers(
    compared: Compared, tiny_model: Path
) -> None:
    run = compared.run(tiny_model)
    order = {one.example_id: n for n, (_, one) in enumerate(run.sources())}
    start = start_decision(run.job.model)
    before = unseen_answers(run, start, order)
    gold = {one.example_id for _, one in run.sources() if example_gold(one)[0].long}
    changed: ExampleId = next(key for key, n in order.items() if n % 2 == 0 and key in gold)

    class Other:
        def __iter__(self) -> Iterator[tuple[Example, Scores]]:
            for example, scores in run:
                if example.example_id == changed:
                    annotations = example.annotations or ()
                    null = replace(annotations[-1], long=None, candidate=-1, shorts=())
                    example = replace(example, annotations=(null,))  # noqa: PLW2901
                yield example, scores

    after = unseen_answers(Other(), start, order)
    assert set(before) == set(run.predictions)
    assert before[changed] == after[changed]
    scores = [{key: label.long_score for key, label in one.items()} for one in (before, after)]
    same_half = [key for key, n in order.items() if n % 2 == 0]
    assert [scores[0][key] for key in same_half] == [scores[1][key] for key in same_half]
    assert scores[0] != scores[1]  # its gold counts for the other half


SPOILT = DecisionConfig(long_threshold=2.0, short_threshold=2.0)  # it gives no answer


def of_decision(model: Path, folder: Path, decision: DecisionConfig) -> FinishedRun:
    """Returns a run of a model by a decision on the bundled questions, with its scores."""
    opened = Model.open(model, decision=decision)
    job = nq.Job([bundled_sample()], opened, "openvino", output=folder, keep_scores=True)
    return FinishedRun(nq.run(job).folder)


def test_a_spoilt_decision_is_replaced_and_a_good_one_is_kept(
    tiny_model: Path, tmp_path: Path
) -> None:
    """The good one gives the answers of an annotator."""
    spoilt = of_decision(tiny_model, tmp_path / "spoilt", SPOILT)
    judged = judged_answers(spoilt)
    assert judged.decision == FITTED and judged.answers != spoilt.predictions
    assert judged == judged_answers(spoilt, FITTED)
    save_judged(spoilt, judged, tmp_path / "saved")
    saved = Model.open(tmp_path / "saved").decision
    assert saved == fitted_to_all(spoilt) != SPOILT
    good = of_decision(tiny_model, tmp_path / "good", saved)
    for _, one in good.sources():
        gold = max(example_gold(one), key=lambda gold: (gold.has_short, gold.answered))
        right = Prediction(one.example_id, gold.long, shorts=gold.shorts, yes_no=gold.yes_no)
        good.predictions[one.example_id] = right
    kept = judged_answers(good)
    assert (kept.decision, kept.answers) == (SHIPPED, good.predictions)
    # fitted from another decision: the good one has seen both halves
    assert kept.fitted["micro_f1"] > judged.fitted["micro_f1"]
    save_judged(good, kept, tmp_path / "copy")
    assert Model.open(tmp_path / "copy").decision == saved
    assert judged_answers(spoilt, SHIPPED) == Judged(SHIPPED, spoilt.predictions, {})


def test_of_two_models_a_folder_of_both_is_saved(tiny_pair: Path, tmp_path: Path) -> None:
    spoilt = of_decision(tiny_pair, tmp_path / "spoilt", SPOILT)
    save_judged(spoilt, judged_answers(spoilt), tmp_path / "saved")
    saved, own = Model.open(tmp_path / "saved"), Model.open(tiny_pair)
    assert saved.decision == fitted_to_all(spoilt)
    assert saved.cascade is not None and own.cascade is not None
    assert saved.cascade.first == own.cascade.first
    assert [part.digest for part in saved.parts] == [part.digest for part in own.parts]


def fitted_to_all(run: FinishedRun) -> DecisionConfig:
    number = {one.example_id: number for number, (_, one) in enumerate(run.sources())}
    start = start_decision(run.job.model)
    return tune_decision(run, start, lambda key: number[key] % FOLDS).decision


counts = st.tuples(st.booleans(), st.booleans())


@given(st.lists(st.tuples(counts, counts), min_size=2, max_size=40))
def test_of_two_decisions_at_most_one_is_better(drawn: list[tuple[Any, Any]]) -> None:
    def answer(is_right: bool, is_given: bool) -> Prediction:
        start = 1 if is_right else 5
        return Prediction(0, Span(start, start + 1) if is_given else None)

    right = Annotation(Span(1, 2), None, (), YesNo.NONE)
    gold: Gold = {key: [right] for key in range(len(drawn))}
    one, other = (
        dict[ExampleId, Prediction]((key, answer(*pair[side])) for key, pair in enumerate(drawn))
        for side in (0, 1)
    )
    assert not is_better(one, one, gold)
    assert not (is_better(one, other, gold) and is_better(other, one, gold))
    assert is_better(
        dict.fromkeys(gold, answer(True, True)), dict.fromkeys(gold, Prediction(0)), gold
    )


@pytest.mark.filterwarnings("ignore:For backward compatibility, 'str' dtypes")  # in MLflow
def test_the_rows_are_recorded_below_a_run_of_the_comparison(compared: Compared) -> None:
    client = connect(compared.store)
    experiment = client.get_experiment_by_name(DEFAULT_EXPERIMENT)
    recorded = client.search_runs([experiment.experiment_id])
    (parent,) = [run for run in recorded if tracking.PARENT not in run.data.tags]
    rows = {run.info.run_name: run for run in recorded if run is not parent}
    names = {row.label: f"{row.profile} · {row.model} · questions.jsonl" for row in compared.rows}
    assert set(rows) == {*names.values()}
    assert {run.data.tags[tracking.PARENT] for run in rows.values()} == {parent.info.run_id}
    for row in compared.rows:
        metrics = rows[names[row.label]].data.metrics
        for shown, quality in (("micro_f1", row.quality), ("fitted.micro_f1", row.fitted)):
            assert metrics[shown] == pytest.approx(quality["micro_f1"], abs=1e-4)
        assert rows[names[row.label]].data.tags["decision"] == row.decision
        assert {"questions_per_s", "size_mb", tracking.CHANGED, tracking.PEAK_MB} <= set(metrics)


def test_the_page_tells_what_was_measured_and_how_often_the_models_agree(
    compared: Compared,
) -> None:
    page = compared.rows.page.read_text("utf-8")
    assert "2 models on questions.jsonl</h1>" in page
    assert f"{MIN_TUNED} questions ·" in page and "openvino" in page and "100%" in page
    share = 1 - max(row.changed or 0 for row in compared.rows) / MIN_TUNED
    assert f"<td>{share:.0%}</td>" in page
    whole = storage.read_json(compared.rows.folder / "compare.json")
    assert next(iter(whole["agreement"].values())) == [1.0, share]


def test_shipped_decisions_need_no_scores(
    compared: Compared,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rounds, "answer_in_process", answer_here)
    (row,) = compare(
        *(compared.files, "openvino"),
        models=[tiny_model],
        decisions=SHIPPED,
        rounds=1,
        limit=2,
        output=tmp_path / "out",
    )
    assert row.fitted == {} and row.judged == row.quality and row.behind == (0.0, 0.0, 0.0)
    assert not list((tmp_path / "out").glob("*/scores"))
    squad = {"context": "It is deep.", "qas": [{"id": "a", "question": "is it deep?"}]}
    squad["qas"][0]["answers"] = [{"text": "deep", "answer_start": 6}]  # type: ignore[index]
    file = tmp_path / "squad.json"
    file.write_text(json.dumps({"data": [{"title": "Lake", "paragraphs": [squad]}]}))
    (row,) = compare([file], "openvino", models=[tiny_model], rounds=1, output=tmp_path / "text")
    assert {"exact_match", "squad_f1"} <= set(row.quality) and row.fitted == {}


def test_a_model_that_cannot_have_a_profile_is_a_row_with_its_reason(
    compared: Compared,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    commands: Commands,
) -> None:
    other = Path(shutil.copytree(tiny_model, tmp_path / "original"))
    settings = json.loads((other / "nq.json").read_bytes()) if (other / "nq.json").is_file() else {}
    settings["decision"] = {"rule": "bert-joint"}
    (other / "nq.json").write_text(json.dumps(settings))

    monkeypatch.setattr(rounds, "answer_in_process", answer_here)
    arguments = ["compare", "--models", other, tiny_model, "--data", *compared.files]
    arguments += ["--profiles", "openvino+prune", "--rounds", "1", "--limit", "2", "--no-track"]
    result = json.loads(commands.out(*arguments, "--output", tmp_path / "out", "--json", code=1))
    assert "1 row failed: original · " in commands.err
    first, failed = result["rows"]
    assert first["model"] == tiny_model.name and first["changed"] == 0
    assert failed["model"] == "original" and "bert-joint" in failed["error"]
    assert first["fitted"] == {}  # two questions


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (["--models", "{tiny}", "{copy}"], 1, "are the same model"),
        (["--models", "{tiny}", "no_such_model"], 1, "no_such_model"),
        (["--models", "{tiny}", "{headless}"], 1, "has no head for answers"),
        (["--models", "{tiny}", "--model", "{tiny}"], 2, "--model is one of --models"),
        (["--decisions", "shipped"], 2, "are for --models"),
        (["--save-tuned", "x"], 2, "are for --models"),
        (["--models", "{tiny}", "--profile", "mixed"], 2, "give --profiles"),
        (["--prof", "mixed"], 2, "give --profiles"),
        (["--root", "x"], 2, "give --output"),
        (["--register", "x"], 2, "--register"),
        (["--no-such-option"], 2, "--no-such-option"),
        (["--models", "{tiny}", "--runner", "DirectRunner"], 2, "add --decisions shipped"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_anything_is_measured(
    arguments: list[str],
    code: int,
    problem: str,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    commands: Commands,
) -> None:
    monkeypatch.chdir(tmp_path)
    copy, headless = (shutil.copytree(tiny_model, tmp_path / name) for name in ("copy", "headless"))
    weights = load_file(headless / "model.safetensors")
    kept = {name: x for name, x in weights.items() if not name.startswith("qa_outputs")}
    assert len(kept) < len(weights)
    save_file(kept, headless / "model.safetensors")
    (headless / "nq.json").unlink(missing_ok=True)
    places = {"tiny": tiny_model, "copy": copy, "headless": headless}
    given = [one.format(**places) for one in arguments]
    assert problem in commands.error("compare", *given, code=code)
    assert not (tmp_path / "runs").exists()


def test_a_model_is_called_as_it_was_given(
    tiny_model: Path, tiny_mpnet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the last component of a folder, and by the whole text where two have the same."""
    for folder, model in (("a/reader", tiny_model), ("b/reader", tiny_mpnet)):
        shutil.copytree(model, tmp_path / folder)
    monkeypatch.chdir(tmp_path / "a")
    (tmp_path / "lakes").symlink_to(tmp_path / "b" / "reader")
    assert names_of("../lakes", "small") == ["lakes", "small"]
    assert names_of("ranker+small", "small") == ["ranker+small", "small"]
    assert names_of("reader", "small") == ["reader", "small"]
    assert names_of(f"{tmp_path}/b/reader/", "small") == ["reader", "small"]
    assert names_of("reader", Path("../b/reader")) == ["reader", "../b/reader"]
    monkeypatch.chdir(tmp_path / "a" / "reader")
    assert names_of(".", "small") == ["reader", "small"]


def names_of(*models: str | Path) -> list[str]:
    return list(name_models((one, Model.open(one)) for one in models))
