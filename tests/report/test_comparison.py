"""Tests the comparison of recorded runs: the order, the table and the page."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from nq.report import comparison, comparison_page
from nq.report.comparison_page import _Axis
from nq.tracking import History, RecordedRun

RUN = RecordedRun(
    name="baseline · dev.jsonl",
    profile="baseline",
    total_s=120.5,
    windows_per_s=20.25,
    micro_f1=0.5,
    changed=None,
    peak_mb=1500.4,
    speed_comparable="yes",
    machine="one, 2 cores",
    status="FINISHED",
    started=1.0,
    run_id="a" * 32,
)
FAST = replace(RUN, name="mine", profile="mixed", total_s=40.0, micro_f1=0.25, changed=3)
UNSCORED = replace(RUN, profile="xla", micro_f1=None, total_s=60.0, windows_per_s=None)
ALL = (RUN, FAST, UNSCORED)


def history(*runs: RecordedRun, others: int = 0) -> History:
    return History("nq", runs, others, "mlflow ui")


@pytest.mark.parametrize(
    ("by", "profiles"),
    [
        ("total_s", ["mixed", "xla", "baseline"]),
        ("micro_f1", ["baseline", "mixed", "xla"]),
        ("windows_per_s", ["baseline", "mixed", "xla"]),
        ("changed", ["mixed", "baseline", "xla"]),
        ("profile", ["baseline", "mixed", "xla"]),
    ],
)
def test_the_best_run_comes_first_and_those_without_a_value_last(
    by: str, profiles: list[str]
) -> None:
    assert [run.profile for run in comparison.ordered(ALL, by)] == profiles


def test_not_a_number_counts_as_no_value() -> None:
    unknown = replace(FAST, micro_f1=float("nan"))
    assert comparison.ordered([unknown, RUN], "micro_f1") == [RUN, unknown]
    assert comparison.cells(unknown)[4] == ""


def test_the_table_has_a_line_for_each_run() -> None:
    lines = comparison.table(history(*ALL, others=2), ALL).splitlines()
    assert lines[0].split("  ")[0] == "name"
    assert lines[1].split() == ["dev.jsonl", "baseline", "120.5", "20.2", "0.5000", "1500", "yes"]
    assert lines[2].split() == ["mine", "mixed", "40.0", "20.2", "0.2500", "3", "1500", "yes"]
    assert lines[4:] == [
        "left out, because they have no times or no profile: 2",
        "in MLflow: mlflow ui",
    ]


def test_an_experiment_without_runs_is_said() -> None:
    assert "no run with times in the experiment nq" in comparison.table(history(), [])


def test_what_cannot_be_compared_is_said() -> None:
    killed = replace(RUN, status="KILLED", speed_comparable="no: resumed", machine="two")
    assert comparison.note(killed, True) == "no: resumed; the run is KILLED; on two"
    assert "on two" in comparison.table(history(killed, FAST), [killed, FAST])
    assert "on one" not in comparison.table(history(*ALL), ALL)
    several = replace(RUN, instances=2, threads=1)
    assert comparison.note(several, False) == "yes; 2 instances of 1 thread"
    assert comparison.note(replace(RUN, threads=2), False) == "yes; 2 threads"


def test_names_cannot_control_the_terminal() -> None:
    assert "\x1b" not in comparison.table(history(RUN), [replace(RUN, name="\x1b[31m")])


class Texts(HTMLParser):
    """Collects the elements of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)


def test_the_page_has_a_mark_for_each_run_with_f1_and_a_row_for_each_run() -> None:
    page = comparison_page.page(history(*ALL), ALL)
    tags = Texts(page).tags
    assert (tags.count("circle"), tags.count("tr")) == (2, 4)
    assert not re.search(r"https?://|<script|<link|<img", page)


def test_names_are_escaped() -> None:
    evil = replace(RUN, name="</title><script>alert(1)</script>", profile="<b>&")
    page = comparison_page.page(History("<i>", (evil,), 0, "<u>"), [evil])
    assert not {"script", "b", "u"} & set(Texts(page).tags)


def test_without_any_f1_there_is_no_picture() -> None:
    page = comparison_page.page(history(UNSCORED), [UNSCORED])
    assert "<svg" not in page and "No run has an F1" in page


def test_a_run_that_is_not_comparable_has_a_hollow_mark() -> None:
    resumed = replace(RUN, speed_comparable="no: resumed")
    assert 'fill="none"' in comparison_page.page(history(resumed), [resumed])
    assert 'fill="none"' not in comparison_page.page(history(RUN), [RUN])


@pytest.mark.parametrize("values", [[0.5], [0.0], [0.1, 0.9], [0.0, 700.0], [-1.0, 3.0]])
@pytest.mark.parametrize("logarithmic", [False, True])
def test_every_value_is_within_its_axis(values: list[float], logarithmic: bool) -> None:
    if logarithmic:
        values = [abs(value) + 0.25 for value in values]
    axis = _Axis(values, 100.0, 500.0, logarithmic)
    assert all(100.0 <= axis(value) <= 500.0 for value in values)
    assert axis(max(values)) >= axis(min(values))
    assert 2 <= len(axis.ticks) <= 20


def test_many_runs_fit_into_the_picture() -> None:
    many = [replace(RUN, total_s=10.0 + n, profile=f"p{n}") for n in range(100)]
    page = comparison_page.page(history(*many), many)
    height = float(re.findall(r'viewBox="0 0 \d+ (\d+)"', page)[0])
    lines = [float(y) for y in re.findall(r'<text x="\d+" y="([\d.]+)">', page)]
    assert max(lines) < height and len(set(lines)) == 100
