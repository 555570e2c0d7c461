"""Tallies that add up, bounds that decrease, and a page that is well-formed for any text."""

from __future__ import annotations

import html
import json
import shutil
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given

from experiments.errors.losses import Case, Judgment, Outcome, Stage
from experiments.errors.page import page
from experiments.errors.report import Report, bounds, calibration, report, tally
from experiments.errors.text import NO_PROBABILITIES, NO_SCORES, text
from tests.experiments.example_cases import cases

NAMES = ("right", "wrong", "extra", "missed", "null")
MARKUP = "<script>alert('&\"')</script>\x00\ud800"


def judgment(outcome: Outcome, score: float = 0.5, lost: Stage | None = None) -> Judgment:
    return Judgment(outcome, score, lost, "gold text", "answer text")


def case(both: Judgment, example_id: int = 0) -> Case:
    return Case(example_id, "who", {"question": "who"}, both, both)


def parsed(markup: str) -> ET.Element:
    return ET.fromstring(markup.removeprefix("<!DOCTYPE html>\n"))


@pytest.mark.slow
@given(cases())
def test_splits_add_up_to_the_whole(some_cases: list[Case]) -> None:
    result = report(some_cases, {})
    for trait, values in result.splits.items():
        assert len({split.value for split in values}) == len(values), trait
        for kind in ("long", "short"):
            whole = getattr(result, kind).overall
            for name in NAMES:
                parts = (getattr(getattr(split, kind), name) for split in values)
                assert sum(parts) == getattr(whole, name)


@given(cases())
def test_bounds_decrease_to_the_recall_of_the_run(some_cases: list[Case]) -> None:
    result = report(some_cases, {})
    for part in (result.long, result.short):
        recalls = [1.0 if part.overall.n_gold else 0.0, *(b.recall for b in part.bounds)]
        assert recalls == sorted(recalls, reverse=True)
        assert recalls[-1] == pytest.approx(part.overall.recall or 0.0)
        assert all((part.overall.f1 or 0.0) <= b.f1 + 1e-9 for b in part.bounds)
        assert sum(b.lost for b in part.bounds) == part.overall.n_gold - part.overall.right
        assert part.other + part.null == part.bounds[-1].lost


def test_bounds_by_hand() -> None:
    judgments = [
        judgment(Outcome.RIGHT),
        judgment(Outcome.MISSED, lost=Stage.CONTEXTS),
        judgment(Outcome.WRONG, lost=Stage.POSITIONS),
        judgment(Outcome.WRONG, lost=Stage.DECISION),
        judgment(Outcome.EXTRA),
    ]
    assert [b.recall for b in bounds(judgments)] == [0.75, 0.75, 0.5, 0.25]
    assert bounds(judgments)[0].f1 == pytest.approx(2 * 0.75 / 1.75)
    without_scores = [b.stage for b in bounds(judgments, with_scores=False)]
    assert without_scores == ["contexts", "windows", "decision"]


def test_undefined_measures_are_none() -> None:
    null = tally([judgment(Outcome.NULL)])
    assert (null.precision, null.recall, null.f1, null.n) == (None, None, None, 1)
    extra = tally([judgment(Outcome.EXTRA)])
    assert (extra.precision, extra.recall, extra.f1) == (0, None, None)
    assert tally([judgment(Outcome.MISSED)]).f1 == 0


def test_only_given_answers_have_a_calibration() -> None:
    judgments = [
        judgment(Outcome.RIGHT, 0.75),
        judgment(Outcome.EXTRA, 0.75),
        judgment(Outcome.MISSED, 0.1),
        judgment(Outcome.NULL, 0.0),
    ]
    result = calibration(judgments)
    assert result is not None
    assert [b.count for b in result.bins] == [0] * 7 + [2, 0, 0]
    assert result.error == 0.25
    assert calibration([*judgments, judgment(Outcome.NULL, -3.0)]) is None


