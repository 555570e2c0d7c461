"""What margins save and cost: against a real run under ``refine``, and on scores by chance."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.margin import PARTS, Page, Tally, main, measure, table
from nq.bundle import bundled_sample
from nq.commands.main import console
from nq.config import DecisionConfig, RankingWeights
from nq.errors import Error
from nq.inference.prune import NEAR
from nq.model.checkpoint import load_settings, save_settings
from nq.records import Annotation, Prediction, Span, YesNo
from tests.postprocess import synthetic_pages

N = 4


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records with even and odd ids, and one that has no number."""
    lines = bundled_sample().read_text(encoding="utf-8").splitlines()[:N]
    ids = [2, 4, 5, "a"]
    path = tmp_path_factory.mktemp("margin") / "data.jsonl"
    records = (json.loads(line) | {"example_id": i} for line, i in zip(lines, ids, strict=True))
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


@pytest.fixture
def choosy(tiny_model: Path, tmp_path: Path) -> Path:
    """A model for whose decision the words of the question count more than what it reads."""
    folder = shutil.copytree(tiny_model, tmp_path / "choosy")
    settings = load_settings(folder)
    weights = RankingWeights(overlap=3.0, most_evidence=2.0)
    decision = replace(settings.decision, weights=weights)
    save_settings(folder, replace(settings, decision=decision))
    return folder


def compared(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    capsys.readouterr()
    assert main([*map(str, arguments), "--profile", "baseline", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def answered(data: Path, model: Path, folder: Path, profile: str) -> tuple[dict[str, Any], Any]:
    """The metrics and the predictions of a real run."""
    arguments = ["--data", str(data), "--model", str(model), "--output", str(folder)]
    assert console(["answer", *arguments, "--profile", profile, "--no-track", "--json"]) == 0
    metrics, found = (
        json.loads((folder / name).read_text()) for name in ("metrics.json", "predictions.json")
    )
    return metrics, found["predictions"]


def test_it_tells_what_runs_under_refine_would_have_found(
    data: Path, choosy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, whole = answered(data, choosy, tmp_path / "plain", "baseline")
    refined, found = answered(data, choosy, tmp_path / "refined", "refine")
    result = compared(capsys, "--data", data, "--model", choosy, "--half", "all", "--margins", NEAR)
    (told,) = result["margins"]
    assert (result["questions"], result["windows"]) == (N, plain["windows"])
    assert 0 < told["read"] == refined["read_windows"] / plain["windows"] < 1
    names = {"long": "long_answer", "short": "short_answers", "yes_no": "yes_no_answer"}
    for part, name in names.items():
        others = sum(a[name] != b[name] for a, b in zip(found, whole, strict=True))
        assert told["changed"][part] == others / N
    for part in ("long", "short"):
        before, after = (m["metrics"][f"{part}-answer-f1"] for m in (plain, refined))
        assert result["f1"][part] == before
        assert told["f1"][part] == pytest.approx(after - before)


def test_scores_that_are_kept_are_not_made_again(
    data: Path, choosy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept"
    always = ("--data", data, "--model", choosy, "--output", kept, "--doc-stride", 4)
    even = compared(capsys, *always, "--margins", 8, 0)
    scores = {path: path.stat().st_mtime_ns for path in (kept / "results").iterdir()}
    odd = compared(capsys, *always, "--margins", 0, "--half", "odd")
    assert scores == {path: path.stat().st_mtime_ns for path in (kept / "results").iterdir()}
    assert (even["questions"], odd["questions"]) == (2, 1)
    assert [row["margin"] for row in even["margins"]] == [0, 8]
    narrow, wide = (row["read"] for row in even["margins"])
    assert 0 < narrow <= wide < 1


def test_what_cannot_be_is_one_line(
    data: Path, tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    always = ["--data", str(data), "--model", str(tiny_model)]
    assert main([*always, "--profile", "mixed+refine"]) == 2
    assert "leave refine out" in capsys.readouterr().err.splitlines()[-1]
    for margin in ("-1", "inf", "nan"):
        assert main([*always, f"--margins={margin}"]) == 2
        assert "must be a number from 0 on" in capsys.readouterr().err.splitlines()[-1]
    assert main([*always, "--limit", "2", "--half", "odd", "--profile", "baseline"]) == 1
    assert "no example of that half" in capsys.readouterr().err.splitlines()[-1]


@st.composite
def pages(draw: st.DrawFn) -> list[Page]:
    """Pages by chance, some with a gold answer."""
    found = []
    for seed in draw(st.lists(st.integers(0, 999), min_size=1, max_size=3, unique=True)):
        example, logits = synthetic_pages.example(seed), synthetic_pages.logits(seed, False)
        if draw(st.booleans()):
            gold = Annotation(Span(0, 9), None, (Span(1, 2),), YesNo.NONE)
            example = replace(example, annotations=(gold,))
        scores = synthetic_pages.window_scores(logits, 5, True)
        found.append(Page(example, scores, logits.doc, DecisionConfig()))
    return found


@given(pages(), st.lists(st.floats(0, 30), min_size=1, max_size=3))
def test_shares_are_shares(some: list[Page], margins: list[float]) -> None:
    result = measure(some, margins)
    assert [row["margin"] for row in result["margins"]] == sorted(set(margins))
    gold = any(page.example.annotations for page in some)
    assert bool(result["f1"]) == gold
    for row in result["margins"]:
        parts = [row["changed"][part] for part in PARTS]
        assert 0 < row["read"] <= 1
        assert max(parts) <= row["changed"]["any"] <= min(1, sum(parts))
        assert bool(row["f1"]) == gold
        if row["read"] == 1:
            assert row["changed"]["any"] == 0 and not any(row["f1"].values())
    assert len(table(result).splitlines()) == 5 + len(result["margins"])


def test_an_answer_that_changes_is_counted_by_its_parts() -> None:
    example, tally = synthetic_pages.example(1), Tally()
    whole = Prediction(1, Span(0, 9), 0.5, (Span(1, 2),), 0.5)
    tally.add(example, replace(whole, long_score=0.1, short_score=0.1), whole, 3)
    assert tally.changed["any"] == 0
    tally.add(example, replace(whole, long=Span(9, 12), shorts=()), whole, 2)
    tally.add(example, replace(whole, shorts=(), yes_no=YesNo.YES), whole, 1)
    assert tally.windows == 6
    assert tally.changed == {"long": 1, "short": 2, "yes_no": 1, "any": 2}


def test_no_page_is_an_error() -> None:
    with pytest.raises(Error, match="no example of that half"):
        measure([], [0.0])
