"""Tests which profile a comparison advises to take, and its page in Chromium."""

import re
from dataclasses import replace
from html import escape
from pathlib import Path

import pytest

from nq.report import comparison
from nq.report.comparison import ComparisonRow
from nq.report.page import comparison_page
from tests.chromium import browser, needs_chromium

BASE = ComparisonRow("baseline", 20.0, 19.5, 20.5, 1.0, 34.0, 10.0, 1025.0, 0.5, 0)
FAST = replace(BASE, profile="mixed+buckets+openvino", windows_per_s=60.0, low=59.0, high=61.0)
FAST = replace(FAST, times_baseline=3.0, micro_f1=0.496, changed=2)
ROUGH = replace(FAST, profile="openvino+int8", windows_per_s=90.0, low=89.0, high=91.0)
ROUGH = replace(ROUGH, micro_f1=0.4, changed=9)
FAILED = ComparisonRow("onnx", error="ONNX is not installed: " + "do this " * 12)
RUN = replace(BASE, low=None, high=None, times_baseline=None, prepare_s=3.0)
RUN = replace(RUN, name="a file with a long name.jsonl", against="grappler in runs/a")
EVIL = replace(BASE, profile="</script><b>&", low=None)


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([FAST, BASE], "Take mixed+buckets+openvino: 3.00 times as fast as baseline, 2 changed"),
        ([ROUGH, BASE], "Take baseline: no profile"),
        ([BASE, replace(FAST, micro_f1=None)], "Take mixed"),
        ([replace(BASE, micro_f1=None), replace(FAST, micro_f1=None)], "Take baseline"),
        (
            [FAST, replace(FAST, profile="mixed", low=58.0, high=59.5, changed=1), BASE],
            "Take mixed: 3.00 times as fast as baseline, 1 changed answer, micro-F1 -0.0040",
        ),
        ([FAST, FAILED], "No profile can be named"),
    ],
)
def test_the_profile_to_take_is_the_fastest_that_keeps_the_answers(
    rows: list[ComparisonRow], sentence: str
) -> None:
    if rows[1].micro_f1 is None and rows[0].micro_f1 is not None:
        rows = [rows[0], replace(rows[1], changed=0)]
    name, text = comparison.advice(rows)
    assert text.startswith(sentence)
    assert name in text


def test_a_page_needs_no_other_file_and_escapes_its_texts() -> None:
    change = {"question": EVIL.profile, "answers": {}}
    page = comparison_page([EVIL], EVIL.profile, [EVIL.profile], [change]).decode()
    assert EVIL.profile not in page
    assert "default-src &#39;none&#39;" in page and "unsafe-eval" not in page
    assert not re.search(r"<link|<img|<script src", page)


def test_a_notebook_shows_the_table_with_bars_and_marks_the_profile_to_take() -> None:
    rows = comparison.Comparison([FAST, BASE, EVIL, FAILED], Path("<i>"))
    html = rows._repr_html_()
    assert all(escape(text) in html for texts in comparison.cells(rows)[1] for text in texts)
    assert html.count("<svg") == 3 and html.count(comparison.TAKEN_COLOR) == 1
    assert f"<b>{FAST.profile}</b>" in html and "<small>ONNX is not installed" in html
    assert "&lt;i&gt;/compare.html" in html and not re.search("<i>|<script|class=", html)
    assert repr(rows) == f"{comparison.comparison_table(rows)}\n\n{comparison.advice(rows)[1]}"


@needs_chromium
@pytest.mark.slow
def test_the_charts_are_drawn_without_overlap_in_every_width(tmp_path: Path) -> None:
    rows = [FAST, ROUGH, FAILED, EVIL, *(replace(BASE, profile=f"profile{i}") for i in range(5))]
    answer = {"s": "Ann <b>", "l": "by Ann", "t": [1, 2], "outcome": "right"}
    answers = {"baseline": answer, "mixed": answer, "xla": {**answer, "s": "Bob"}}
    changes = [{"question": "who?", "answers": answers}]
    (tmp_path / "page.html").write_bytes(comparison_page(rows, "nine", ["Take it."], changes))
    with browser(tmp_path / "profile") as tab:
        for width in (1500, 800, 390):
            tab.size(width)
            tab.open((tmp_path / "page.html").as_uri())
            assert tab.run("document.documentElement.scrollWidth") <= width
            labels = "[...document.querySelectorAll('#changed .mark-text.role-mark text')]"
            assert tab.run(f"{labels}.filter(t => t.getAttribute('opacity') !== '0').length") == 8
            boxes = f"{labels}.map(t => t.getBoundingClientRect())"
            hit = "b.x < a.right && a.x < b.right && b.y + 3 < a.bottom && a.y + 3 < b.bottom"
            assert not tab.run(f"{boxes}.some((a, i, all) => all.some((b, j) => i < j && {hit}))")
            assert tab.run("document.querySelectorAll('#predict_s .mark-rect path').length") == 16
            assert tab.run("document.querySelectorAll('.change .answers > div').length") == 2
        assert tab.messages == []


@pytest.mark.parametrize("phase", ["predict_s", "pipeline_s"])
def test_a_row_has_the_speed_and_the_seconds_of_its_run(phase: str) -> None:
    time = {"load_s": 1.0, "compile_s": 2.0, "warmup_s": 4.0, phase: 5.0, "rescore_s": 1.0}
    result = {"profile": "mixed", "time": time, "windows": 8, "windows_per_s": 1.6}
    own = comparison.row({**result, "peak_memory_bytes": 0, "metrics": {}})
    assert (own.predict_s, own.windows_per_s, own.first_start_s) == (5.0, 1.6, 7.0)
