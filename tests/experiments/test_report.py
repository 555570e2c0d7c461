"""Tables that sum up, bounds that fall, and a page that is well-formed whatever it shows."""

from __future__ import annotations

import html
import json
import shutil
import subprocess
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given

from experiments.errors.losses import Case, Outcome, Stage, Verdict
from experiments.errors.page import page
from experiments.errors.report import Report, bounds, calibration, report, tally
from experiments.errors.text import NO_PROBABILITIES, NO_SCORES, text
from tests.experiments.finished_runs import cases

NAMES = ("right", "wrong", "extra", "missed", "null")
EVIL = "<script>alert('&\"')</script>\x00\ud800"


def verdict(outcome: Outcome, score: float = 0.5, lost: Stage | None = None) -> Verdict:
    return Verdict(outcome, score, lost, "gold text", "answer text")


def case(found: Verdict, number: int = 0, question: str = "who") -> Case:
    return Case(number, question, {"question": "who"}, found, found)


def parsed(markup: str) -> ET.Element:
    return ET.fromstring(markup.removeprefix("<!DOCTYPE html>\n"))


@given(cases())
def test_splits_sum_to_the_whole(found: list[Case]) -> None:
    told = report(found, {})
    for trait, values in told.splits.items():
        assert len({split.value for split in values}) == len(values), trait
        for kind in ("long", "short"):
            whole = getattr(told, kind).overall
            for name in NAMES:
                parts = (getattr(getattr(split, kind), name) for split in values)
                assert sum(parts) == getattr(whole, name)


@given(cases())
def test_bounds_fall_to_what_is_reached(found: list[Case]) -> None:
    told = report(found, {})
    for part in (told.long, told.short):
        recalls = [1.0 if part.overall.n_gold else 0.0, *(b.recall for b in part.bounds)]
        assert recalls == sorted(recalls, reverse=True)
        assert recalls[-1] == pytest.approx(part.overall.recall or 0.0)
        assert all((part.overall.f1 or 0.0) <= b.f1 + 1e-9 for b in part.bounds)
        assert sum(b.lost for b in part.bounds) == part.overall.n_gold - part.overall.right
        assert part.other + part.null == part.bounds[-1].lost


def test_bounds_by_hand() -> None:
    found = [
        verdict(Outcome.RIGHT),
        verdict(Outcome.MISSED, lost=Stage.CONTEXTS),
        verdict(Outcome.WRONG, lost=Stage.POSITIONS),
        verdict(Outcome.WRONG, lost=Stage.DECISION),
        verdict(Outcome.EXTRA),
    ]
    assert [b.recall for b in bounds(found)] == [0.75, 0.75, 0.5, 0.25]
    assert bounds(found)[0].f1 == pytest.approx(2 * 0.75 / 1.75)
    without = [b.stage for b in bounds(found, with_scores=False)]
    assert without == ["contexts", "windows", "decision"]


def test_nothing_to_measure_is_no_number() -> None:
    none = tally([verdict(Outcome.NULL)])
    assert (none.precision, none.recall, none.f1, none.n) == (None, None, None, 1)
    extra = tally([verdict(Outcome.EXTRA)])
    assert (extra.precision, extra.recall, extra.f1) == (0, None, None)
    assert tally([verdict(Outcome.MISSED)]).f1 == 0


def test_only_given_answers_are_held_against_their_probability() -> None:
    found = [
        verdict(Outcome.RIGHT, 0.75),
        verdict(Outcome.EXTRA, 0.75),
        verdict(Outcome.MISSED, 0.1),
        verdict(Outcome.NULL, 0.0),
    ]
    told = calibration(found)
    assert told is not None
    assert [b.count for b in told.bins] == [0] * 7 + [2, 0, 0]
    assert told.error == 0.25
    assert calibration([*found, verdict(Outcome.NULL, -3.0)]) is None


def test_the_worst_are_the_surest() -> None:
    scores = (0.2, 0.9, 0.5)
    wrong = [case(verdict(Outcome.WRONG, s, Stage.DECISION), i) for i, s in enumerate(scores)]
    missed = [case(verdict(Outcome.MISSED, 0.1, Stage.WINDOWS), 7)]
    right = [case(verdict(Outcome.RIGHT, 1.0), 8)]
    told = report([*wrong, *missed, *right], {}, examples=2)
    assert [c.example_id for c in told.long.wrong] == [1, 2]
    assert [c.example_id for c in told.short.missed] == [7]


@given(cases())
def test_everything_can_be_shown(found: list[Case]) -> None:
    told = report(found, {"run": EVIL})
    json.dumps(told.to_dict())
    assert text(told)
    assert parsed(page(told)).tag == "html"
    page(told).encode()


def evil_report(with_scores: bool = True, score: float = 0.5) -> Report:
    evil = Verdict(Outcome.WRONG, score, Stage.DECISION, EVIL, EVIL)
    traits = {"question": "who", "source": EVIL}
    return report([Case(EVIL, EVIL, traits, evil, evil)], {EVIL: EVIL}, 3, with_scores)


def test_text_of_others_is_escaped() -> None:
    markup = page(evil_report())
    assert "<script" not in markup
    shown = "".join(parsed(markup).itertext())
    assert shown.count("<script>alert('&\"')</script>\ufffd\ufffd") >= 8


def test_the_page_needs_nothing_else() -> None:
    markup = page(evil_report())
    for outside in ("http", "src=", "href=", "url(", "@import", "<script", "<link"):
        assert outside not in markup
    assert "prefers-color-scheme: dark" in markup


@pytest.mark.parametrize("show", [text, lambda told: html.unescape(page(told))])
def test_what_is_missing_is_said(show: object) -> None:
    assert callable(show)
    whole, bare = show(evil_report()), show(evil_report(with_scores=False, score=7.5))
    assert NO_SCORES in bare
    assert NO_PROBABILITIES in bare
    assert "best positions of a window" not in bare
    assert NO_SCORES not in whole
    assert NO_PROBABILITIES not in whole
    assert "3 more have no annotations" in whole


def test_sources_that_not_every_record_has() -> None:
    found = case(verdict(Outcome.RIGHT))
    named = replace(found, traits={**found.traits, "source": "zoo"})
    told = report([named, found], {})
    assert [s.value for s in told.splits["source"]] == ["not said", "zoo"]
    assert "source" not in report([found], {}).splits


CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
MEASURED = """<script>document.title = JSON.stringify([
  Math.max(...[...document.querySelectorAll(".card")].map(c => c.scrollWidth - c.clientWidth)),
  Math.min(...[...document.querySelectorAll("td.text")].map(c => c.clientWidth))])</script>"""


@pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium that draws the page")
@pytest.mark.parametrize("width", [400, 1280, 1472, 1920])
def test_no_column_is_cut_off_and_none_squeezed(tmp_path: Path, width: int) -> None:
    told = verdict(Outcome.WRONG, lost=Stage.DECISION)
    traits = {"tokens of the page": "20,000 to 49,999"}
    found = [Case(n, "who", traits, told, told) for n in range(1000)]
    shown = page(report(found, {})).replace("</body>", MEASURED + "</body>")
    (tmp_path / "page.html").write_text(shown, encoding="utf-8")
    arguments = ["--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={width},900"]
    drawn = subprocess.run(
        [str(CHROMIUM), *arguments, "--dump-dom", (tmp_path / "page.html").as_uri()],
        capture_output=True,
        text=True,
        check=True,
    )
    hidden, narrowest = json.loads(drawn.stdout.split("<title>")[1].split("</title>")[0])
    assert narrowest > 100
    assert hidden == 0 or width < 500  # a telephone scrolls
