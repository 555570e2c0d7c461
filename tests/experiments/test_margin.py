"""Savings and costs of margins: compared with a real run under ``prune``, and on random scores."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nq
from experiments.margin import PARTS, Page, Tally, main, measure, table
from nq.config import DecisionConfig, RankingWeights
from nq.inference.prune import NEAR
from nq.model.folder import load_settings, save_settings
from nq.records import Annotation, Prediction, Span, YesNo
from tests.postprocess import synthetic_pages

N = 4


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records with even and odd ids, and one whose id is not a number."""
    lines = nq.bundled_sample().read_text(encoding="utf-8").splitlines()[:N]
    ids = [2, 4, 5, "a"]
    path = tmp_path_factory.mktemp("margin") / "data.jsonl"
    records = (json.loads(line) | {"example_id": i} for line, i in zip(lines, ids, strict=True))
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


@pytest.fixture
def pruning_model(tiny_model: Path, tmp_path: Path) -> Path:
    """A model whose decision depends on BM25 more than on scores, so that windows are pruned."""
    folder = shutil.copytree(tiny_model, tmp_path / "pruning_model")
    settings = load_settings(folder)
    weights = RankingWeights(bm25=3.0, max_evidence=2.0)
    decision = replace(settings.decision, weights=weights)
    save_settings(folder, replace(settings, decision=decision))
    return folder


def compare(capsys: pytest.CaptureFixture[str], *options: object) -> dict[str, Any]:
    """Returns the JSON result of the command."""
    capsys.readouterr()
    assert main([*map(str, options), "--profile", "baseline", "--json"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def predictions(run: nq.Result) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = json.loads((run.folder / "predictions.json").read_text())[
        "predictions"
    ]
    return result


@pytest.mark.slow
def test_figures_are_those_of_a_run_under_prune(
    data: Path, pruning_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    full, pruned = (
        nq.run(nq.Job([data], pruning_model, profile, output=tmp_path / profile))
        for profile in ("baseline", "prune")
    )
    options = ("--data", data, "--model", pruning_model, "--half", "all", "--margins", NEAR)
    result = compare(capsys, *options)
    (row,) = result["margins"]
    assert (result["questions"], result["windows"]) == (N, full.windows)
    assert 0 < row["read"] == pruned.read_windows / full.windows < 1
    names = {"long": "long_answer", "short": "short_answers", "yes_no": "yes_no_answer"}
    both = list(zip(predictions(pruned), predictions(full), strict=True))
    for part, name in names.items():
        assert row["changed"][part] == sum(a[name] != b[name] for a, b in both) / N
    for part in ("long", "short"):
        before, after = (run.metrics[f"{part}-answer-f1"] for run in (full, pruned))
        assert result["f1"][part] == before
        assert row["f1"][part] == pytest.approx(after - before)


@pytest.mark.slow
def test_scores_that_are_kept_are_not_computed_again(
    data: Path, pruning_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept"
    common = ("--data", data, "--model", pruning_model, "--output", kept, "--doc-stride", 4)
    even = compare(capsys, *common, "--margins", 8, 0)
    times = {path: path.stat().st_mtime_ns for path in (kept / "results").iterdir()}
    odd = compare(capsys, *common, "--margins", 0, "--half", "odd")
    assert times == {path: path.stat().st_mtime_ns for path in (kept / "results").iterdir()}
    assert any(path.suffix == ".npz" for path in times)
    assert (even["questions"], odd["questions"]) == (2, 1)
    assert [row["margin"] for row in even["margins"]] == [0, 8]
    narrow, wide = (row["read"] for row in even["margins"])
    assert 0 < narrow <= wide < 1


@pytest.mark.slow
def test_bad_options_give_a_one_line_error(
    data: Path, tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["--data", str(data), "--model", str(tiny_model)]
    assert main([*common, "--profile", "mixed+prune"]) == 2
    assert "remove prune" in capsys.readouterr().err.splitlines()[-1]
    for margin in ("-1", "inf", "nan"):
        assert main([*common, f"--margins={margin}"]) == 2
        assert "must be a number from 0 on" in capsys.readouterr().err.splitlines()[-1]
    assert main([*common, "--limit", "2", "--half", "odd", "--profile", "baseline"]) == 1
    assert "no example of that half" in capsys.readouterr().err.splitlines()[-1]


@st.composite
def pages(draw: st.DrawFn) -> list[Page]:
    """Draws pages, some with a gold answer."""
    result = []
    for seed in draw(st.lists(st.integers(0, 999), min_size=1, max_size=3, unique=True)):
        example, logits = synthetic_pages.example(seed), synthetic_pages.logits(seed, False)
        if draw(st.booleans()):
            gold = Annotation(Span(0, 9), None, (Span(1, 2),), YesNo.NONE)
            example = replace(example, annotations=(gold,))
        scores = synthetic_pages.window_scores(logits, 5, True)
        result.append(Page(example, scores, logits.doc, DecisionConfig()))
    return result


@given(pages(), st.lists(st.floats(0, 30), min_size=1, max_size=3))
def test_shares_are_consistent(some_pages: list[Page], margins: list[float]) -> None:
    result = measure(some_pages, margins)
    assert [row["margin"] for row in result["margins"]] == sorted(set(margins))
    has_gold = any(page.example.annotations for page in some_pages)
    assert bool(result["f1"]) == has_gold
    for row in result["margins"]:
        parts = [row["changed"][part] for part in PARTS]
        assert 0 < row["read"] <= 1
        assert max(parts) <= row["changed"]["any"] <= min(1, sum(parts))
        assert bool(row["f1"]) == has_gold
        if row["read"] == 1:
            assert row["changed"]["any"] == 0 and not any(row["f1"].values())
    assert len(table(result).splitlines()) == 5 + len(result["margins"])


def test_changed_answers_are_counted_by_part() -> None:
    example, tally = synthetic_pages.example(1), Tally()
    full = Prediction(1, Span(0, 9), 0.5, (Span(1, 2),), 0.5)
    tally.add(example, replace(full, long_score=0.1, short_score=0.1), full, 3)
    assert tally.changed["any"] == 0
    tally.add(example, replace(full, long=Span(9, 12), shorts=()), full, 2)
    tally.add(example, replace(full, shorts=(), yes_no=YesNo.YES), full, 1)
    assert tally.windows == 6
    assert tally.changed == {"long": 1, "short": 2, "yes_no": 1, "any": 2}


def test_no_pages_are_an_error() -> None:
    with pytest.raises(nq.Error, match="no example of that half"):
        measure([], [0.0])