def test_the_worst_have_the_highest_scores() -> None:
    scores = (0.2, 0.9, 0.5)
    wrong = [case(judgment(Outcome.WRONG, s, Stage.DECISION), i) for i, s in enumerate(scores)]
    missed = [case(judgment(Outcome.MISSED, 0.1, Stage.WINDOWS), 7)]
    right = [case(judgment(Outcome.RIGHT, 1.0), 8)]
    result = report([*wrong, *missed, *right], {}, examples=2)
    assert [c.example_id for c in result.long.wrong] == [1, 2]
    assert [c.example_id for c in result.short.missed] == [7]


@pytest.mark.slow
@given(cases())
def test_any_report_can_be_shown(some_cases: list[Case]) -> None:
    result = report(some_cases, {"run": MARKUP})
    json.dumps(result.to_dict())
    assert text(result)
    assert parsed(page(result)).tag == "html"
    page(result).encode()


def report_with_markup(with_scores: bool = True, score: float = 0.5) -> Report:
    """Returns a report in which every text is markup."""
    wrong = Judgment(Outcome.WRONG, score, Stage.DECISION, MARKUP, MARKUP)
    traits = {"question": "who", "source": MARKUP}
    return report([Case(MARKUP, MARKUP, traits, wrong, wrong)], {MARKUP: MARKUP}, 3, with_scores)


def test_text_of_the_data_is_escaped() -> None:
    markup = page(report_with_markup())
    assert "<script" not in markup
    shown = "".join(parsed(markup).itertext())
    assert shown.count("<script>alert('&\"')</script>\ufffd\ufffd") >= 8


def test_the_page_has_no_links_to_other_files() -> None:
    markup = page(report_with_markup())
    for outside in ("http", "src=", "href=", "url(", "@import", "<script", "<link"):
        assert outside not in markup
    assert "prefers-color-scheme: dark" in markup


@pytest.mark.parametrize("show", [text, lambda shown: html.unescape(page(shown))])
def test_missing_figures_are_mentioned(show: Callable[[Report], str]) -> None:
    whole = show(report_with_markup())
    incomplete = show(report_with_markup(with_scores=False, score=7.5))
    assert NO_SCORES in incomplete
    assert NO_PROBABILITIES in incomplete
    assert "best positions of a window" not in incomplete
    assert NO_SCORES not in whole
    assert NO_PROBABILITIES not in whole
    assert "3 more have no annotations" in whole


def test_records_without_a_source_are_a_group_of_their_own() -> None:
    without = case(judgment(Outcome.RIGHT))
    named = replace(without, traits={**without.traits, "source": "zoo"})
    result = report([named, without], {})
    assert [s.value for s in result.splits["source"]] == ["not stated", "zoo"]
    assert "source" not in report([without], {}).splits


CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
MEASURE_SCRIPT = """<script>document.title = JSON.stringify([
  Math.max(...[...document.querySelectorAll(".card")].map(c => c.scrollWidth - c.clientWidth)),
  Math.min(...[...document.querySelectorAll("td.text")].map(c => c.clientWidth))])</script>"""


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium to render the page")
@pytest.mark.parametrize("width", [400, 1280, 1472, 1920])
def test_columns_are_neither_cut_off_nor_too_narrow(tmp_path: Path, width: int) -> None:
    wrong = judgment(Outcome.WRONG, lost=Stage.DECISION)
    traits = {"tokens of the page": "20,000 to 49,999"}
    many = [Case(n, "who", traits, wrong, wrong) for n in range(1000)]
    shown = page(report(many, {})).replace("</body>", MEASURE_SCRIPT + "</body>")
    (tmp_path / "page.html").write_text(shown, encoding="utf-8")
    arguments = ["--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={width},900"]
    process = subprocess.run(
        [str(CHROMIUM), *arguments, "--dump-dom", (tmp_path / "page.html").as_uri()],
        capture_output=True,
        text=True,
        check=True,
    )
    hidden, narrowest = json.loads(process.stdout.split("<title>")[1].split("</title>")[0])
    assert narrowest > 100
    assert hidden == 0 or width < 500  # a narrow screen scrolls
